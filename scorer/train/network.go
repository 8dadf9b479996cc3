package train

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// network is one member while it is trained: dense layers with ReLU and dropout
// between them, a logit a head.
type network struct {
	layers []dense
	// parameters and gradient are flat; the layers' matrices are views of them.
	parameters, gradient []float32
	dropout              []float64
}

// dense is one layer: y = x Wᵀ + b for a batch of rows x.
type dense struct {
	weight, weightGrad blas32.General // [out, in]
	bias, biasGrad     []float32      // [out]
}

// newNetwork draws weights and biases uniformly from ±1/sqrt(in), as PyTorch's
// Linear does by default.
func newNetwork(in int, trunk []int, heads int, dropout []float64, rng *rand.Rand) *network {
	sizes := append(append([]int{in}, trunk...), heads)
	total := 0
	for i := range len(sizes) - 1 {
		total += sizes[i]*sizes[i+1] + sizes[i+1]
	}
	n := &network{parameters: make([]float32, total), gradient: make([]float32, total), dropout: dropout}
	at := 0
	take := func(size int) (values, gradient []float32) {
		values, gradient = n.parameters[at:at+size:at+size], n.gradient[at:at+size:at+size]
		at += size
		return values, gradient
	}
	for i := range len(sizes) - 1 {
		in, out := sizes[i], sizes[i+1]
		weight, weightGrad := take(in * out)
		bias, biasGrad := take(out)
		bound := 1 / math.Sqrt(float64(in))
		for _, values := range [][]float32{weight, bias} {
			for j := range values {
				values[j] = float32((2*rng.Float64() - 1) * bound)
			}
		}
		n.layers = append(n.layers, dense{
			weight:     blas32.General{Rows: out, Cols: in, Stride: in, Data: weight},
			weightGrad: blas32.General{Rows: out, Cols: in, Stride: in, Data: weightGrad},
			bias:       bias, biasGrad: biasGrad,
		})
	}
	return n
}

// member copies the parameters into a checkpoint's form.
func (n *network) member() scorer.Member {
	m := make(scorer.Member, len(n.layers))
	for i, l := range n.layers {
		m[i] = scorer.Dense{Weight: append([]float32(nil), l.weight.Data...), Bias: append([]float32(nil), l.bias...)}
	}
	return m
}

// pass holds what one batch leaves behind on its way through a network, for the
// way back. It is used again for every batch.
type pass struct {
	outputs []blas32.General // of each layer, after ReLU and dropout; the last: logits
	slopes  []blas32.General // of each layer, the loss by its output
}

func (n *network) newPass(rows int) *pass {
	p := &pass{}
	for _, l := range n.layers {
		p.outputs = append(p.outputs, newGeneral(rows, l.weight.Rows))
		p.slopes = append(p.slopes, newGeneral(rows, l.weight.Rows))
	}
	return p
}

// forward runs a batch, [rows, in], and returns the logits, [rows, heads]. With a
// random source it drops outputs as in training, and scales up the rest.
func (n *network) forward(x blas32.General, p *pass, rng *rand.Rand) blas32.General {
	for i, l := range n.layers {
		y := rowsOf(p.outputs[i], 0, x.Rows)
		blas32.Gemm(blas.NoTrans, blas.Trans, 1, x, l.weight, 0, y)
		last := i == len(n.layers)-1
		keep := float32(1)
		drops := !last && rng != nil && n.dropout[i] > 0
		if drops {
			keep = float32(1 / (1 - n.dropout[i]))
		}
		for r := range y.Rows {
			row := y.Data[r*y.Stride:][:y.Cols]
			for j, b := range l.bias {
				v := row[j] + b
				if !last && v < 0 {
					v = 0
				}
				if drops && v > 0 {
					if rng.Float64() < n.dropout[i] {
						v = 0
					} else {
						v *= keep
					}
				}
				row[j] = v
			}
		}
		x = y
	}
	return x
}

// backward computes the gradient of every parameter from the slopes of the
// logits, which the caller has put into the last of p.slopes for x.Rows rows.
func (n *network) backward(x blas32.General, p *pass) {
	for i, l := range slices.Backward(n.layers) {
		slope := rowsOf(p.slopes[i], 0, x.Rows)
		in := x
		if i > 0 {
			in = rowsOf(p.outputs[i-1], 0, x.Rows)
		}
		blas32.Gemm(blas.Trans, blas.NoTrans, 1, slope, in, 0, l.weightGrad)
		clear(l.biasGrad)
		for r := range slope.Rows {
			for j, v := range slope.Data[r*slope.Stride:][:slope.Cols] {
				l.biasGrad[j] += v
			}
		}
		if i == 0 {
			return
		}
		below := rowsOf(p.slopes[i-1], 0, x.Rows)
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, slope, l.weight, 0, below)
		// An output of 0 was below 0 or dropped: nothing flows through it. One that
		// was kept flows back as it was scaled up.
		keep := float32(1)
		if n.dropout[i-1] > 0 {
			keep = float32(1 / (1 - n.dropout[i-1]))
		}
		for j, v := range in.Data[:in.Rows*in.Cols] {
			if v > 0 {
				below.Data[j] *= keep
			} else {
				below.Data[j] = 0
			}
		}
	}
}

// loss returns the sum of binary cross-entropies of logits, [rows, heads], and
// their number; a missing label has none. If slopes is not nil it gets the
// derivative of the mean by every logit.
func loss(logits blas32.General, want []labels.Label, slopes []float32) (sum float64, count int) {
	for _, l := range want {
		if l != labels.Missing {
			count++
		}
	}
	for i, l := range want {
		if l == labels.Missing {
			if slopes != nil {
				slopes[i] = 0
			}
			continue
		}
		z := float64(logits.Data[i])
		target := 0.0
		if l == labels.Right {
			target = 1
		}
		sum += crossEntropy(z, target)
		if slopes != nil {
			slopes[i] = float32((sigmoid(z) - target) / float64(count))
		}
	}
	return sum, count
}

// crossEntropy is -log of the probability that a logit gives the target, without
// overflow: max(z,0) - z*target + log(1 + exp(-|z|)).
func crossEntropy(z, target float64) float64 {
	return max(z, 0) - z*target + math.Log1p(math.Exp(-math.Abs(z)))
}

func sigmoid(z float64) float64 { return 1 / (1 + math.Exp(-z)) }

// adam is the optimiser of Kingma and Ba, "Adam: a method for stochastic
// optimization" (2015), with the constants they give and an L2 penalty in the
// gradient.
type adam struct {
	rate, decay float64
	step        int
	first       []float32 // moving mean of the gradient
	second      []float32 // and of its square
}

func newAdam(parameters int, rate, decay float64) *adam {
	return &adam{rate: rate, decay: decay, first: make([]float32, parameters), second: make([]float32, parameters)}
}

func (a *adam) update(parameters, gradient []float32) {
	const beta1, beta2, epsilon = 0.9, 0.999, 1e-8
	a.step++
	rate := float32(a.rate / (1 - math.Pow(beta1, float64(a.step))))
	unbias := float32(1 / math.Sqrt(1-math.Pow(beta2, float64(a.step))))
	decay := float32(a.decay)
	for i, g := range gradient {
		g += decay * parameters[i]
		m := beta1*a.first[i] + (1-beta1)*g
		v := beta2*a.second[i] + (1-beta2)*g*g
		a.first[i], a.second[i] = m, v
		parameters[i] -= rate * m / (float32(math.Sqrt(float64(v)))*unbias + epsilon)
	}
}
