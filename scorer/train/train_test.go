package train

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/eval"
	"github.com/pointsman-dev/pointsman/scorer/features"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// A trained checkpoint loads, predicts held-out tasks, and its record tells how it
// came about.
func TestTrainAndServe(t *testing.T) {
	r := quick()
	result := trainQuick(t.Context(), t, r, Options{})
	dir := newDir(t)
	if err := result.Save(dir); err != nil {
		t.Fatal(err)
	}
	checkpoint, err := scorer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := scorer.Manifest{
		Encoder: "test/encoder", Layers: 2, HiddenSize: 10, PCADim: 12, TrunkHidden: []int{16}, EnsembleSize: 2,
		OutputNames: []string{"large", "small"}, VLLMLayerIDs: []int{3, 7},
	}
	if diff := cmp.Diff(want, checkpoint.Manifest()); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}

	record, err := ReadRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := record.Split
	if s.Train+s.Validation+s.HeldOut != 700 || s.HeldOut < 100 || record.Checkpoint != checkpoint.Digest() ||
		record.Data.Digest != "sha256:data" || record.Interrupted || !record.Created.Equal(clock()) || len(record.Members) != 3 {
		t.Errorf("record %+v", record)
	}
	for _, h := range record.Heads {
		if h.Scores.Count != s.Validation || h.AUC < 0.6 || h.Temperature <= 0 || h.Labels == 0 {
			t.Errorf("head %+v", h)
		}
	}
	if text, _ := json.Marshal(record); strings.Contains(string(text), "task ") {
		t.Error("the record holds the text of a task")
	}

	rows, set := world(700, 20, 1)
	sample, err := eval.Score(t.Context(), checkpoint, rows, set, eval.Roles{StrongCost: 1}, func(e labels.Example) bool { return e.Digest[0] < 51 })
	if err != nil {
		t.Fatal(err)
	}
	if sample.Heads[sample.Strong] != "large" {
		t.Error("the strong head is not the one that is right more often")
	}
	for h := range sample.Heads {
		if auc := eval.AUC(sample.Probabilities[h], sample.Labels[h]); auc < 0.68 { // the true probabilities have about 0.75
			t.Errorf("AUC of %s on held-out tasks is %.3f", sample.Heads[h], auc)
		}
	}
	// What is measured is what is served.
	p, err := checkpoint.Score(rows.rows[0])
	if err != nil {
		t.Fatal(err)
	}
	all, err := eval.Score(t.Context(), checkpoint, rows, set, eval.Roles{}, nil)
	if err != nil || all.Probabilities[1][0] != p.Mean(1) {
		t.Errorf("measured %v, served %v, %v", all.Probabilities[1][0], p.Mean(1), err)
	}
}

func TestSameSeedSameCheckpoint(t *testing.T) {
	digest := func(seed uint64, processors int) string {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		r := quick()
		r.Seed = seed
		dir := newDir(t)
		if err := trainQuick(t.Context(), t, r, Options{}).Save(dir); err != nil {
			t.Fatal(err)
		}
		c, err := scorer.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		return c.Digest()
	}
	first := digest(1, 1)
	if again := digest(1, 4); again != first {
		t.Error("the number of processors changes the checkpoint")
	}
	if digest(2, 2) == first {
		t.Error("the seed changes nothing")
	}
}

func TestLogisticRegression(t *testing.T) {
	r := quick()
	r.Trunk, r.Dropout = nil, nil
	dir := newDir(t)
	if err := trainQuick(t.Context(), t, r, Options{}).Save(dir); err != nil {
		t.Fatal(err)
	}
}

func TestCrossValidationChooses(t *testing.T) {
	r := quick()
	r.PCADim, r.WeightDecay, r.Epochs = 0, -1, 4
	result := trainQuick(t.Context(), t, r, Options{})
	chosen := 0
	best := math.Inf(1)
	for _, c := range result.Record.Choices {
		best = min(best, c.Loss)
		if c.Chosen {
			chosen++
			if c.PCADim != result.Manifest.PCADim || c.WeightDecay != result.Record.Recipe.WeightDecay {
				t.Errorf("chose %+v, used %d", c, result.Manifest.PCADim)
			}
		}
	}
	if chosen != 1 || len(result.Record.Choices) != len(triedDecays) {
		t.Errorf("choices %+v", result.Record.Choices) // 20 features: no size of the list fits, so the limit alone
	}
	for _, c := range result.Record.Choices {
		if c.Chosen && c.Loss != best {
			t.Error("not the best was chosen")
		}
	}
}

// The correction that the record tells of is in the checkpoint: its loss on the
// validation rows is the one recorded after it.
func TestCalibrationIsFoldedIn(t *testing.T) {
	r := quick()
	result := trainQuick(t.Context(), t, r, Options{})
	dir := newDir(t)
	if err := result.Save(dir); err != nil {
		t.Fatal(err)
	}
	checkpoint, err := scorer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	rows, set := world(700, 20, 1)
	data := join(t, rows, set, r)
	all := make([]int, data.Len())
	for i := range all {
		all[i] = i
	}
	_, validation := data.split(all, r.TrainShare, r.Seed)
	for h, head := range result.Record.Heads {
		sum, count := 0.0, 0.0
		for _, i := range validation {
			p, err := checkpoint.Score(rows.rows[data.source[i]])
			if err != nil {
				t.Fatal(err)
			}
			switch data.label(i, h) {
			case labels.Right:
				sum, count = sum-math.Log(p.Mean(h)), count+1
			case labels.Wrong:
				sum, count = sum-math.Log(1-p.Mean(h)), count+1
			case labels.Missing:
			}
		}
		if math.Abs(sum/count-head.Loss) > 1e-5 {
			t.Errorf("%s: loss %v, recorded %v", head.Head, sum/count, head.Loss)
		}
	}
}

// Interrupting keeps what is there: the members that were done and the best epochs
// of the others.
func TestInterruptKeepsTheBestSoFar(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := quick()
	r.Members, r.Keep, r.Epochs, r.Patience = 50, 40, 150, 150
	result := trainQuick(ctx, t, r, Options{Progress: func(stage Stage, done, _ int, _ string) {
		if stage == StageMembers && done == 1 {
			cancel()
		}
	}})
	if n := len(result.Tensors.Members); !result.Record.Interrupted || n < 1 || n > 10 {
		t.Errorf("interrupted %v with %d members", result.Record.Interrupted, n)
	}
	dir := newDir(t)
	if err := result.Save(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := scorer.Load(dir); err != nil {
		t.Error(err)
	}
}

func TestInterruptBeforeAnythingIsThere(t *testing.T) {
	for _, stage := range []Stage{StageRead, StageComponents, StageValidate} {
		ctx, cancel := context.WithCancel(t.Context())
		r := quick()
		if stage == StageValidate {
			r.WeightDecay = -1
		}
		rows, set := world(700, 20, 1)
		_, err := Train(ctx, join(t, rows, set, r), r, Options{Progress: func(s Stage, _, _ int, _ string) {
			if s == stage {
				cancel()
			}
		}})
		if !errors.Is(err, ErrInterrupted) {
			t.Errorf("%s: %v", stage, err)
		}
		cancel()
	}
}

func TestBadData(t *testing.T) {
	for _, c := range []struct {
		name   string
		n      int
		change func(*memoryRows, *labels.Set, *Recipe)
		want   []string
	}{
		{"too few rows", 80, func(*memoryRows, *labels.Set, *Recipe) {}, []string{"examples to train on, want at least 100"}},
		{"one class only", 400, func(_ *memoryRows, s *labels.Set, _ *Recipe) {
			for _, e := range s.Examples {
				e.Labels[0] = labels.Right
			}
		}, []string{`"large" has`, "right and 0 wrong answers"}},
		{"several at once", 80, func(_ *memoryRows, s *labels.Set, _ *Recipe) {
			for _, e := range s.Examples {
				e.Labels[1] = labels.Missing
			}
		}, []string{"want at least 100", `"small" has 0 right`, `"small" has not both`}},
		{"no features", 400, func(m *memoryRows, _ *labels.Set, r *Recipe) {
			r.HoldOut = 0
			m.rows, m.digests = m.rows[:397], m.digests[:397]
		}, []string{"3 lines (398, 399, 400) of the judged data have no features"}},
		{"a task twice", 400, func(m *memoryRows, _ *labels.Set, _ *Recipe) { m.digests[9] = m.digests[4] }, []string{"features row 9 is of the same task as row 4"}},
		{"NaN", 400, func(m *memoryRows, _ *labels.Set, r *Recipe) {
			r.HoldOut = 0
			m.rows[7][3] = float32(math.NaN())
		}, []string{"not finite: features row 7, column 3"}},
		{"unknown head", 400, func(_ *memoryRows, _ *labels.Set, r *Recipe) { r.Heads = []string{"medium"} }, []string{`no labels for "medium"`, `["large" "small"]`}},
		{"too many components", 400, func(_ *memoryRows, _ *labels.Set, r *Recipe) { r.PCADim = 200 }, []string{"200 principal components", "at most 20"}},
		{"bad recipe", 400, func(_ *memoryRows, _ *labels.Set, r *Recipe) { r.Keep, r.Epochs = 9, 0 }, []string{"keep is 9", "epochs is 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows, set := world(c.n, 20, 3)
			r := quick()
			c.change(rows, set, &r)
			data, err := Join(rows, set, r, JoinOptions{})
			if err == nil {
				_, err = Train(t.Context(), data, r, Options{})
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nwant %q", err, want)
				}
			}
			if err != nil && strings.Contains(err.Error(), "task 1") {
				t.Error("the message repeats a task")
			}
		})
	}
}

func TestMissingFeaturesMayBeSkipped(t *testing.T) {
	rows, set := world(400, 20, 3)
	rows.rows, rows.digests = rows.rows[:390], rows.digests[:390]
	r := quick()
	r.HoldOut = 0
	data, err := Join(rows, set, r, JoinOptions{SkipMissing: true})
	if err != nil || data.Len() != 390 || len(data.Warnings()) != 1 {
		t.Errorf("%d examples, warnings %q, %v", data.Len(), data.Warnings(), err)
	}
}

// The side that a task falls on does not depend on the order of the file, and
// every group is cut alike.
func TestSplit(t *testing.T) {
	rows, set := world(900, 20, 3)
	r := quick()
	r.HoldOut = 0
	data := join(t, rows, set, r)
	all := make([]int, data.Len())
	for i := range all {
		all[i] = i
	}
	first, second := data.split(all, 0.85, 42)
	if len(first) != 765 || len(second) != 135 {
		t.Fatalf("%d and %d rows", len(first), len(second))
	}
	groups := map[string]int{}
	side := map[features.Digest]bool{}
	for _, i := range first {
		groups[data.groups[i]]++
		side[data.digest[i]] = true
	}
	for group, n := range groups {
		if n != 255 {
			t.Errorf("group %s has %d of 300 rows", group, n)
		}
	}
	reversed := &labels.Set{Models: set.Models, Digest: set.Digest}
	for i := range set.Examples {
		reversed.Examples = append(reversed.Examples, set.Examples[len(set.Examples)-1-i])
	}
	other := join(t, rows, reversed, r)
	again, _ := other.split(all, 0.85, 42)
	for _, i := range again {
		if !side[other.digest[i]] {
			t.Fatal("the order of the file changes the split")
		}
	}
	otherSeed, _ := data.split(all, 0.85, 43)
	if cmp.Equal(first, otherSeed) {
		t.Error("the seed changes nothing")
	}
}

func TestSmallGroupsStillMakeTheShare(t *testing.T) {
	rows, set := world(300, 20, 3)
	for i := range set.Examples {
		set.Examples[i].Group = set.Examples[i].Task // a group each
	}
	r := quick()
	r.HoldOut = 0
	data := join(t, rows, set, r)
	all := make([]int, data.Len())
	for i := range all {
		all[i] = i
	}
	if first, _ := data.split(all, 0.85, 1); len(first) != 255 {
		t.Errorf("%d of 300 rows", len(first))
	}
}

func TestSaveIsWholeOrNotAtAll(t *testing.T) {
	result := trainQuick(t.Context(), t, quick(), Options{})
	parent := t.TempDir()
	dir := filepath.Join(parent, "router")
	if err := result.Save(dir + "/"); err != nil {
		t.Fatal(err)
	}
	if err := result.Save(dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("saved over a checkpoint: %v", err)
	}
	if err := CheckTarget(dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("check: %v", err)
	}
	if err := CheckTarget(filepath.Join(parent, "no", "router")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no parent: %v", err)
	}
	result.Tensors.ScalerMean[0] = float32(math.NaN())
	if err := result.Save(filepath.Join(parent, "other")); err == nil {
		t.Error("a NaN was saved")
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestReadRecordRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"text": "x", "format": `{"format":"other"}`, "shares": `{"format":"pointsman-train-1","heads":[{"score_distribution":{"shares":[0.5]}}]}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, RecordFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadRecord(dir); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := ReadRecord(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no record: %v", err)
	}
}

// The defaults are the field's; whoever compares with it relies on them.
func TestDefaultRecipe(t *testing.T) {
	want := Recipe{
		TrainShare: 0.85, Scaling: "each", PCADim: 200, Trunk: []int{256, 128}, Dropout: []float64{0.3, 0.2}, LearningRate: 0.001,
		WeightDecay: 0.0001, BatchSize: 512, Epochs: 150, Patience: 15, MinImprovement: 0.0001, Members: 10, Keep: 5, Folds: 4, Seed: 42,
	}
	if diff := cmp.Diff(want, DefaultRecipe()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := want.Validate(); err != nil {
		t.Error(err)
	}
}
