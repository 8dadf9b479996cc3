package scorer

import (
	"math"
	"testing"
)

func TestConfidence(t *testing.T) {
	tests := []struct {
		name    string
		margins []float64
		want    float64
	}{
		{"all agree exactly", []float64{0.2, 0.2, 0.2}, 1},
		{"all agree on a tie", []float64{0, 0, 0}, 0.5},
		{"a tie but for rounding", []float64{1e-13, 0, 1e-13}, 0.5},
		{"a spread of rounding only", []float64{0.2, 0.2 + 1e-13}, 1},
		// n=2: F is the Cauchy distribution, 1/2 + atan(x)/pi. mu 0.375 and
		// s = 0.25/sqrt(2) give x = 0.375/(s*sqrt(1.5)) = sqrt(3): 5/6.
		{"two members", []float64{0.25, 0.5}, 5.0 / 6},
		// n=3: F(x) = 1/2 + x/(2 sqrt(2+x^2)). mu 0.2, s 0.1, x = 2/sqrt(4/3) = sqrt(3).
		{"three members", []float64{0.1, 0.2, 0.3}, 0.5 + math.Sqrt(3)/(2*math.Sqrt(5))},
		{"balanced", []float64{-0.1, 0.1}, 0.5},
		{"never below one half", []float64{-0.2, -0.1, 0.1}, 0.5},
		{"never below one half without spread", []float64{-0.2, -0.2}, 0.5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkNear(t, "confidence", confidence(tt.margins), tt.want, 1e-9)
		})
	}
}
