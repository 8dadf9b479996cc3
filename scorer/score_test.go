package scorer

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const float32Max = math.MaxFloat32

func TestStandardiseAndProject(t *testing.T) {
	transform := &Tensors{
		ScalerMean: []float32{1, 2, 3}, ScalerScale: []float32{2, 2, 4},
		PCAMean:       []float32{0.5, 1, 1.5},
		PCAComponents: []float32{1, 10, 100, -2, 0.5, 4},
	}
	centred, projected := make([]float64, 3), make([]float32, 2)
	if err := transform.standardise(centred, []float32{3, 6, 11}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float64{0.5, 1, 0.5}, centred); diff != "" {
		t.Errorf("standardised (1,2,2), then centred (-want +got):\n%s", diff)
	}
	matVec(projected, transform.PCAComponents, centred)
	if diff := cmp.Diff([]float32{60.5, 1.5}, projected); diff != "" {
		t.Errorf("projected (-want +got):\n%s", diff)
	}
}

// Each step that can leave float32 is refused where it happens, and the message
// says where.
func TestScoreRefusesWhatIsNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	tests := []struct {
		name     string
		features []float32
		change   func(*Tensors)
		want     string
	}{
		{"NaN feature", []float32{0, nan, 0, 0}, nil, "feature 1"},
		{"infinite feature", []float32{0, 0, inf, 0}, nil, "feature 2"},
		{"difference to the mean", []float32{float32Max, 0, 0, 0}, func(t *Tensors) { t.ScalerMean[0] = -float32Max }, "feature 0 once standardised"},
		{"quotient by the scale", []float32{0, 0, 0, 1}, func(t *Tensors) { t.ScalerScale[3] = 1e-40 }, "feature 3 once standardised"},
		{"difference to the centre", []float32{0, float32Max, 0, 0}, func(t *Tensors) { t.PCAMean[1] = -float32Max }, "feature 1 once standardised"},
		{"projection", []float32{float32Max, float32Max, 0, 0}, func(t *Tensors) { t.PCAComponents[4], t.PCAComponents[5] = 2, 2 }, "principal component 1"},
		{"hidden layer", []float32{float32Max, 0, 0, 0}, func(t *Tensors) {
			t.PCAComponents[0] = 1
			t.Members[1][0].Weight[2] = 2
		}, "member 1: not finite: linear1, output 1"},
		{"bias", []float32{0, 0, 0, 0}, func(t *Tensors) {
			t.Members[0][1].Bias[0] = float32Max
			t.Members[0][2].Weight[0], t.Members[0][2].Bias[0] = 1, float32Max
		}, "member 0: not finite: output, output 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := smallManifest()
			tensors := zeroTensors(m)
			if tt.change != nil {
				tt.change(tensors)
			}
			_, err := newCheckpoint(m, tensors, "").Score(tt.features)
			if !errors.Is(err, ErrNonFinite) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %v naming %q", err, ErrNonFinite, tt.want)
			}
		})
	}
}

// A large negative that ReLU would hide is still an overflow.
func TestReLUDoesNotHideOverflow(t *testing.T) {
	m := smallManifest()
	tensors := zeroTensors(m)
	tensors.PCAComponents[0] = 1
	tensors.Members[0][0].Weight[0] = float32(math.NaN())
	_, err := newCheckpoint(m, tensors, "").Score([]float32{1, 0, 0, 0})
	if !errors.Is(err, ErrNonFinite) {
		t.Errorf("error %v, want %v", err, ErrNonFinite)
	}
}

func TestScoreChecksTheNumberOfFeatures(t *testing.T) {
	c := mustLoad(t, "worked")
	for _, n := range []int{0, 3, 5} {
		_, err := c.Score(make([]float32, n))
		if !errors.Is(err, ErrShape) || !strings.Contains(err.Error(), fmt.Sprintf("%d features", n)) {
			t.Errorf("%d features: error %v, want %v", n, err, ErrShape)
		}
	}
}

func TestDense(t *testing.T) {
	layer := Dense{Weight: []float32{1, 2, -3, 4}, Bias: []float32{1, 1}}
	for name, tt := range map[string]struct {
		relu bool
		want []float32
	}{
		"with ReLU": {true, []float32{1, 0}},
		"without":   {false, []float32{1, -9}},
	} {
		t.Run(name, func(t *testing.T) {
			got := make([]float32, 2)
			layer.forward(got, []float64{2, -1}, tt.relu)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSigmoid(t *testing.T) {
	for logit, want := range map[float32]float32{
		-float32Max: 0, -1000: 0, 0: 0.5, 1000: 1, float32Max: 1,
		1.0986123: 0.75, -1.0986123: 0.25, 8: 0.99966466, -8: 0.00033535,
	} {
		if got := sigmoid(logit); math.Abs(float64(got-want)) > 1e-7 {
			t.Errorf("sigmoid(%v) = %v, want %v", logit, got, want)
		}
	}
}

// Worked example A of the format's description, from the feature vector on.
func TestWorkedExampleA(t *testing.T) {
	m := smallManifest()
	const ln3 = 1.0986123
	tensors := &Tensors{
		ScalerMean: []float32{1, 3, 5, 7}, ScalerScale: []float32{0.5, 0.5, 0.25, 0.25},
		PCAMean:       []float32{0, 0, 1, 1},
		PCAComponents: []float32{1, 0, -1, 0.5, 0, 2, 0, -1},
		Members: []Member{
			{
				{[]float32{2, 1, -1, -1}, []float32{0, 0.5}},
				{[]float32{1, 5, 0.5, -3}, []float32{-1, 0}},
				{[]float32{1, -1, 1, -1}, []float32{0, ln3}},
			},
			{
				{[]float32{0, 1, 1, 0}, []float32{0, 0}},
				{[]float32{1, 0, 0, 1}, []float32{0, 0}},
				{[]float32{1, -2, 1, -2}, []float32{-ln3, ln3}},
			},
		},
	}
	c := newCheckpoint(m, tensors, "")
	p, err := c.Score([]float32{1.5, 3.5, 5.5, 7.5})
	if err != nil {
		t.Fatal(err)
	}
	want := Probabilities{Members: 2, Heads: 2, Values: []float32{0.5, 0.75, 0.25, 0.75}}
	if diff := cmp.Diff(want, p, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
		t.Errorf("probabilities (-want +got):\n%s", diff)
	}
	for head, mean := range []float64{0.375, 0.75} {
		checkNear(t, "mean", p.Mean(head), mean, 1e-6)
	}
}

// Worked example B: a trunk of the original shape, driven by biases alone.
func TestWorkedExampleB(t *testing.T) {
	m := Manifest{
		Encoder: "probe/b", Layers: 2, HiddenSize: 2, PCADim: 200, TrunkHidden: []int{256, 128}, EnsembleSize: 5,
		OutputNames: []string{"qwen-122b", "nemotron-3-super", "opus-4.7", "gpt-5.5"},
	}
	tensors := zeroTensors(m)
	for i, member := range tensors.Members {
		member[0].Bias[0] = float32(i + 1)
		member[1].Weight[0] = 1
		for head, w := range []float32{1, -2, 3, -4} {
			member[2].Weight[head*128] = w
		}
	}
	p, err := newCheckpoint(m, tensors, "").Score([]float32{3, -1, 4, 1e30})
	if err != nil {
		t.Fatal(err)
	}
	for head, want := range []float64{0.90795010, 0.028008502, 0.98999435, 0.0036655639} {
		checkNear(t, "mean", p.Mean(head), want, 1e-6)
	}
	for member, want := range []float64{0.7310586, 0.8807970, 0.9525741, 0.9820138, 0.9933072} {
		checkNear(t, "member", p.At(member, 0), want, 1e-6)
	}
}

func TestOutputBiasAloneGivesTheLogits(t *testing.T) {
	for name, tt := range map[string]struct{ bias, want []float32 }{
		"all zero": {[]float32{0, 0}, []float32{0.5, 0.5}},
		"8 and 2":  {[]float32{8, 2}, []float32{0.99966466, 0.88079703}},
		"negative": {[]float32{-2, -8}, []float32{0.11920292, 0.00033535}},
	} {
		t.Run(name, func(t *testing.T) {
			m := smallManifest()
			tensors := zeroTensors(m)
			for _, member := range tensors.Members {
				copy(member[2].Bias, tt.bias)
			}
			p, err := newCheckpoint(m, tensors, "").Score([]float32{1, 2, 3, 4})
			if err != nil {
				t.Fatal(err)
			}
			for head, want := range tt.want {
				checkNear(t, "mean", p.Mean(head), float64(want), 1e-6)
			}
		})
	}
}

// The promise of the format: member probabilities within 1e-5 of an exact
// evaluation, massive activations included. These are much the same from layer to
// layer, so the first two are made to cancel the last two in every component: a
// sum in float32 would lose in between what is small. What is left gives moderate
// logits; a saturated sigmoid would hide any error.
func TestScoreIsAccurateWithMassiveActivations(t *testing.T) {
	for _, layers := range []int{1, 4, 9} {
		t.Run(fmt.Sprintf("%d layers", layers), func(t *testing.T) {
			m := realManifest(layers, 4096)
			tensors := randomTensors(m, 7)
			cancelEnds(m, tensors)
			features := randomFeatures(m.FeatureDim(), 8)
			p, err := newCheckpoint(m, tensors, "").Score(features)
			if err != nil {
				t.Fatal(err)
			}
			worst, moderate := 0.0, 0
			for i, want := range exactScore(tensors, features) {
				worst = max(worst, math.Abs(float64(p.Values[i])-want))
				if want > 0.05 && want < 0.95 {
					moderate++
				}
			}
			t.Logf("worst error %.2g", worst)
			if worst > 1e-5 {
				t.Errorf("worst error %v, want at most 1e-5", worst)
			}
			if moderate < len(p.Values)/3 {
				t.Errorf("%d of %d probabilities are moderate: the test has become blind", moderate, len(p.Values))
			}
		})
	}
}

// cancelEnds gives the last two features the parameters of the first two and the
// opposite weight in every component.
func cancelEnds(m Manifest, t *Tensors) {
	n := m.FeatureDim()
	for i, j := range map[int]int{0: n - 1, 1: n - 2} {
		for _, vector := range [][]float32{t.ScalerMean, t.ScalerScale, t.PCAMean} {
			vector[j] = vector[i]
		}
		for k := range m.PCADim {
			t.PCAComponents[k*n+j] = -t.PCAComponents[k*n+i]
		}
	}
}

// exactScore evaluates the format's formulas in float64 throughout, which is
// exact beside the 1e-5 in question, in the plainest way.
func exactScore(t *Tensors, features []float32) []float64 {
	x := make([]float64, len(features))
	for i, v := range features {
		x[i] = (float64(v)-float64(t.ScalerMean[i]))/float64(t.ScalerScale[i]) - float64(t.PCAMean[i])
	}
	multiply := func(weights []float32, x []float64) []float64 {
		y := make([]float64, len(weights)/len(x))
		for i, w := range weights {
			y[i/len(x)] += float64(w) * x[i%len(x)]
		}
		return y
	}
	projected := multiply(t.PCAComponents, x)
	var probabilities []float64
	for _, member := range t.Members {
		x := projected
		for i, layer := range member {
			x = multiply(layer.Weight, x)
			for j, b := range layer.Bias {
				x[j] += float64(b)
				if i < len(member)-1 {
					x[j] = max(x[j], 0)
				}
			}
		}
		for _, logit := range x {
			probabilities = append(probabilities, 1/(1+math.Exp(-logit)))
		}
	}
	return probabilities
}

func TestScoreIsSafeForConcurrentUse(t *testing.T) {
	c := mustLoad(t, "three-layer-trunk")
	inputs := make([][]float32, 8)
	want := make([]Probabilities, len(inputs))
	for i := range inputs {
		inputs[i] = randomFeatures(c.manifest.FeatureDim(), uint64(i))
		var err error
		if want[i], err = c.Score(inputs[i]); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i, x := range inputs {
		wg.Go(func() {
			for range 50 {
				got, err := c.Score(x)
				if err != nil {
					t.Error(err)
					return
				}
				if !cmp.Equal(got, want[i]) {
					t.Error("a concurrent Score differs")
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestScoreLeavesItsInputAndOwnsItsResult(t *testing.T) {
	c := mustLoad(t, "worked")
	x := []float32{1.5, 3.5, 5.5, 7.5}
	first, err := c.Score(x)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float32{1.5, 3.5, 5.5, 7.5}, x); diff != "" {
		t.Errorf("features changed (-before +after):\n%s", diff)
	}
	before := first.At(0, 0)
	if _, err := c.Score([]float32{9, 9, 9, 9}); err != nil {
		t.Fatal(err)
	}
	if first.At(0, 0) != before {
		t.Error("a later Score changed an earlier result")
	}
}

func TestScoreAllocatesOnlyItsResult(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector a pool drops entries at random")
	}
	c := mustLoad(t, "three-layer-trunk")
	x := randomFeatures(c.manifest.FeatureDim(), 1)
	n := testing.AllocsPerRun(100, func() {
		if _, err := c.Score(x); err != nil {
			t.Fatal(err)
		}
	})
	if n > 1 {
		t.Errorf("%v allocations, want 1", n)
	}
}

// realManifest has the sizes of the original checkpoint for an encoder with the
// given layers and width.
func realManifest(layers, width int) Manifest {
	return Manifest{
		Encoder: "probe/real", Layers: layers, HiddenSize: width, PCADim: 200, TrunkHidden: []int{256, 128}, EnsembleSize: 5,
		OutputNames: []string{"a", "b", "c", "d"},
	}
}

// BenchmarkScore scores decisions alone, with one processor and with all, and eight at a time.
func BenchmarkScore(b *testing.B) {
	for _, m := range []Manifest{realManifest(1, 2048), realManifest(4, 4096), realManifest(40, 2048), realManifest(36, 4096)} {
		c := newCheckpoint(m, randomTensors(m, 3), "")
		features := make([][]float32, maxBatch)
		for i := range features {
			features[i] = randomFeatures(m.FeatureDim(), uint64(i))
		}
		for _, bench := range []struct{ callers, processors int }{{1, 1}, {1, runtime.NumCPU()}, {maxBatch, runtime.NumCPU()}} {
			b.Run(fmt.Sprintf("%dx%d/callers=%d/processors=%d", m.Layers, m.HiddenSize, bench.callers, bench.processors), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(bench.processors))
				b.ReportAllocs()
				for b.Loop() {
					var wg sync.WaitGroup
					for i := range bench.callers {
						wg.Go(func() {
							if _, err := c.Score(features[i]); err != nil {
								b.Error(err)
							}
						})
					}
					wg.Wait()
				}
			})
		}
	}
}
