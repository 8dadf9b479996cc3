package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pointsman-dev/pointsman/scorer/eval"
	"github.com/pointsman-dev/pointsman/scorer/features"
	"github.com/pointsman-dev/pointsman/scorer/train"
	"github.com/pointsman-dev/pointsman/server/record"
)

// judged writes tasks with features that tell which model is right.
func judged(t *testing.T, dir string) (data, rows string) {
	t.Helper()
	data, rows = filepath.Join(dir, "tasks.jsonl"), filepath.Join(dir, "features.safetensors")
	w, err := features.Create(rows, features.Header{Encoder: "test/encoder", Layers: 2, HiddenSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var text strings.Builder
	for i := range 900 {
		row := make([]float32, 8)
		for j := range row {
			row[j] = float32(rng.NormFloat64())
		}
		outcome := func(level float64) int {
			if rng.NormFloat64() < level {
				return 1
			}
			return 0
		}
		task := fmt.Sprint("task ", i)
		fmt.Fprintf(&text, `{"task":%q,"group":"g%d","labels":{"small":%d,"large":%d}}`+"\n", task, i%2, outcome(float64(row[0])), outcome(0.8+float64(row[1])))
		if err := w.Append(features.DigestOf(task), row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(data, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return data, rows
}

// Without flags, train follows the field's recipe.
func TestTrainFlagsDefaultToTheRecipe(t *testing.T) {
	var commands cli
	parser, err := kong.New(&commands)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse([]string{"train", "--data", "d", "--features", "f", "--out", "o"}); err != nil {
		t.Fatal(err)
	}
	got, err := commands.Train.recipe()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(train.DefaultRecipe(), got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// From judged examples to a measured router and its configuration lines.
func TestTrainEvaluateCalibrate(t *testing.T) {
	dir := t.TempDir()
	data, rows := judged(t, dir)
	router, page := filepath.Join(dir, "router"), filepath.Join(dir, "report.html")
	args := []string{
		"train", "--data", data, "--features", rows, "--out", router, "--hold-out", "80",
		"--pca-dim", "8", "--trunk", "16", "--members", "3", "--keep", "2", "--epochs", "30", "--learning-rate", "0.01", "--batch-size", "64",
	}
	code, out, errs := pointsman(t, "", args...)
	if code != 0 {
		t.Fatalf("train: exit %d\n%s%s", code, out, errs)
	}
	for _, want := range []string{"layer  effective dimensions", "2 members of 3", "large: validation AUC", "small: validation AUC", "checkpoint sha256:", "few: the field suggests"} {
		if !strings.Contains(out, want) {
			t.Errorf("train does not say %q:\n%s", want, out)
		}
	}
	if !strings.Contains(errs, "training members") {
		t.Errorf("no progress:\n%s", errs)
	}
	if code, _, errs := pointsman(t, "", args...); code != 1 || !strings.Contains(errs, "already there") {
		t.Errorf("again: exit %d\n%s", code, errs)
	}

	sample := []string{"--checkpoint", router, "--data", data, "--features", rows, "--resamples", "50"}
	code, out, errs = pointsman(t, "", append([]string{"evaluate", "--json", "-", "--html", page, "--tolerance", "0.1"}, sample...)...)
	if code != 0 {
		t.Fatalf("evaluate: exit %d\n%s", code, errs)
	}
	var document struct{ Reports []*eval.Report }
	if err := json.Unmarshal([]byte(out), &document); err != nil {
		t.Fatal(err)
	}
	report := document.Reports[0]
	if report.Strong != "large" || report.Heads[0].AUC.Value < 0.65 || len(report.Policies) != 1 || !strings.Contains(strings.Join(report.Notes, " "), "held out") {
		t.Errorf("report %+v", report)
	}
	if text, err := os.ReadFile(page); err != nil || !bytes.Contains(text, []byte("<svg")) {
		t.Errorf("page: %v", err)
	}
	if code, out, _ := pointsman(t, "", append([]string{"evaluate", "--all"}, sample...)...); code != 0 || !strings.Contains(out, "flatter") {
		t.Errorf("evaluate --all: exit %d\n%s", code, out)
	}

	code, out, errs = pointsman(t, "", append([]string{"calibrate", "--strong-share", "0.3"}, sample...)...)
	if code != 0 || !strings.Contains(out, "policy: { tolerance: 0.") || !strings.Contains(out, "quality_weight: 0.") {
		t.Errorf("calibrate: exit %d\n%s%s", code, out, errs)
	}
}

func TestEvaluateADecisionRecord(t *testing.T) {
	dir := t.TempDir()
	record, outcomes := filepath.Join(dir, "decisions.jsonl"), filepath.Join(dir, "outcomes.jsonl")
	var decisions, results strings.Builder
	for i := range 60 {
		fmt.Fprintf(&decisions, `{"decision_id":"d%d","route":"main","task_digest":"t%d","targets":[{"target":"strong","head":"a","probability":0.9,"cost":2},{"target":"weak","head":"b","probability":%g,"cost":0.5}]}`+"\n", i, i, float64(i)/60)
		fmt.Fprintf(&results, `{"decision_id":"d%d","labels":{"strong":1}}`+"\n", i)
	}
	for path, text := range map[string]string{record: decisions.String(), outcomes: results.String()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := pointsman(t, "", "evaluate", "--decisions", record, "--outcomes", outcomes, "--tolerance", "0.4", "--resamples", "50")
	// Weak is within 0.4 of 0.9 from 0.5 up: 30 of 60, at a quarter of the cost.
	if code != 0 || !strings.Contains(out, "tolerance 0.4 ") || !strings.Contains(out, "37.5 %") || !strings.Contains(out, "only the trade-offs are measured") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	code, out, errs = pointsman(t, "", "calibrate", "--decisions", record, "--strong-share", "0.25", "--resamples", "50")
	if code != 0 || !strings.Contains(out, "25.0 %") {
		t.Errorf("calibrate: exit %d\n%s%s", code, out, errs)
	}
}

// The record is written by one package and read by another, which share no type.
func TestWhatServeRecordsIsRead(t *testing.T) {
	entry, err := json.Marshal(record.Entry{
		DecisionID: "id", Route: "main", Mode: "SHADOW", Target: "strong", ShadowTarget: "weak", TaskDigest: "task", CheckpointDigest: "sha256:c",
		Targets: []record.Target{{Target: "strong", Head: "a", Probability: 0.9, Cost: 2}, {Target: "weak", Head: "b", Probability: 0.7, Cost: 0.5}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := eval.ReadDecisions(bytes.NewReader(append(entry, '\n')))
	if err != nil {
		t.Fatal(err)
	}
	want := []eval.Decision{{
		ID: "id", Route: "main", TaskDigest: "task", Checkpoint: "sha256:c", Line: 1,
		Targets: []eval.DecisionTarget{{Target: "strong", Head: "a", Probability: 0.9, Cost: 2}, {Target: "weak", Head: "b", Probability: 0.7, Cost: 0.5}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRouterCommandsRefuse(t *testing.T) {
	dir := t.TempDir()
	data, rows := judged(t, dir)
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"nothing to work on", "give --checkpoint, --data and --features, or --decisions", []string{"evaluate"}},
		{"both", "give either", []string{"evaluate", "--decisions", "x", "--data", data}},
		{"no checkpoint", "router.json", []string{"evaluate", "--checkpoint", dir, "--data", data, "--features", rows}},
		{"not features", "not a features file", []string{"train", "--data", data, "--features", data, "--out", filepath.Join(dir, "r")}},
		{"not labels", "neither JSON lines nor CSV", []string{"train", "--data", rows, "--features", rows, "--out", filepath.Join(dir, "r")}},
		{"not a size", "--pca-dim is", []string{"train", "--data", data, "--features", rows, "--out", filepath.Join(dir, "r"), "--pca-dim", "many"}},
		{"too many components", "at most 8", []string{"train", "--data", data, "--features", rows, "--out", filepath.Join(dir, "r")}},
		{"no parent", "no such file", []string{"train", "--data", data, "--features", rows, "--out", filepath.Join(dir, "no", "r")}},
	} {
		code, _, errs := pointsman(t, "", c.args...)
		if code == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit %d, %s", c.name, code, errs)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "r")); err == nil {
		t.Error("a checkpoint was left")
	}
}

func TestProgressBar(t *testing.T) {
	at := time.Unix(0, 0)
	for _, terminal := range []bool{true, false} {
		var out bytes.Buffer
		bar := &progressBar{w: &out, terminal: terminal, now: func() time.Time { return at }}
		for i := range 101 {
			bar.show("reading", i, 100, "")
			at = at.Add(time.Second)
		}
		bar.end()
		text := out.String()
		if !strings.Contains(text, "100/100 1m40s") || !strings.Contains(text, "50/100 about 50s left") || strings.Contains(text, "\r") != terminal {
			t.Errorf("terminal %v:\n%q", terminal, text)
		}
		if lines := strings.Count(text, "\n"); !terminal && lines > 15 {
			t.Errorf("a log of %d lines", lines)
		}
	}
}
