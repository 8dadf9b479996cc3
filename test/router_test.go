package test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pointsman-dev/pointsman/probe/vllmsim"
	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/eval"
	"github.com/pointsman-dev/pointsman/scorer/features"
	"github.com/pointsman-dev/pointsman/scorer/labels"
	"github.com/pointsman-dev/pointsman/scorer/train"
)

// A router that was trained on stored features tells hard tasks from easy ones,
// and serves exactly the probabilities that its evaluation saw.
func TestServedProbabilitiesEqualEvaluated(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	words := []string{"add", "name", "list", "prove", "derive", "bound"} // the later, the harder
	set := &labels.Set{Models: []string{"large", "small"}, Digest: "sha256:made-up"}
	path := filepath.Join(t.TempDir(), "features.safetensors")
	w, err := features.Create(path, features.Header{Encoder: encoder, Layers: layers, HiddenSize: hiddenSize})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 600 {
		var text []string
		hard := 0.0
		for range 6 {
			at := rng.IntN(len(words))
			hard += float64(at) / 15
			text = append(text, words[at])
		}
		task := fmt.Sprint(strings.Join(text, " "), " case ", i)
		right := func(p float64) labels.Label {
			if rng.Float64() < p {
				return labels.Right
			}
			return labels.Wrong
		}
		e := labels.Example{Task: task, Digest: features.DigestOf(task), Line: i + 1, Labels: []labels.Label{right(1.2 - hard/2), right(1.3 - hard)}}
		set.Examples = append(set.Examples, e)
		if err := w.Append(e.Digest, vllmsim.Features(task, layers, hiddenSize, vllmsim.BF16)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	file, err := features.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	r := train.DefaultRecipe()
	r.HoldOut, r.PCADim, r.Trunk, r.Dropout, r.Members, r.Keep, r.Epochs, r.BatchSize, r.LearningRate = 51, 16, []int{16}, []float64{0}, 3, 2, 40, 64, 3e-3
	data, err := train.Join(file, set, r, train.JoinOptions{})
	if err != nil {
		t.Fatal(err)
	}
	result, err := train.Train(t.Context(), data, r, train.Options{})
	if err != nil {
		t.Fatal(err)
	}
	router := filepath.Join(t.TempDir(), "router")
	if err := result.Save(router); err != nil {
		t.Fatal(err)
	}
	checkpoint, err := scorer.Load(router)
	if err != nil {
		t.Fatal(err)
	}
	held := func(e labels.Example) bool { return int(e.Digest[0]) < r.HoldOut }
	sample, err := eval.Score(t.Context(), checkpoint, file, set, eval.Roles{StrongCost: 1, WeakCost: 0.25}, held)
	if err != nil {
		t.Fatal(err)
	}
	if auc := eval.AUC(sample.Probabilities[1], sample.Labels[1]); auc < 0.6 {
		t.Errorf("AUC of the weak head on held-out tasks is %.3f", auc)
	}

	world := start(t, setup{checkpoint: router, heads: [2]string{"large", "small"}})
	row := 0
	for _, e := range set.Examples {
		if !held(e) {
			continue
		}
		if row == 20 {
			break
		}
		answer := world.decide(t, task(e.Task))
		for h, score := range answer.GetScores() {
			if got, want := score.GetProbability(), sample.Probabilities[h][row]; math.Abs(got-want) > 1e-5 {
				t.Errorf("task %d: %s is served as %v, was evaluated as %v", e.Line, score.GetHead(), got, want)
			}
		}
		if len(answer.GetScores()) != 2 {
			t.Fatalf("answer %v", answer)
		}
		row++
	}
}
