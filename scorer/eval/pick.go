package eval

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/pointsman-dev/pointsman/scorer"
)

// Goal is what a trade-off is picked for. Exactly one is set.
type Goal struct {
	StrongShare *float64 // share of calls that go to the strong model
	Quality     *float64 // least mean correctness
	Saving      *float64 // least saving, as a share of the cost of always-strong
}

// Pick returns the tolerance that meets the goal on a sample: for a share the one
// that comes nearest, for a quality the one of the least cost, for a saving the
// one of the most strong calls. A quality needs labels; rows without one count
// with what was predicted.
func Pick(s *Sample, g Goal) (float64, error) {
	set := 0
	for _, v := range []*float64{g.StrongShare, g.Quality, g.Saving} {
		if v == nil {
			continue
		}
		set++
		if !(*v >= 0 && *v <= 1) {
			return 0, fmt.Errorf("%w: the goal is %v, want 0 to 1", ErrSample, *v)
		}
	}
	if set != 1 {
		return 0, fmt.Errorf("%w: %d goals, want one of strong share, quality and saving", ErrSample, set)
	}
	if s.Rows() < minPaired {
		return 0, fmt.Errorf("%w: %d rows, want at least %d", ErrSample, s.Rows(), minPaired)
	}
	options := s.operatingPoints()
	most, least := options[0], options[len(options)-1] // strong calls
	best, found := options[0], false
	for _, o := range options {
		cost := s.WeakCost + o.share*(s.StrongCost-s.WeakCost)
		switch {
		case g.StrongShare != nil:
			if !found || math.Abs(o.share-*g.StrongShare) < math.Abs(best.share-*g.StrongShare) {
				best, found = o, true
			}
		case g.Quality != nil: // later options are cheaper
			if o.quality >= *g.Quality-rounding {
				best, found = o, true
			}
		case !found && 1-cost/s.StrongCost >= *g.Saving-rounding:
			best, found = o, true
		}
	}
	switch {
	case !found && g.Quality != nil:
		return 0, fmt.Errorf("%w: no tolerance reaches a quality of %.4g; tolerance 0 has %.4g", ErrSample, *g.Quality, most.quality)
	case !found:
		return 0, fmt.Errorf("%w: no tolerance saves %.4g; with every call to the weak target the saving is %.4g", ErrSample, *g.Saving,
			1-(s.WeakCost+least.share*(s.StrongCost-s.WeakCost))/s.StrongCost)
	case g.StrongShare != nil && *g.StrongShare > most.share+shareSlack:
		return 0, fmt.Errorf("%w: a strong share of %.4g is out of reach: the strong target is predicted to be better in %.4g of the rows, and "+
			"a tolerance never takes the dearer of two equals", ErrSample, *g.StrongShare, most.share)
	}
	return best.tolerance, nil
}

// shareSlack is how far the wanted share may lie beyond what can be reached.
const shareSlack = 0.005

// operatingPoint is a tolerance and what it does to a sample.
type operatingPoint struct{ tolerance, share, quality float64 }

// operatingPoints returns every different thing a tolerance can do to a sample,
// in ascending order of the tolerance. Each tolerance stands midway between the
// differences where a row changes sides, so that it may be rounded in print.
func (s *Sample) operatingPoints() []operatingPoint {
	strong, weak := s.Probabilities[s.Strong], s.Probabilities[s.Weak]
	order := make([]int, s.Rows())
	n, quality := float64(len(order)), 0.0
	for i := range order {
		order[i] = i
		quality += s.outcome(s.Weak, i)
	}
	difference := func(i int) float64 { return strong[i] - weak[i] }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(difference(b), difference(a)) })
	// From the greatest difference down: all weak, then one run of equals after
	// another goes to the strong side.
	points := []operatingPoint{}
	upper := 1.0
	for i := 0; i <= len(order); i++ {
		if i > 0 && i < len(order) && difference(order[i]) == difference(order[i-1]) {
			quality += s.gain(order[i])
			continue
		}
		lower := 0.0
		if i < len(order) {
			lower = max(0, difference(order[i]))
		}
		if upper > lower || upper == 1 {
			points = append(points, operatingPoint{tolerance: roundBetween(lower, upper), share: float64(i) / n, quality: quality / n})
		}
		if lower == 0 {
			break
		}
		quality += s.gain(order[i])
		upper = lower
	}
	slices.Reverse(points)
	return points
}

func (s *Sample) gain(row int) float64 { return s.outcome(s.Strong, row) - s.outcome(s.Weak, row) }

// roundBetween returns a number from low, inclusive, to high, exclusive, with as
// few digits as fit. A row whose difference is exactly the tolerance is weak.
func roundBetween(low, high float64) float64 {
	for scale := 100.0; scale <= 1e9; scale *= 10 {
		middle := math.Round((low+high)/2*scale) / scale
		if middle >= low && middle < high {
			return middle
		}
	}
	return low
}

// MeasurePolicies reports what trade-offs would have done to a sample, which may
// lack labels.
func MeasurePolicies(s *Sample, o Options) (*Report, error) {
	if err := s.validate(false); err != nil {
		return nil, err
	}
	return measure(s, o, true)
}

// TradeOffs returns the tolerance as the two forms that configuration takes. For
// two targets a quality weight of 1/(1+t) chooses the same.
func TradeOffs(tolerance float64) (scorer.TradeOff, scorer.TradeOff) {
	return scorer.Tolerance(tolerance), scorer.QualityWeight(1 / (1 + tolerance))
}
