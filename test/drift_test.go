package test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/drift"
	"github.com/pointsman-dev/pointsman/scorer/train"
	"github.com/pointsman-dev/pointsman/server"
)

// TestShiftedScoresShow asks the same task until there are scores enough, with a
// train.json that has half of the weak head's scores on either side of 1/2.
func TestShiftedScoresShow(t *testing.T) {
	router := filepath.Join(t.TempDir(), "router")
	saveCheckpoint(t, router, layers)
	saveTrainingRecord(t, router)
	w := start(t, setup{checkpoint: router})
	for range drift.Least - 1 {
		w.decide(t, task("the same"))
	}
	if psi, ok := w.psi(t); ok {
		t.Errorf("PSI %v of %d decisions", psi, drift.Least-1)
	}
	w.decide(t, task("the same"))
	// All 200 on one side, by hand.
	want := 100.0 / 201 * math.Log(401)
	if psi, ok := w.psi(t); !ok || math.Abs(psi-want) > 1e-9 {
		t.Errorf("PSI %v %v, want %v", psi, ok, want)
	}
	if err := w.server.Reload(t.Context(), w.parse(t, w.yaml)); err != nil {
		t.Fatal(err)
	}
	if psi, ok := w.psi(t); !ok || math.Abs(psi-want) > 1e-9 {
		t.Errorf("after a reload of the same checkpoint: PSI %v %v, want %v", psi, ok, want)
	}

	record, err := os.ReadFile(filepath.Join(router, train.RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(router); err != nil {
		t.Fatal(err)
	}
	saveCheckpointOf(t, router, layers, 2, 2)
	if err := os.WriteFile(filepath.Join(router, train.RecordFile), record, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.server.Reload(t.Context(), w.parse(t, w.yaml)); err != nil {
		t.Fatal(err)
	}
	if psi, ok := w.psi(t); ok {
		t.Errorf("PSI %v of another checkpoint's record", psi)
	}
	if !strings.Contains(w.log.String(), "is of another checkpoint") {
		t.Error("the log does not say that train.json is of another checkpoint")
	}
	saveTrainingRecord(t, router)
	if err := w.server.Reload(t.Context(), w.parse(t, w.yaml)); err != nil {
		t.Fatal(err)
	}
	for range drift.Least - 1 {
		w.decide(t, task("the same"))
	}
	if psi, ok := w.psi(t); ok {
		t.Errorf("PSI %v: another checkpoint did not start anew", psi)
	}
}

// TestCheckTellsWhatIsNotCompared holds that a checkpoint without a record is good, and
// one with a broken record too, but that check says so.
func TestCheckTellsWhatIsNotCompared(t *testing.T) {
	w := start(t, setup{})
	path := filepath.Join(w.root, "pointsman.yaml")
	if err := os.WriteFile(path, []byte(w.yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	router := filepath.Join(w.root, "router")
	check := func() string {
		var out strings.Builder
		code, err := server.Check(t.Context(), server.CheckOptions{ConfigPath: path, Offline: true}, &out)
		if err != nil || code != server.ExitGood {
			t.Errorf("exit code %d, %v\n%s", code, err, out.String())
		}
		return out.String()
	}
	const warning = `WARNING  route "main": drift of its scores is not measured: training record`
	if out := check(); strings.Count(out, warning) != 1 || !strings.Contains(out, "no such file") {
		t.Errorf("without a record:\n%s", out)
	}
	if strings.Contains(w.log.String(), "drift") {
		t.Error("serve warns of a record that nobody promised")
	}
	if err := os.WriteFile(filepath.Join(router, train.RecordFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := check(); strings.Count(out, warning) != 1 || !strings.Contains(out, "JSON") {
		t.Errorf("with a broken record:\n%s", out)
	}
	saveTrainingRecord(t, router)
	if out := check(); strings.Contains(out, "drift") {
		t.Errorf("with a record:\n%s", out)
	}
}

// saveTrainingRecord writes the train.json of a checkpoint that training did not make.
func saveTrainingRecord(t *testing.T, dir string) {
	t.Helper()
	checkpoint, err := scorer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(train.Record{
		Format: "pointsman-train-1", Checkpoint: checkpoint.Digest(),
		Heads: []train.HeadRecord{{
			Calibration: train.Calibration{Head: "weak"},
			Scores:      drift.Distribution{Edges: []float64{0.5}, Shares: []float64{0.5, 0.5}, Count: 1000},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, train.RecordFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// psi is what /metrics says of the weak head, if it does.
func (w *world) psi(t *testing.T) (value float64, ok bool) {
	t.Helper()
	_, text := w.get(t, "/metrics")
	for line := range strings.Lines(text) {
		if number, found := strings.CutPrefix(line, `pointsman_head_psi{head="weak",route="main"} `); found {
			value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err != nil {
				t.Fatal(err)
			}
			return value, true
		}
	}
	return 0, false
}
