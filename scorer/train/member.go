package train

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/blas/blas32"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// batchData is rows of components with their labels.
type batchData struct {
	x    blas32.General // [rows, pca]
	want []labels.Label // [rows, heads]
}

// Member records how a member of the ensemble came about.
type Member struct {
	Seed       uint64  `json:"seed"`
	Epochs     int     `json:"epochs"`     // trained
	BestEpoch  int     `json:"best_epoch"` // kept, from 1
	Validation float64 `json:"validation_loss"`
	Kept       bool    `json:"kept"`
}

// trained is a member and its parameters.
type trained struct {
	Member

	weights scorer.Member
}

// trainMember trains one network and returns its parameters at the epoch of the
// least validation loss. When ctx ends it returns the best so far, or nothing if
// no epoch was finished.
func trainMember(ctx context.Context, r Recipe, heads int, train, validation batchData, seed uint64) (trained, bool) {
	rng := rand.New(rand.NewPCG(seed, 1))
	n := newNetwork(train.x.Cols, r.Trunk, heads, r.Dropout, rng)
	optimiser := newAdam(len(n.parameters), r.LearningRate, r.WeightDecay)
	batch := min(r.BatchSize, train.x.Rows)
	p := n.newPass(max(batch, min(validation.x.Rows, blockRows)))
	x := newGeneral(batch, train.x.Cols)
	want := make([]labels.Label, batch*heads)
	order := make([]int, train.x.Rows)
	for i := range order {
		order[i] = i
	}

	best := trained{Member: Member{Seed: seed, Validation: math.Inf(1)}}
	var parameters []float32 // at the best epoch
	stale := 0
	for epoch := 1; epoch <= r.Epochs && stale < r.Patience; epoch++ {
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for first := 0; first < len(order); first += batch {
			if ctx.Err() != nil {
				return n.finish(best, parameters)
			}
			picked := order[first:min(first+batch, len(order))]
			for i, row := range picked {
				copy(x.Data[i*x.Stride:][:x.Cols], train.x.Data[row*train.x.Stride:][:x.Cols])
				copy(want[i*heads:][:heads], train.want[row*heads:][:heads])
			}
			rows := rowsOf(x, 0, len(picked))
			logits := n.forward(rows, p, rng)
			loss(logits, want[:len(picked)*heads], p.slopes[len(p.slopes)-1].Data)
			n.backward(rows, p)
			optimiser.update(n.parameters, n.gradient)
		}
		best.Epochs = epoch
		stale++
		if v := n.evaluate(validation, heads, p); v < best.Validation-r.MinImprovement {
			best.Validation, best.BestEpoch, stale = v, epoch, 0
			parameters = append(parameters[:0], n.parameters...)
		}
	}
	return n.finish(best, parameters)
}

func (n *network) finish(best trained, parameters []float32) (trained, bool) {
	if parameters == nil {
		return trained{}, false
	}
	copy(n.parameters, parameters)
	best.weights = n.member()
	return best, true
}

// evaluate returns the mean cross-entropy over the labels there are.
func (n *network) evaluate(d batchData, heads int, p *pass) float64 {
	sum, count := 0.0, 0
	n.eachBlock(d.x, p, func(first int, logits blas32.General) {
		s, c := loss(logits, d.want[first*heads:][:logits.Rows*heads], nil)
		sum, count = sum+s, count+c
	})
	return sum / float64(count)
}

// eachBlock calls f with the logits of every block of rows.
func (n *network) eachBlock(x blas32.General, p *pass, f func(first int, logits blas32.General)) {
	size := p.outputs[0].Rows
	for first := 0; first < x.Rows; first += size {
		f(first, n.forward(rowsOf(x, first, min(size, x.Rows-first)), p, nil))
	}
}

// logits returns the logits of a member for rows of components, [rows, heads].
func logits(m scorer.Member, x blas32.General) blas32.General {
	n := &network{dropout: make([]float64, len(m)-1)}
	for _, l := range m {
		n.layers = append(n.layers, dense{
			weight: blas32.General{Rows: len(l.Bias), Cols: len(l.Weight) / len(l.Bias), Stride: len(l.Weight) / len(l.Bias), Data: l.Weight},
			bias:   l.Bias,
		})
	}
	heads := len(m[len(m)-1].Bias)
	out := newGeneral(x.Rows, heads)
	n.eachBlock(x, n.newPass(min(blockRows, x.Rows)), func(first int, z blas32.General) {
		copy(out.Data[first*heads:], z.Data[:z.Rows*heads])
	})
	return out
}

// keepBest marks the n members of the least validation loss and returns them in
// the order of their seeds.
func keepBest(all []trained, n int) []trained {
	byLoss := slices.Clone(all)
	slices.SortStableFunc(byLoss, func(a, b trained) int {
		switch {
		case a.Validation < b.Validation:
			return -1
		case a.Validation > b.Validation:
			return 1
		default:
			return 0
		}
	})
	keep := map[uint64]bool{}
	for _, m := range byLoss[:min(n, len(byLoss))] {
		keep[m.Seed] = true
	}
	var kept []trained
	for i := range all {
		all[i].Kept = keep[all[i].Seed]
		if all[i].Kept {
			kept = append(kept, all[i])
		}
	}
	return kept
}
