package eval

import (
	"math"
	"math/rand/v2"

	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// eceBins is the usual number of bins; results with another do not compare.
const eceBins = 10

// bin is one bin of a reliability diagram, as sums over its rows.
type bin struct{ weight, probability, right float64 }

// fill sorts rows with a label into bins of equal width.
func fill(probabilities []float64, want []labels.Label, weights []float64) (bins [eceBins]bin) {
	for i, l := range want {
		if l == labels.Missing {
			continue
		}
		b := &bins[binOf(probabilities[i])]
		b.weight += weights[i]
		b.probability += weights[i] * probabilities[i]
		if l == labels.Right {
			b.right += weights[i]
		}
	}
	return bins
}

// binOf returns the bin of a probability; 1 belongs to the last.
func binOf(p float64) int { return min(int(p*eceBins), eceBins-1) }

func ece(bins [eceBins]bin) float64 {
	total, sum := 0.0, 0.0
	for _, b := range bins {
		total += b.weight
		sum += math.Abs(b.probability - b.right)
	}
	if total == 0 {
		return math.NaN()
	}
	return sum / total
}

// ECE returns the expected calibration error over ten bins of equal width; NaN
// without a label.
func ECE(probabilities []float64, want []labels.Label) float64 {
	return ece(fill(probabilities, want, ones(len(probabilities))))
}

// perfectECE returns the mean ECE of labels that are drawn from the probabilities
// themselves, for the rows that have a label. resample draws the weights of each
// run; nil keeps every row once.
func perfectECE(probabilities []float64, want []labels.Label, runs int, rng *rand.Rand, resample func() []float64) float64 {
	drawn := make([]labels.Label, len(want))
	weights := ones(len(want))
	sum := 0.0
	for range runs {
		for i, l := range want {
			switch {
			case l == labels.Missing:
				drawn[i] = labels.Missing
			case rng.Float64() < probabilities[i]:
				drawn[i] = labels.Right
			default:
				drawn[i] = labels.Wrong
			}
		}
		if resample != nil {
			weights = resample()
		}
		sum += ece(fill(probabilities, drawn, weights))
	}
	return sum / float64(runs)
}
