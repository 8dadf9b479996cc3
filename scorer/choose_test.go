package scorer

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// twoTier lists a strong candidate of head 1, then a weak one of head 0.
func twoTier(weakCost, strongCost float64) []Candidate {
	return []Candidate{{Head: 1, Cost: strongCost}, {Head: 0, Cost: weakCost}}
}

func TestChooseByQualityWeight(t *testing.T) {
	const strong, weak = 0, 1
	tests := []struct {
		name                 string
		w                    float64
		weakCost, strongCost float64
		pWeak, pStrong       float32
		want                 int
	}{
		{"only cost counts", 0, 1, 10, 0, 1, weak},
		{"only cost counts, strong cheaper", 0, 10, 1, 1, 0, strong},
		{"equal costs tie", 0, 3, 3, 0, 1, weak},
		{"only quality counts, weak better", 1, 100, 1, 0.8, 0.6, weak},
		{"only quality counts, strong better", 1, 100, 1, 0.4, 0.6, strong},
		{"only quality counts, tie", 1, 100, 1, 0.6, 0.6, weak},
		{"half never reaches the dearer", 0.5, 0, 1, 0.4, 0.8, weak},
		{"strong is worth it", 0.9, 0, 1, 0.4, 0.8, strong},
		{"worked example, 0", 0, 0.25, 1, 0.375, 0.75, weak},
		{"worked example, 0.5", 0.5, 0.25, 1, 0.375, 0.75, weak},
		{"worked example, 0.7", 0.7, 0.25, 1, 0.375, 0.75, weak},
		{"worked example, below break-even", 8.0/11 - 1e-6, 0.25, 1, 0.375, 0.75, weak},
		{"worked example, above break-even", 8.0/11 + 1e-6, 0.25, 1, 0.375, 0.75, strong},
		{"worked example, 0.75", 0.75, 0.25, 1, 0.375, 0.75, strong},
		{"worked example, 1", 1, 0.25, 1, 0.375, 0.75, strong},
		{"worked example, costs swapped", 0.75, 1, 0.25, 0.375, 0.75, strong},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Choose(repeat(3, tt.pWeak, tt.pStrong), twoTier(tt.weakCost, tt.strongCost), QualityWeight(tt.w))
			if err != nil {
				t.Fatal(err)
			}
			if c.Index != tt.want {
				t.Errorf("candidate %d, want %d", c.Index, tt.want)
			}
		})
	}
}

func TestChooseReportsItsScores(t *testing.T) {
	p := Probabilities{Members: 2, Heads: 2, Values: []float32{0.5, 0.75, 0.25, 0.75}}
	stddev := math.Sqrt(2) / 8 // of 0.5 and 0.25
	want := Choice{
		Index: 0, Margin: 0.03125,
		Scores: []CandidateScore{
			{Probability: 0.75, Stddev: new(0.0), NormalizedCost: 1, Utility: 0.3125},
			{Probability: 0.375, Stddev: &stddev, NormalizedCost: 0, Utility: 0.28125},
		},
	}
	got, err := Choose(p, twoTier(0.25, 1), QualityWeight(0.75))
	if err != nil {
		t.Fatal(err)
	}
	options := cmp.Options{cmpopts.EquateApprox(0, 1e-12), cmpopts.IgnoreFields(Choice{}, "Confidence")}
	if diff := cmp.Diff(want, got, options); diff != "" {
		t.Errorf("quality weight (-want +got):\n%s", diff)
	}

	want.Margin = 0.125
	want.Index = 1
	want.Scores[0].Utility, want.Scores[1].Utility = 0.75, 0.375
	if got, err = Choose(p, twoTier(0.25, 1), Tolerance(0.5)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, options); diff != "" {
		t.Errorf("tolerance (-want +got):\n%s", diff)
	}
}

func TestOneMemberHasNoSpreadAndNoConfidence(t *testing.T) {
	for _, tradeOff := range []TradeOff{QualityWeight(0.75), Tolerance(0.1)} {
		c, err := Choose(repeat(1, 0.4, 0.8), twoTier(0, 1), tradeOff)
		if err != nil {
			t.Fatal(err)
		}
		if c.Confidence != nil || c.Scores[0].Stddev != nil {
			t.Errorf("%v: confidence %v, deviation %v, want none", tradeOff, c.Confidence, c.Scores[0].Stddev)
		}
	}
}

// Only the heads of the candidates count.
func TestChooseIgnoresOtherHeads(t *testing.T) {
	candidates := []Candidate{{Head: 2, Cost: 0}, {Head: 1, Cost: 0}}
	for _, others := range []float32{0.01, 0.99} {
		c, err := Choose(repeat(2, others, 0.7, 0.4, 1-others), candidates, QualityWeight(1))
		if err != nil {
			t.Fatal(err)
		}
		if c.Index != 1 {
			t.Errorf("with other heads at %v: candidate %d, want 1", others, c.Index)
		}
	}
}

func TestChooseAmongMany(t *testing.T) {
	tests := []struct {
		name     string
		row      []float32
		costs    []float64
		tradeOff TradeOff
		want     int
		margin   float64
	}{
		{"middle cost wins by utility", []float32{0.9, 0.85, 0.3}, []float64{10, 4, 0}, QualityWeight(0.75), 1, 0.1125},
		{"utility ties go to the last", []float32{0.5, 0.5, 0.5}, []float64{1, 1, 1}, QualityWeight(0.6), 2, 0},
		{"cheapest within tolerance", []float32{0.9, 0.8, 0.75}, []float64{10, 4, 0}, Tolerance(0.125), 1, 0.025},
		{"none within tolerance but the best", []float32{0.5, 0.9, 0.6}, []float64{1, 10, 4}, Tolerance(0.2), 1, 0.1},
		{"a cheap one outside, a dear one above", []float32{0.9, 0.8, 0.4}, []float64{10, 4, 0}, Tolerance(0.3), 1, 0.2},
		{"equal costs go to the last", []float32{0.9, 0.8, 0.85}, []float64{1, 1, 1}, Tolerance(0.2), 2, 0.15},
		{"edge of the tolerance is within", []float32{0.75, 0.5}, []float64{1, 0}, Tolerance(0.25), 1, 0},
		{"tolerance 0, equal probabilities", []float32{0.5, 0.5, 0.5}, []float64{2, 1, 2}, Tolerance(0), 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			candidates := make([]Candidate, len(tt.costs))
			for i, cost := range tt.costs {
				candidates[i] = Candidate{Head: i, Cost: cost}
			}
			c, err := Choose(repeat(2, tt.row...), candidates, tt.tradeOff)
			if err != nil {
				t.Fatal(err)
			}
			if c.Index != tt.want {
				t.Fatalf("candidate %d, want %d", c.Index, tt.want)
			}
			checkNear(t, "margin", c.Margin, tt.margin, 1e-6)
		})
	}
}

// With two candidates a tolerance of t is a quality weight of 1/(1+t), on the
// same scale once its margin is divided by the weight.
func TestToleranceIsAQualityWeightForTwo(t *testing.T) {
	for _, tolerance := range []float64{0, 0.1, 0.25, 0.9} {
		for n := range 400 {
			pWeak, pStrong := float32(n%20)/19, float32(n/20)/19
			p := Probabilities{Members: 3, Heads: 2, Values: []float32{pWeak, pStrong, pWeak / 2, pStrong, pWeak, pStrong / 3}}
			byTolerance, err := Choose(p, twoTier(0.25, 1), Tolerance(tolerance))
			if err != nil {
				t.Fatal(err)
			}
			w := 1 / (1 + tolerance)
			byWeight, err := Choose(p, twoTier(0.25, 1), QualityWeight(w))
			if err != nil {
				t.Fatal(err)
			}
			if byTolerance.Margin < 1e-9 {
				continue // rounding may tip it
			}
			if byTolerance.Index != byWeight.Index {
				t.Errorf("tolerance %v, %v and %v: candidate %d, by weight %d", tolerance, pWeak, pStrong, byTolerance.Index, byWeight.Index)
				continue
			}
			checkNear(t, "margin", byTolerance.Margin, byWeight.Margin/w, 1e-9)
			checkNear(t, "confidence", *byTolerance.Confidence, *byWeight.Confidence, 1e-6)
		}
	}
}

// The contest is found once, from the ensemble's mean, and put to every member.
// Candidate 1 is chosen, 2 is its closest rival on the mean; member 1 alone would
// have found 0 the closer one, and its margin is taken against 2 all the same.
func TestConfidenceKeepsTheRivalOfTheMean(t *testing.T) {
	p := Probabilities{Members: 2, Heads: 3, Values: []float32{
		0.0, 0.75, 0.5,
		0.5, 0.875, 0.375,
	}}
	candidates := []Candidate{{Head: 0}, {Head: 1}, {Head: 2}}
	for _, tradeOff := range []TradeOff{QualityWeight(1), Tolerance(0)} {
		c, err := Choose(p, candidates, tradeOff)
		if err != nil {
			t.Fatal(err)
		}
		if c.Index != 1 {
			t.Fatalf("%v: candidate %d, want 1", tradeOff, c.Index)
		}
		checkNear(t, "margin", c.Margin, 0.375, 1e-12)
		checkNear(t, "confidence", *c.Confidence, confidence([]float64{0.25, 0.5}), 1e-12)
	}
}

func TestChooseRefuses(t *testing.T) {
	good, pair := repeat(2, 0.4, 0.8), twoTier(0, 1)
	tests := []struct {
		name       string
		p          Probabilities
		candidates []Candidate
		tradeOff   TradeOff
		want       error
		part       string
	}{
		{"no trade-off", good, pair, TradeOff{}, ErrNoTradeOff, "no trade-off"},
		{"NaN weight", good, pair, QualityWeight(math.NaN()), ErrRange, "quality_weight"},
		{"tolerance above 1", good, pair, Tolerance(2), ErrRange, "tolerance"},
		{"one candidate", good, pair[:1], QualityWeight(1), ErrShape, "1 candidates"},
		{"negative cost", good, twoTier(-1, 1), QualityWeight(1), ErrRange, "candidate 1 is -1"},
		{"infinite cost", good, twoTier(0, math.Inf(1)), QualityWeight(1), ErrRange, "candidate 0 is +Inf"},
		{"NaN cost", good, twoTier(math.NaN(), 0), QualityWeight(1), ErrRange, "candidate 1 is NaN"},
		{"head above", good, []Candidate{{Head: 0}, {Head: 2}}, QualityWeight(1), ErrShape, "candidate 1 has head 2"},
		{"head below", good, []Candidate{{Head: -1}, {Head: 0}}, QualityWeight(1), ErrShape, "candidate 0 has head -1"},
		{"NaN probability", repeat(1, float32(math.NaN()), 0), pair, QualityWeight(1), ErrNonFinite, "head 0"},
		{"negative probability", repeat(1, -0.1, 0), pair, QualityWeight(1), ErrRange, "head 0"},
		{"probability above 1", repeat(1, 0, 1.1), pair, QualityWeight(1), ErrRange, "head 1"},
		{"infinite probability", repeat(1, 0, float32(math.Inf(1))), pair, QualityWeight(1), ErrNonFinite, "head 1"},
		{"no probabilities", Probabilities{}, pair, QualityWeight(1), ErrShape, "0 members"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Choose(tt.p, tt.candidates, tt.tradeOff)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.part) {
				t.Errorf("error %v, want %v naming %q", err, tt.want, tt.part)
			}
		})
	}
}

func TestMappedHeadsOfACheckpoint(t *testing.T) {
	for name, tt := range map[string]struct {
		bias         []float32
		weak, strong int
		want         int // candidates: strong, weak
	}{
		"weak better":      {[]float32{8, 2, -2, -8}, 1, 2, 1},
		"others turned":    {[]float32{-8, 2, -2, 8}, 1, 2, 1},
		"heads exchanged":  {[]float32{8, 2, -2, -8}, 2, 1, 0},
		"strong much more": {[]float32{-8, -8, 8, 8}, 1, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := realManifest(1, 4)
			tensors := zeroTensors(m)
			for _, member := range tensors.Members {
				copy(member[2].Bias, tt.bias)
			}
			p, err := newCheckpoint(m, tensors, "").Score(make([]float32, 4))
			if err != nil {
				t.Fatal(err)
			}
			c, err := Choose(p, []Candidate{{Head: tt.strong, Cost: 1}, {Head: tt.weak}}, QualityWeight(1))
			if err != nil {
				t.Fatal(err)
			}
			if c.Index != tt.want {
				t.Errorf("candidate %d, want %d", c.Index, tt.want)
			}
		})
	}
}

// FuzzChoose: whatever comes in, either a sentinel error or a choice that obeys
// the rule it was made by.
func FuzzChoose(f *testing.F) {
	f.Add([]byte{0, 128, 255, 3, 9}, 3, 1.0, 0.25, 0.25, 0.75, false)
	f.Add([]byte{10, 20, 30, 40, 50, 60}, 3, 10.0, 4.0, 0.0, 0.125, true)
	f.Add([]byte{7}, 1, 0.0, 0.0, 0.0, 0.5, true)
	f.Fuzz(func(t *testing.T, values []byte, heads int, cost0, cost1, cost2, value float64, tolerance bool) {
		p := Probabilities{Heads: heads, Values: make([]float32, len(values))}
		if heads > 0 {
			p.Members = len(values) / heads
		}
		for i, b := range values {
			p.Values[i] = float32(b) / 255
		}
		candidates := []Candidate{{0, cost0}, {1, cost1}, {2, cost2}}
		tradeOff := QualityWeight(value)
		if tolerance {
			tradeOff = Tolerance(value)
		}
		c, err := Choose(p, candidates, tradeOff)
		if err != nil {
			if !slices.ContainsFunc([]error{ErrShape, ErrRange, ErrNonFinite}, func(e error) bool { return errors.Is(err, e) }) {
				t.Fatalf("error %v is not one of the package's", err)
			}
			return
		}
		if !(c.Margin >= 0) || math.IsInf(c.Margin, 0) {
			t.Errorf("margin %v", c.Margin)
		}
		if (c.Confidence == nil) != (p.Members == 1) || c.Confidence != nil && !(*c.Confidence >= 0.5 && *c.Confidence <= 1) {
			t.Errorf("confidence %v of %d members", c.Confidence, p.Members)
		}
		chosen, top := c.Scores[c.Index], 0.0
		for _, s := range c.Scores {
			top = max(top, s.Probability)
			if !(s.NormalizedCost >= 0 && s.NormalizedCost <= 1) {
				t.Errorf("normalised cost %v", s.NormalizedCost)
			}
		}
		for i, s := range c.Scores {
			switch within := s.Probability >= top-value; {
			case !tolerance && (s.Utility > chosen.Utility || s.Utility == chosen.Utility && i > c.Index):
				t.Errorf("candidate %d has utility %v, the chosen %d %v", i, s.Utility, c.Index, chosen.Utility)
			case tolerance && within && (candidates[i].Cost < candidates[c.Index].Cost || candidates[i].Cost == candidates[c.Index].Cost && i > c.Index):
				t.Errorf("candidate %d passes at cost %v, the chosen %d costs %v", i, candidates[i].Cost, c.Index, candidates[c.Index].Cost)
			case tolerance && !within && i == c.Index:
				t.Errorf("the chosen has %v, the best %v", s.Probability, top)
			}
		}
	})
}

func BenchmarkChoose(b *testing.B) {
	p := repeat(5, 0.375, 0.75)
	p.Values[0] = 0.5
	candidates := twoTier(0.25, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Choose(p, candidates, QualityWeight(0.75)); err != nil {
			b.Fatal(err)
		}
	}
}
