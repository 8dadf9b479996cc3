package scorer

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestProbabilitiesValidate(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	tests := []struct {
		name string
		p    Probabilities
		want error
		part string
	}{
		{"edges", repeat(2, 0, 1, 0.5), nil, ""},
		{"none", Probabilities{}, ErrShape, "0 members"},
		{"no heads", Probabilities{Members: 1}, ErrShape, "0 heads"},
		{"negative sizes", Probabilities{Members: -1, Heads: -1, Values: []float32{1}}, ErrShape, "-1 members"},
		{"a value short", Probabilities{Members: 2, Heads: 2, Values: make([]float32, 3)}, ErrShape, "3 probabilities"},
		{"a row over", Probabilities{Members: 2, Heads: 2, Values: make([]float32, 6)}, ErrShape, "6 probabilities"},
		{"product overflows", Probabilities{Members: 1 << 62, Heads: 4}, ErrShape, "0 probabilities"},
		{"NaN", Probabilities{2, 2, []float32{0, 0, 0, nan}}, ErrNonFinite, "head 1 by member 1"},
		{"infinite", Probabilities{2, 2, []float32{0, inf, 0, 0}}, ErrNonFinite, "head 1 by member 0"},
		{"negative", Probabilities{2, 2, []float32{0, 0, -0.1, 0}}, ErrRange, "head 0 by member 1 is -0.1"},
		{"above 1", Probabilities{1, 2, []float32{0, 1.1}}, ErrRange, "head 1 by member 0 is 1.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.p.Validate()
			if !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), tt.part) {
				t.Errorf("%q does not name %q", err, tt.part)
			}
		})
	}
}

// The ensemble averages probabilities, not logits, and heads stay independent.
func TestMean(t *testing.T) {
	p := repeat(5, 0.5, 0.5, 0.75, 0.25)
	p.Values[0] = 0.75 // member 0, head 0
	sum := 0.0
	for head, want := range []float64{0.55, 0.5, 0.75, 0.25} {
		checkNear(t, "mean", p.Mean(head), want, 1e-6)
		sum += p.Mean(head)
	}
	if sum < 1.5 {
		t.Errorf("the heads add up to %v, as if they were classes", sum)
	}
}
