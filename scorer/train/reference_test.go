package train

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/eval"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// notInstalled is the exit code of the reference without scikit-learn.
const notInstalled = 77

type referencePart struct {
	Features [][]float32 `json:"features"`
	Labels   [][]int     `json:"labels"`
}

// The trainer agrees with scikit-learn on the same rows and the same recipe, less
// dropout, which scikit-learn has not.
func TestAgreesWithScikitLearn(t *testing.T) {
	if raceEnabled {
		t.Skip("takes minutes under the race detector; the other tests train in parallel too")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	rows, set := world(4000, 30, 8)
	for _, e := range set.Examples {
		for h, l := range e.Labels {
			if l == labels.Missing { // scikit-learn has no missing labels either
				e.Labels[h] = labels.Right
			}
		}
	}
	r := DefaultRecipe()
	r.HoldOut, r.PCADim, r.Trunk, r.Dropout, r.BatchSize, r.Members, r.Keep, r.Epochs = 51, 24, []int{64, 32}, []float64{0, 0}, 256, 4, 3, 40
	data := join(t, rows, set, r)
	result, err := Train(t.Context(), data, r, Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	dir := newDir(t)
	if err := result.Save(dir); err != nil {
		t.Fatal(err)
	}
	checkpoint, err := scorer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	test, err := eval.Score(t.Context(), checkpoint, rows, set, eval.Roles{}, func(e labels.Example) bool { return int(e.Digest[0]) < r.HoldOut })
	if err != nil {
		t.Fatal(err)
	}

	all := make([]int, data.Len())
	for i := range all {
		all[i] = i
	}
	trainRows, validationRows := data.split(all, r.TrainShare, r.Seed)
	input := map[string]any{"recipe": r, "train": partOf(data, rows, trainRows), "validation": partOf(data, rows, validationRows), "test": testPart(rows, set, r.HoldOut)}
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "data.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "reference.py"), path)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == notInstalled {
		t.Skip("scikit-learn is not installed")
	} else if err != nil {
		t.Fatal(err)
	}
	var reference struct {
		AUC      []float64 `json:"auc"`
		Variance float64   `json:"variance"`
		Losses   []float64 `json:"validation_loss"`
	}
	if err := json.Unmarshal(out, &reference); err != nil {
		t.Fatal(err)
	}
	for h, name := range test.Heads {
		got := eval.AUC(test.Probabilities[h], test.Labels[h])
		t.Logf("AUC of %s: %.4f, scikit-learn %.4f", name, got, reference.AUC[h])
		if math.Abs(got-reference.AUC[h]) > 0.01 {
			t.Errorf("AUC of %s is %.4f, scikit-learn's %.4f", name, got, reference.AUC[h])
		}
	}
	if math.Abs(result.Record.Variance-reference.Variance) > 0.005 {
		t.Errorf("the components hold %.4f of the variance, scikit-learn's %.4f", result.Record.Variance, reference.Variance)
	}
}

func partOf(d *Data, m *memoryRows, rows []int) referencePart {
	var p referencePart
	for _, i := range rows {
		p.Features = append(p.Features, m.rows[d.source[i]])
		var row []int
		for h := range d.heads {
			row = append(row, int(d.label(i, h)-labels.Wrong))
		}
		p.Labels = append(p.Labels, row)
	}
	return p
}

func testPart(m *memoryRows, set *labels.Set, holdOut int) referencePart {
	var p referencePart
	for i, e := range set.Examples {
		if int(e.Digest[0]) >= holdOut {
			continue
		}
		p.Features = append(p.Features, m.rows[i])
		var row []int
		for _, l := range e.Labels {
			row = append(row, int(l-labels.Wrong))
		}
		p.Labels = append(p.Labels, row)
	}
	return p
}
