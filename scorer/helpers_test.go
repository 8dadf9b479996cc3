package scorer

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// mustLoad loads a checkpoint of testdata/checkpoints.
func mustLoad(t testing.TB, name string) *Checkpoint {
	t.Helper()
	c, err := Load(filepath.Join("testdata", "checkpoints", name))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// copyFolder copies the files of a folder to a new one.
func copyFolder(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(from))
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

func writeTestFile(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func smallManifest() Manifest {
	return Manifest{
		Encoder: "probe/small", Layers: 2, HiddenSize: 2, PCADim: 2,
		TrunkHidden: []int{2, 2}, EnsembleSize: 2, OutputNames: []string{"weak", "strong"},
	}
}

// zeroTensors returns tensors of zeros with a scale of 1.
func zeroTensors(m Manifest) *Tensors {
	t := emptyTensors(m)
	for _, s := range slots(m, t) {
		*s.values = make([]float32, s.elements())
		if s.positive {
			for i := range *s.values {
				(*s.values)[i] = 1
			}
		}
	}
	return t
}

// randomTensors returns tensors that keep the spread of what passes through:
// normal weights with variance 1/in, scales from 0.5 to 2.
func randomTensors(m Manifest, seed uint64) *Tensors {
	random := rand.New(rand.NewPCG(seed, 1))
	t := emptyTensors(m)
	for _, s := range slots(m, t) {
		values := make([]float32, s.elements())
		spread := 0.1
		if len(s.shape) == 2 {
			spread = 1 / sqrt(s.shape[1])
		}
		for i := range values {
			values[i] = float32(random.NormFloat64() * spread)
			if s.positive {
				values[i] = float32(0.5 + 1.5*random.Float64())
			}
		}
		*s.values = values
	}
	return t
}

// randomFeatures returns four or more normal features with massive activations as
// language models have them: one in a thousand 200 times larger, four at 2e4, the
// first two and the last two.
func randomFeatures(n int, seed uint64) []float32 {
	random := rand.New(rand.NewPCG(seed, 2))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(random.NormFloat64())
	}
	for range n / 1000 {
		x[random.IntN(n)] *= 200
	}
	for _, i := range []int{0, 1, n - 2, n - 1} {
		x[i] = 2e4
	}
	return x
}

// repeat repeats one member's probabilities for n members.
func repeat(n int, row ...float32) Probabilities {
	return Probabilities{Members: n, Heads: len(row), Values: slices.Repeat(row, n)}
}

func sqrt(n int) float64 { return math.Sqrt(float64(n)) }
