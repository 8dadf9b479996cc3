package scorer

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestTradeOffValidate(t *testing.T) {
	tests := []struct {
		tradeOff TradeOff
		want     error
		part     string
	}{
		{QualityWeight(0), nil, ""},
		{QualityWeight(1), nil, ""},
		{Tolerance(0), nil, ""},
		{Tolerance(1), nil, ""},
		{QualityWeight(math.NaN()), ErrRange, "quality_weight is NaN"},
		{QualityWeight(-0.1), ErrRange, "quality_weight is -0.1"},
		{QualityWeight(1.1), ErrRange, "quality_weight is 1.1"},
		{QualityWeight(math.Inf(1)), ErrRange, "quality_weight is +Inf"},
		{Tolerance(math.NaN()), ErrRange, "tolerance is NaN"},
		{Tolerance(-0.1), ErrRange, "tolerance is -0.1"},
		{Tolerance(math.Inf(-1)), ErrRange, "tolerance is -Inf"},
		{TradeOff{}, ErrNoTradeOff, "set a quality weight or a tolerance"},
	}
	for _, tt := range tests {
		t.Run(tt.tradeOff.String(), func(t *testing.T) {
			err := tt.tradeOff.Validate()
			if !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), tt.part) {
				t.Errorf("%q does not say %q", err, tt.part)
			}
		})
	}
}

func TestTradeOffIsOneOfTwo(t *testing.T) {
	w, isWeight := QualityWeight(0.75).QualityWeight()
	_, isTolerance := QualityWeight(0.75).Tolerance()
	if w != 0.75 || !isWeight || isTolerance {
		t.Errorf("quality weight 0.75: %v %t, tolerance %t", w, isWeight, isTolerance)
	}
	v, isTolerance := Tolerance(0.2).Tolerance()
	_, isWeight = Tolerance(0.2).QualityWeight()
	if v != 0.2 || !isTolerance || isWeight {
		t.Errorf("tolerance 0.2: %v %t, quality weight %t", v, isTolerance, isWeight)
	}
	if QualityWeight(0) == Tolerance(0) {
		t.Error("a quality weight equals a tolerance")
	}
}

// Each verdict is also tried: over a grid of probabilities, Choose picks the
// dearest at least once, or never, as the verdict has it.
func TestNeverChoosesDearer(t *testing.T) {
	tests := []struct {
		name     string
		tradeOff TradeOff
		costs    []float64
		want     bool
	}{
		{"below half", QualityWeight(0.49), []float64{1, 0.25}, true},
		{"below half, dearer last", QualityWeight(0.49), []float64{0.25, 1}, true},
		{"nothing but cost", QualityWeight(0), []float64{1, 0.25}, true},
		{"half, dearer first", QualityWeight(0.5), []float64{1, 0.25}, true},
		{"half, dearer last", QualityWeight(0.5), []float64{0.25, 1}, false},
		{"above half", QualityWeight(0.51), []float64{1, 0.25}, false},
		{"equal costs", QualityWeight(0.1), []float64{3, 3}, false},
		{"three, below half", QualityWeight(0.4), []float64{5, 3, 1}, true},
		{"three, half, dearest in the middle", QualityWeight(0.5), []float64{1, 5, 3}, false},
		{"three, half, one as cheap behind it", QualityWeight(0.5), []float64{1, 5, 1}, true},
		{"tolerance", Tolerance(0.99), []float64{1, 0.25}, false},
		{"tolerance lets all pass", Tolerance(1), []float64{1, 0.25}, true},
		{"tolerance, equal costs", Tolerance(1), []float64{2, 2}, false},
		{"no trade-off", TradeOff{}, []float64{1, 0.25}, false},
		{"no costs", QualityWeight(0.1), nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.tradeOff.NeverChoosesDearer(tt.costs); got != tt.want {
				t.Errorf("%t, want %t", got, tt.want)
			}
			if len(tt.costs) < minCandidates || tt.tradeOff == (TradeOff{}) {
				return
			}
			if least, greatest := lastExtremes(tt.costs); tt.costs[least] == tt.costs[greatest] {
				return // nothing is the dearest
			}
			if chosen := choosesDearest(t, tt.tradeOff, tt.costs); chosen == tt.want {
				t.Errorf("the dearest is chosen somewhere: %t", chosen)
			}
		})
	}
}

// choosesDearest tries probabilities from 0 to 1 in tenths for every candidate.
func choosesDearest(t *testing.T, tradeOff TradeOff, costs []float64) bool {
	t.Helper()
	const steps = 11
	_, dearest := lastExtremes(costs)
	candidates := make([]Candidate, len(costs))
	for i, cost := range costs {
		candidates[i] = Candidate{Head: i, Cost: cost}
	}
	combinations := int(math.Pow(steps, float64(len(costs))))
	for n := range combinations {
		row := make([]float32, len(costs))
		for i := range row {
			row[i] = float32(n%steps) / (steps - 1)
			n /= steps
		}
		c, err := Choose(repeat(1, row...), candidates, tradeOff)
		if err != nil {
			t.Fatal(err)
		}
		if c.Index == dearest {
			return true
		}
	}
	return false
}
