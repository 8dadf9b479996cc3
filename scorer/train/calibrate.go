package train

import (
	"math"

	"gonum.org/v1/gonum/blas/blas32"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// Calibration is how the logits of one head were corrected in every member:
// logit/Temperature + Bias.
type Calibration struct {
	Head        string  `json:"head"`
	Temperature float64 `json:"temperature"`
	Bias        float64 `json:"bias"`
	// Error is the expected calibration error on the validation rows, before and
	// after. It is of the rows the correction was fitted on.
	Before float64 `json:"ece_before"`
	After  float64 `json:"ece_after"`
}

// calibrate finds, for one head, the temperature and the bias that make the
// probability the ensemble serves, the mean over its members, most likely on the
// validation rows. Guo et al., "On calibration of modern neural networks" (2017),
// fit a temperature to one network; the bias corrects the mean as Platt's scaling
// does. Fitted to the mean, they also undo that averaging makes probabilities less
// extreme than the members are.
//
// logits has a slice a member. Newton's method on (scale, bias), scale being
// 1/temperature: the loss is smooth and nearly convex, and the steps are halved
// until they improve it.
func calibrate(logits [][]float64, want []labels.Label) (scale, bias float64) {
	scale = 1
	current := ensembleLoss(logits, want, scale, bias)
	const (
		steps    = 50
		halvings = 30
		minScale = 1e-2 // a head that predicts nothing ends here, not at a constant
	)
	for range steps {
		gradient, hessian := slopes(logits, want, scale, bias)
		ds, db := solve(hessian, gradient)
		if ds*gradient[0]+db*gradient[1] <= 0 { // not downhill: use the gradient
			ds, db = gradient[0], gradient[1]
		}
		improved := false
		for step := 1.0; step > math.Pow(2, -halvings); step /= 2 {
			s, b := scale-step*ds, bias-step*db
			if s < minScale {
				continue
			}
			if next := ensembleLoss(logits, want, s, b); next < current-1e-12 {
				scale, bias, current, improved = s, b, next, true
				break
			}
		}
		if !improved {
			break
		}
	}
	return scale, bias
}

// mean returns the ensemble's probability of row i, and its derivatives by scale
// and bias.
func mean(logits [][]float64, i int, scale, bias float64) (p, byScale, byBias float64) {
	n := float64(len(logits))
	for _, member := range logits {
		q := sigmoid(scale*member[i] + bias)
		p += q / n
		byBias += q * (1 - q) / n
		byScale += q * (1 - q) * member[i] / n
	}
	return p, byScale, byBias
}

const tiny = 1e-12 // keeps a logarithm finite

func ensembleLoss(logits [][]float64, want []labels.Label, scale, bias float64) float64 {
	sum, count := 0.0, 0.0
	for i, l := range want {
		if l == labels.Missing {
			continue
		}
		p, _, _ := mean(logits, i, scale, bias)
		if l == labels.Wrong {
			p = 1 - p
		}
		sum -= math.Log(max(p, tiny))
		count++
	}
	return sum / count
}

// slopes returns the gradient of the loss and the Gauss–Newton approximation of
// its Hessian, which is never indefinite.
func slopes(logits [][]float64, want []labels.Label, scale, bias float64) (gradient [2]float64, hessian [2][2]float64) {
	count := 0.0
	for i, l := range want {
		if l == labels.Missing {
			continue
		}
		p, byScale, byBias := mean(logits, i, scale, bias)
		target := 0.0
		if l == labels.Right {
			target = 1
		}
		variance := max(p*(1-p), tiny)
		residual := (p - target) / variance
		gradient[0] += residual * byScale
		gradient[1] += residual * byBias
		hessian[0][0] += byScale * byScale / variance
		hessian[0][1] += byScale * byBias / variance
		hessian[1][1] += byBias * byBias / variance
		count++
	}
	for i := range gradient {
		gradient[i] /= count
	}
	for i := range hessian {
		for j := range hessian[i] {
			hessian[i][j] /= count
		}
	}
	hessian[1][0] = hessian[0][1]
	return gradient, hessian
}

// solve returns h⁻¹g for a symmetric 2 by 2 h, with a little added to its
// diagonal.
func solve(h [2][2]float64, g [2]float64) (x, y float64) {
	const ridge = 1e-9
	a, b, d := h[0][0]+ridge, h[0][1], h[1][1]+ridge
	determinant := a*d - b*b
	if determinant <= 0 {
		return g[0], g[1]
	}
	return (d*g[0] - b*g[1]) / determinant, (a*g[1] - b*g[0]) / determinant
}

// fold puts the correction of a head into the output layer of a member, so that
// every reader of the format gets calibrated probabilities.
func fold(m scorer.Member, head int, scale, bias float64) {
	output := m[len(m)-1]
	in := len(output.Weight) / len(output.Bias)
	blas32.Scal(float32(scale), vector(output.Weight[head*in:][:in]))
	output.Bias[head] = float32(scale*float64(output.Bias[head]) + bias)
}
