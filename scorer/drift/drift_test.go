package drift

import (
	"math"
	"testing"
)

func TestNewBinsEvenly(t *testing.T) {
	scores := make([]float64, 1000)
	for i := range scores {
		scores[i] = float64(i) / 1000
	}
	d := New(scores, Bins)
	if err := d.Validate(); err != nil || len(d.Shares) != Bins || d.Count != 1000 {
		t.Fatalf("%+v: %v", d, err)
	}
	for i, s := range d.Shares {
		if math.Abs(s-0.1) > 1e-9 {
			t.Errorf("bin %d has share %v", i, s)
		}
	}
	if d.Bin(0) != 0 || d.Bin(0.1) != 1 || d.Bin(0.0999) != 0 || d.Bin(1) != 9 {
		t.Error("a score is in the wrong bin")
	}
}

func TestNewWithEqualScores(t *testing.T) {
	for _, scores := range [][]float64{{0.5, 0.5, 0.5}, {0.5}, {0.2, 0.5, 0.5, 0.5, 0.5, 0.5}} {
		d := New(scores, Bins)
		if err := d.Validate(); err != nil {
			t.Errorf("%v: %+v: %v", scores, d, err)
		}
	}
}

// By hand: shares (1/2, 1/2) of many against counts (749.5, 249.5), which become
// (3/4, 1/4): (1/4) ln(3/2) + (-1/4) ln(1/2) = (1/4) ln 3.
func TestPSIByHand(t *testing.T) {
	d := Distribution{Edges: []float64{0.5}, Shares: []float64{0.5, 0.5}, Count: 1000}
	if got, want := d.PSI([]float64{749.5, 249.5}), math.Log(3)/4; math.Abs(got-want) > 1e-12 {
		t.Errorf("PSI %v, want %v", got, want)
	}
	if got := d.PSI([]float64{500, 500}); got != 0 {
		t.Errorf("PSI of equal shares %v", got)
	}
	if got := d.PSI([]float64{0, 1000}); math.IsInf(got, 0) || got < 1 {
		t.Errorf("PSI with an empty bin %v", got)
	}
}

func TestValidateRefuses(t *testing.T) {
	for name, d := range map[string]Distribution{
		"lengths":   {Edges: []float64{0.5}, Shares: []float64{1}},
		"sum":       {Edges: []float64{0.5}, Shares: []float64{0.5, 0.4}},
		"not a bin": {Shares: []float64{math.NaN()}},
		"order":     {Edges: []float64{0.5, 0.5}, Shares: []float64{0.5, 0.25, 0.25}},
	} {
		if d.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
