package eval

import (
	"cmp"
	"math"
	"slices"

	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// ranking is rows in ascending order of a score, cut into runs of equal scores. It
// is made once and walked for every resample, whose weights say how often a row was
// drawn.
type ranking struct {
	order []int
	ends  []int // of each run, exclusive
}

func rank(scores []float64) ranking {
	r := ranking{order: make([]int, len(scores))}
	for i := range r.order {
		r.order[i] = i
	}
	slices.SortStableFunc(r.order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })
	for i := 1; i <= len(r.order); i++ {
		if i == len(r.order) || scores[r.order[i]] != scores[r.order[i-1]] {
			r.ends = append(r.ends, i)
		}
	}
	return r
}

// ones weighs every row once.
func ones(n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = 1
	}
	return w
}

// AUC returns the probability that a right answer has a higher score than a wrong
// one; NaN if there are not both. Missing labels do not count.
func AUC(scores []float64, want []labels.Label) float64 {
	return rank(scores).auc(ones(len(scores)), want)
}

func (r ranking) auc(weights []float64, want []labels.Label) float64 {
	var below, wrong, right, pairs float64 // wrong answers so far; totals; pairs in order
	first := 0
	for _, end := range r.ends {
		var tiedWrong, tiedRight float64
		for _, i := range r.order[first:end] {
			switch want[i] {
			case labels.Wrong:
				tiedWrong += weights[i]
			case labels.Right:
				tiedRight += weights[i]
			case labels.Missing:
			}
		}
		pairs += tiedRight * (below + tiedWrong/2)
		below += tiedWrong
		wrong, right, first = wrong+tiedWrong, right+tiedRight, end
	}
	if wrong == 0 || right == 0 {
		return math.NaN()
	}
	return pairs / (wrong * right)
}

// point is a point of a router's curve: the share of tasks sent to the strong
// model and the mean correctness.
type point struct{ share, quality float64 }

// curve appends to points the curve of a router from all-weak to all-strong. gain
// is what the strong model adds to a row's correctness, base the weak one's. Rows
// of weight 0 add nothing.
func (r ranking) curve(points []point, weights, base, gain []float64) []point {
	total, quality := 0.0, 0.0
	for i, w := range weights {
		total += w
		quality += w * base[i]
	}
	if total == 0 {
		return points
	}
	points = append(points, point{0, quality / total})
	share := 0.0
	for run, end := range slices.Backward(r.ends) {
		first := 0
		if run > 0 {
			first = r.ends[run-1]
		}
		moved := 0.0
		for _, i := range r.order[first:end] {
			moved += weights[i]
			quality += weights[i] * gain[i]
		}
		if moved > 0 {
			share += moved
			points = append(points, point{share / total, quality / total})
		}
	}
	return points
}
