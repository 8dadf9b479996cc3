package scorer

import "gonum.org/v1/gonum/blas/blas32"

// matVec computes dst = m x for row-major m, [len(dst), len(x)].
//
// Each row is summed in float64 and rounded once. Massive activations (hidden
// states have a few features thousands of times larger than the rest) would
// otherwise swallow the small terms: float32 sums over 10^5 features drift
// beyond the 1e-5 on probabilities that the format asks for.
//
// A sum too large for float32 becomes an infinity, which the caller must refuse.
func matVec(dst, m, x []float32) {
	v := blas32.Vector{N: len(x), Inc: 1, Data: x}
	for i := range dst {
		row := blas32.Vector{N: len(x), Inc: 1, Data: m[i*len(x):][:len(x)]}
		dst[i] = float32(blas32.DDot(row, v))
	}
}
