package server

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/pointsman-dev/pointsman/probe/vllmsim"
	"github.com/pointsman-dev/pointsman/scorer"
)

// demoEasy and demoHard are what the demo checkpoint is fitted to.
var (
	demoEasy = []string{
		"What is 2+2?", "What is 7+5?", "What is 10-3?", "What is the capital of France?", "What is the capital of Japan?",
		"Who wrote Hamlet?", "Who painted the Mona Lisa?", "How many days are in a week?", "How many legs has a spider?",
		"Translate hello into French.", "Translate thank you into Spanish.", "Say hello.", "Hi, how are you?",
		"What colour is the sky?", "Which is larger, 3 or 8?", "Name three fruits.", "Spell the word bicycle.",
		"What day comes after Monday?", "Write a short greeting.", "What is the opposite of hot?",
		"Summarise this sentence: the cat sat on the mat.", "Correct the spelling of this word.", "List the months of the year.",
		"Is water wet?",
	}
	demoHard = []string{
		"Prove that the square root of 2 is irrational.", "Prove that every finite integral domain is a field.",
		"Prove that there are infinitely many primes.", "Show that a compact metric space is complete and totally bounded.",
		"Derive the Euler-Lagrange equation for a functional with two independent variables.",
		"Design a lock-free queue and argue that it is linearizable under weak memory ordering.",
		"Find the bug in this concurrent hash map and explain the race between resize and lookup.",
		"Derive the asymptotic complexity of union-find with path compression.",
		"Explain why the halting problem is undecidable and reduce it to the word problem for groups.",
		"Evaluate the integral of exp(-x^2) cos(ax) over the real line, justifying each step.",
		"Write a type inference algorithm for a lambda calculus with rank-2 polymorphism.",
		"Prove or refute: every continuous function on a closed interval is the derivative of some function.",
		"Compute the fundamental group of the Klein bottle using the Seifert-van Kampen theorem.",
		"Design a consensus protocol that tolerates Byzantine faults and prove its safety.",
		"Optimise this query plan, given the join cardinalities and the skewed distribution of the keys.",
		"Prove that primes congruent to 1 modulo 4 are sums of two squares.",
		"Derive the Black-Scholes equation from first principles and state each assumption.",
		"Refactor this recursive parser into a streaming one without changing its error recovery.",
		"Show that the eigenvalues of a Hermitian operator are real and that its eigenvectors are orthogonal.",
		"Find all integer solutions of the equation x^3 + y^3 = z^3 + 1 with x, y, z below 20, and prove completeness.",
		"Analyse the stability of the fixed points of this nonlinear differential equation.",
		"Prove the correctness of Dijkstra's algorithm and explain where negative weights break it.",
		"Estimate the sample complexity of learning a half-space with malicious noise.",
		"Explain the renormalisation of a scalar field theory at one loop.",
	}
)

// The shape of the demo ensemble.
const (
	demoMembers = 5
	// demoRidge keeps a fit of few examples in many dimensions tame; the features
	// are standardised, so it is in units of an example's own variance.
	demoRidge = 0.2
)

// Logits of the demo's heads for a difficulty z, which is about -1 for the easy
// examples and +1 for the hard ones: both models do well on easy tasks, and the
// weak one far worse on hard ones.
const (
	demoStrongBias, demoStrongSlope = 2.5, -0.6
	demoWeakBias, demoWeakSlope     = 0.8, -1.6
)

// saveDemoCheckpoint fits a checkpoint to the examples and writes it to dir. Each
// member leaves a fifth of the examples out, so that the ensemble has something
// to disagree about.
func saveDemoCheckpoint(dir string) error {
	texts := append(append([]string(nil), demoEasy...), demoHard...)
	raw := demoLayers * demoHiddenSize
	x := mat.NewDense(len(texts), raw, nil)
	y := make([]float64, len(texts))
	for i, text := range texts {
		for j, v := range vllmsim.Features(text, demoLayers, demoHiddenSize, vllmsim.BF16) {
			x.Set(i, j, float64(v))
		}
		y[i] = -1
		if i >= len(demoEasy) {
			y[i] = 1
		}
	}
	tensors := scorer.Tensors{PCAMean: make([]float32, raw)}
	tensors.ScalerMean, tensors.ScalerScale = standardise(x)
	for m := range demoMembers {
		direction, err := fitRidge(x, y, m)
		if err != nil {
			return err
		}
		tensors.PCAComponents = append(tensors.PCAComponents, direction...)
		tensors.Members = append(tensors.Members, demoMember(m))
	}
	return scorer.Save(dir, scorer.Manifest{
		Encoder: demoEncoder, Layers: demoLayers, HiddenSize: demoHiddenSize, PCADim: demoMembers,
		TrunkHidden: []int{2}, EnsembleSize: demoMembers, OutputNames: []string{"strong", "weak"},
	}, tensors)
}

// standardise scales the columns of x to mean 0 and variance 1, in place.
func standardise(x *mat.Dense) (mean, scale []float32) {
	rows, cols := x.Dims()
	mean, scale = make([]float32, cols), make([]float32, cols)
	for j := range cols {
		col := mat.Col(nil, j, x)
		var sum, squares float64
		for _, v := range col {
			sum += v
		}
		mu := sum / float64(rows)
		for _, v := range col {
			squares += (v - mu) * (v - mu)
		}
		sigma := math.Sqrt(squares / float64(rows))
		mean[j], scale[j] = float32(mu), float32(sigma)
		for i := range col {
			x.Set(i, j, (col[i]-mu)/sigma)
		}
	}
	return mean, scale
}

// fitRidge fits a direction w with x·w ≈ y, leaving out every fifth example from
// the given one on. In its dual form, since there are fewer examples than
// features: w = Xᵀ(XXᵀ + λI)⁻¹y.
func fitRidge(x *mat.Dense, y []float64, leaveOut int) ([]float32, error) {
	_, cols := x.Dims()
	var rows []float64
	var labels []float64
	for i, label := range y {
		if i%demoMembers != leaveOut {
			rows = append(rows, x.RawRowView(i)...)
			labels = append(labels, label)
		}
	}
	kept := mat.NewDense(len(labels), cols, rows)
	var gram mat.Dense
	gram.Mul(kept, kept.T())
	for i := range labels {
		gram.Set(i, i, gram.At(i, i)+demoRidge*float64(cols))
	}
	var dual, w mat.VecDense
	if err := dual.SolveVec(&gram, mat.NewVecDense(len(labels), labels)); err != nil {
		return nil, fmt.Errorf("fitting the demo checkpoint: %w", err)
	}
	w.MulVec(kept.T(), &dual)
	direction := make([]float32, cols)
	for j := range direction {
		direction[j] = float32(w.AtVec(j))
	}
	return direction, nil
}

// demoMember is a network that reads its own component z as relu(z) - relu(-z)
// and makes each head's logit of it.
func demoMember(m int) scorer.Member {
	read := make([]float32, 2*demoMembers)
	read[m], read[demoMembers+m] = 1, -1
	return scorer.Member{
		{Weight: read, Bias: make([]float32, 2)},
		{
			Weight: []float32{demoStrongSlope, -demoStrongSlope, demoWeakSlope, -demoWeakSlope},
			Bias:   []float32{demoStrongBias, demoWeakBias},
		},
	}
}
