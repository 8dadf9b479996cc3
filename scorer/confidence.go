package scorer

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// negligible is the spread, or the mean, below which members count as equal,
	// or as undecided: far above float64 rounding of sums of probabilities, far
	// below any difference that float32 probabilities can show.
	negligible = 1e-12
	// undecided is the confidence of a coin. Less would say that the other choice
	// is the stable one, yet this one was made.
	undecided = 0.5
)

// confidence returns how stable a choice is, given the margin by which each of
// two or more members would make it. It is the chance that one more member,
// drawn like these, has a margin above 0: with n margins of mean mu and sample
// standard deviation s, the predictive distribution of the next is
// mu + s*sqrt(1 + 1/n) * T, T Student's t with n-1 degrees of freedom (the
// prediction interval for a normal sample).
func confidence(margins []float64) float64 {
	mu, s := stat.MeanStdDev(margins, nil)
	if s <= negligible {
		if mu > negligible {
			return 1
		}
		return undecided
	}
	n := float64(len(margins))
	student := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}
	return max(undecided, student.CDF(mu/(s*math.Sqrt(1+1/n))))
}
