package eval

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/pointsman-dev/pointsman/scorer"
)

func shareAt(s *Sample, tolerance float64) float64 {
	n := 0
	for i := range s.Rows() {
		if ChoosesStrong(scorer.Tolerance(tolerance), s.Probabilities[s.Strong][i], s.Probabilities[s.Weak][i]) {
			n++
		}
	}
	return float64(n) / float64(s.Rows())
}

func TestPickedShareHoldsOnUnseenData(t *testing.T) {
	for _, want := range []float64{0, 0.1, 0.3, 0.7, 1} {
		tolerance, err := Pick(synthetic(3000, 1), Goal{StrongShare: &want})
		if err != nil {
			t.Fatal(err)
		}
		if got := shareAt(synthetic(3000, 2), tolerance); math.Abs(got-want) > 0.03 {
			t.Errorf("share %v: tolerance %v gives %v on unseen data", want, tolerance, got)
		}
	}
}

func TestPickByHand(t *testing.T) {
	half, threeQuarters, all := 0.5, 0.75, 1.0
	for _, c := range []struct {
		name      string
		goal      Goal
		low, high float64 // the tolerance lies in [low, high)
	}{
		// Tasks change sides at 0.5, 0.3 and 0.1.
		{"share", Goal{StrongShare: &half}, 0.1, 0.3},
		{"quality 3/4 at the least cost", Goal{Quality: &threeQuarters}, 0.3, 0.5},
		{"quality 1", Goal{Quality: &all}, 0, 0.1},
		{"saving 1/2 with the most strong calls", Goal{Saving: &half}, 0.3, 0.5},
		{"share 0", Goal{StrongShare: new(0.0)}, 0.5, 1},
	} {
		got, err := Pick(tiny(5), c.goal)
		if err != nil || got < c.low-1e-9 || got >= c.high {
			t.Errorf("%s: %v, %v; want %v to %v", c.name, got, err, c.low, c.high)
		}
	}
}

func TestPickRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		goal       Goal
	}{
		{"no goal", "0 goals", Goal{}},
		{"two goals", "2 goals", Goal{StrongShare: new(0.1), Saving: new(0.1)}},
		{"not a share", "want 0 to 1", Goal{StrongShare: new(30.0)}},
		{"NaN", "want 0 to 1", Goal{Quality: new(math.NaN())}},
		{"out of reach", "better in 0.75 of the rows", Goal{StrongShare: new(0.9)}},
		{"saving out of reach", "the saving is 0.75", Goal{Saving: new(0.8)}},
	} {
		if _, err := Pick(tiny(5), c.goal); !errors.Is(err, ErrSample) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTradeOffsChooseTheSame(t *testing.T) {
	s := synthetic(2000, 4)
	for _, tolerance := range []float64{0, 0.013, 0.2, 0.77} {
		a, b := TradeOffs(tolerance)
		for i := range s.Rows() {
			p, q := s.Probabilities[0][i], s.Probabilities[1][i]
			if ChoosesStrong(a, p, q) != ChoosesStrong(b, p, q) {
				t.Fatalf("%v and %v differ at %v, %v", a, b, p, q)
			}
		}
	}
}
