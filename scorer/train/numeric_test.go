package train

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/mat"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// testTable is the training rows of a small world.
func testTable(t *testing.T, n, dim int) *table {
	t.Helper()
	rows, set := world(n, dim, 5)
	r := quick()
	r.HoldOut = 0
	data := join(t, rows, set, r)
	all := make([]int, data.Len())
	for i := range all {
		all[i] = i
	}
	table, err := newTable(t.Context(), data, all, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestMomentsAndStreaming(t *testing.T) {
	cached := testTable(t, blockRows+300, 20)
	streamed := *cached
	streamed.cached, streamed.buffer = nil, make([]float32, blockRows*20)
	for _, table := range []*table{cached, &streamed} {
		s, err := table.moments(t.Context(), ScaleEach)
		if err != nil {
			t.Fatal(err)
		}
		for j := range 20 {
			// Columns are drawn with mean j and deviation 1 + j mod 5.
			if math.Abs(float64(s.mean[j])-float64(j)) > 0.6 || math.Abs(float64(s.scale[j])/float64(1+j%5)-1) > 0.12 {
				t.Errorf("column %d: mean %v, deviation %v", j, s.mean[j], s.scale[j])
			}
		}
		table.standardise(s)
	}
	first, err := principal(t.Context(), cached, 5, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := principal(t.Context(), &streamed, 5, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range first.rows.Data {
		if v != second.rows.Data[i] {
			t.Fatal("features read from the file give other components than features in memory")
		}
	}
}

func TestScaleOfAConstant(t *testing.T) {
	if positive(0, 5) != 1 || positive(1e-9, 1) != 1 || positive(1e-9, 0) != 1e-9 || positive(2, 1e3) != 2 {
		t.Error("a constant feature is scaled by rounding noise, or a small one by 1")
	}
}

func TestCommonScale(t *testing.T) {
	s, err := testTable(t, 400, 20).moments(t.Context(), ScaleCommon)
	if err != nil {
		t.Fatal(err)
	}
	// Variances 1, 4, 9, 16, 25 in equal parts: their mean is 11.
	for _, v := range s.scale {
		if v != s.scale[0] || math.Abs(float64(v)-math.Sqrt(11)) > 0.3 {
			t.Fatalf("scale %v", s.scale)
		}
	}
}

// The randomised components equal those of an exact singular value decomposition.
func TestPrincipalEqualsExact(t *testing.T) {
	table := testTable(t, 300, 30)
	s, err := table.moments(t.Context(), ScaleEach)
	if err != nil {
		t.Fatal(err)
	}
	// Other scales, so that the variances differ and the components are unique.
	for j := range s.scale {
		s.scale[j] *= float32(1 + j)
	}
	table.standardise(s)
	const n = 6
	got, err := principal(t.Context(), table, n, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	var svd mat.SVD
	if !svd.Factorize(mat.NewDense(300, 30, widen(table.cached)), mat.SVDThin) {
		t.Fatal("no decomposition")
	}
	var v mat.Dense
	svd.VTo(&v)
	for k := range n {
		want := svd.Values(nil)[k]
		if variance := want * want / 299; math.Abs(got.variances[k]/variance-1) > 1e-4 {
			t.Errorf("variance %d is %v, want %v", k, got.variances[k], variance)
		}
		dot, norm := 0.0, 0.0
		for j := range 30 {
			x := float64(got.rows.Data[k*30+j])
			dot += x * v.At(j, k)
			norm += x * x
		}
		if math.Abs(math.Abs(dot)-1) > 1e-3 || math.Abs(norm-1) > 1e-5 {
			t.Errorf("component %d: |cosine| %v, norm %v", k, math.Abs(dot), norm)
		}
	}
	if share := got.share(); share <= 0.5 || share > 1 {
		t.Errorf("share of variance %v", share)
	}
}

// The gradient equals finite differences of the loss, missing labels included.
func TestGradient(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	n := newNetwork(3, []int{5, 4}, 2, []float64{0, 0}, rng)
	x := newGeneral(6, 3)
	for i := range x.Data {
		x.Data[i] = float32(rng.NormFloat64())
	}
	want := []labels.Label{labels.Right, labels.Wrong, labels.Missing, labels.Right, labels.Wrong, labels.Missing, labels.Right, labels.Right, labels.Wrong, labels.Wrong, labels.Missing, labels.Missing}
	p := n.newPass(6)
	mean := func() float64 {
		sum, count := loss(n.forward(x, p, nil), want, nil)
		return sum / float64(count)
	}
	loss(n.forward(x, p, nil), want, p.slopes[2].Data)
	n.backward(x, p)
	gradient := append([]float32(nil), n.gradient...)
	const step = 1e-2
	for i := range n.parameters {
		was := n.parameters[i]
		n.parameters[i] = was + step
		above := mean()
		n.parameters[i] = was - step
		below := mean()
		n.parameters[i] = was
		if numeric := (above - below) / (2 * step); math.Abs(numeric-float64(gradient[i])) > 2e-3 {
			t.Errorf("parameter %d: gradient %v, differences %v", i, gradient[i], numeric)
		}
	}
}

func TestMissingLabelsHaveNoLoss(t *testing.T) {
	logits := blas32.General{Rows: 2, Cols: 2, Stride: 2, Data: []float32{0, 100, -100, 0}}
	slopes := make([]float32, 4)
	sum, count := loss(logits, []labels.Label{labels.Right, labels.Missing, labels.Missing, labels.Wrong}, slopes)
	if count != 2 || math.Abs(sum-2*math.Ln2) > 1e-12 {
		t.Errorf("loss %v of %d labels", sum, count)
	}
	if slopes[1] != 0 || slopes[2] != 0 || slopes[0] != -0.25 || slopes[3] != 0.25 {
		t.Errorf("slopes %v", slopes)
	}
}

func TestLossOfAHugeLogitIsFinite(t *testing.T) {
	for _, z := range []float64{-1e4, 1e4} {
		for _, target := range []float64{0, 1} {
			if v := crossEntropy(z, target); math.IsInf(v, 0) || math.IsNaN(v) || v < 0 {
				t.Errorf("loss of %v against %v is %v", z, target, v)
			}
		}
	}
}

// Dropout keeps the mean: what is left is scaled up.
func TestDropoutKeepsTheMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	n := newNetwork(1, []int{4000}, 1, []float64{0.3}, rng)
	for i := range n.layers[0].bias {
		n.layers[0].bias[i], n.layers[0].weight.Data[i] = 1, 0
	}
	p := n.newPass(1)
	n.forward(newGeneral(1, 1), p, rng)
	sum, zeros := 0.0, 0
	for _, v := range p.outputs[0].Data {
		sum += float64(v)
		if v == 0 {
			zeros++
		}
	}
	if math.Abs(sum/4000-1) > 0.05 || math.Abs(float64(zeros)/4000-0.3) > 0.03 {
		t.Errorf("mean %v, dropped %v", sum/4000, float64(zeros)/4000)
	}
}

// Two steps of Adam by hand. Step 1: m = 0.1g, v = 0.001g², and both corrections
// undo that: a step of rate*g/|g|. The gradient is 2 + 0.1*1 with the penalty.
func TestAdamByHand(t *testing.T) {
	a := newAdam(1, 0.01, 0.1)
	x := []float32{1}
	a.update(x, []float32{2})
	if math.Abs(float64(x[0])-0.99) > 1e-6 {
		t.Errorf("after one step %v", x[0])
	}
	a.update(x, []float32{-1})
	g1, g2 := 2.1, -1+0.1*0.99
	m := (0.9*0.1*g1 + 0.1*g2) / (1 - 0.81)
	v := (0.999*0.001*g1*g1 + 0.001*g2*g2) / (1 - 0.998001)
	if want := 0.99 - 0.01*m/math.Sqrt(v); math.Abs(float64(x[0])-want) > 1e-6 {
		t.Errorf("after two steps %v, want %v", x[0], want)
	}
}

// Logits that are too extreme and shifted are put right, missing labels passed
// over, and folding the correction into the weights does the same.
func TestCalibrateRecovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	const n, temperature, bias = 20000, 2.5, -0.7
	logits := [][]float64{make([]float64, n)}
	want := make([]labels.Label, n)
	for i := range n {
		z := rng.NormFloat64() * 3
		logits[0][i] = z
		want[i] = labels.Wrong
		if rng.Float64() < sigmoid(z/temperature+bias) {
			want[i] = labels.Right
		}
		if i%7 == 0 {
			want[i] = labels.Missing
			logits[0][i] = 1000
		}
	}
	scale, b := calibrate(logits, want)
	if math.Abs(1/scale-temperature) > 0.1 || math.Abs(b-bias) > 0.06 {
		t.Errorf("temperature %v, bias %v", 1/scale, b)
	}

	m := scorer.Member{{Weight: []float32{1, 2, 3, 4}, Bias: []float32{5, 6}}}
	fold(m, 1, 0.5, 10)
	if w := m[0].Weight; w[0] != 1 || w[1] != 2 || w[2] != 1.5 || w[3] != 2 || m[0].Bias[0] != 5 || m[0].Bias[1] != 13 {
		t.Errorf("folded %+v", m[0])
	}
}

// A head that says nothing, or is always right, must not blow up.
func TestCalibrateDegenerate(t *testing.T) {
	for name, want := range map[string]labels.Label{"always right": labels.Right, "always wrong": labels.Wrong} {
		scale, bias := calibrate([][]float64{{1, 2, 3}, {0, 0, 0}}, []labels.Label{want, want, want})
		if math.IsNaN(scale) || math.IsInf(scale, 0) || scale <= 0 || math.IsNaN(bias) || math.IsInf(bias, 0) {
			t.Errorf("%s: scale %v, bias %v", name, scale, bias)
		}
	}
}

// Layer 1 holds the signal in one direction, layer 0 noise in all.
func TestLayers(t *testing.T) {
	rows, set := world(600, 20, 5)
	for i, e := range set.Examples {
		for j := range 10 {
			rows.rows[i][10+j] = float32(e.Labels[0]) * float32(j+1)
		}
	}
	r := quick()
	r.HoldOut = 0
	layers, err := Layers(t.Context(), join(t, rows, set, r), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(layers) != 2 || layers[1].Fisher[0] < 100*layers[0].Fisher[0] || layers[1].EffectiveDimension > 1.5 || layers[0].EffectiveDimension < 3 {
		t.Errorf("%+v", layers)
	}
}
