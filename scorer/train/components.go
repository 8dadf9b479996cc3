package train

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"
)

const (
	// oversampling is how many directions are followed beyond the components that
	// are wanted; Halko et al. suggest 5 to 10.
	oversampling = 10
	// powerIterations sharpens the gap between what is kept and what is not; the
	// field's trainer uses 5.
	powerIterations = 5
)

// components is a projection on principal components.
type components struct {
	rows      blas32.General // [n, raw], orthonormal rows, the greatest variance first
	variances []float64      // of the training rows along each
	total     float64        // variance in all directions
}

// principal finds the n directions of the greatest variance of a standardised
// table, by randomised subspace iteration: Halko, Martinsson and Tropp, "Finding
// structure with randomness" (2011), algorithm 4.4 on the table's covariance with
// a Rayleigh–Ritz step at the end. Rows have mean 0 by standardisation, so nothing
// is left to centre.
func principal(ctx context.Context, t *table, n int, seed uint64, tell Progress) (components, error) {
	width := min(n+oversampling, t.width, len(t.rows))
	if n > width {
		return components{}, fmt.Errorf("%w: %d principal components from %d rows of %d features", ErrData, n, len(t.rows), t.width)
	}
	const steps = powerIterations + 1
	rng := rand.New(rand.NewPCG(seed, 0))
	basis := newGeneral(t.width, width)
	for i := range basis.Data {
		basis.Data[i] = float32(rng.NormFloat64())
	}
	orthonormalise(basis)
	for step := range powerIterations {
		tell.tell(StageComponents, step, steps, "")
		next := newGeneral(t.width, width)
		err := t.blocks(ctx, func(_ int, x blas32.General) {
			y := newGeneral(x.Rows, width)
			blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, x, basis, 0, y)
			blas32.Gemm(blas.Trans, blas.NoTrans, 1, x, y, 1, next)
		})
		if err != nil {
			return components{}, err
		}
		basis = next
		orthonormalise(basis)
	}
	tell.tell(StageComponents, powerIterations, steps, "")
	c, err := ritz(ctx, t, basis, n)
	tell.tell(StageComponents, steps, steps, "")
	return c, err
}

// ritz rotates an orthonormal basis, [raw, width], to the principal axes within
// it and keeps the first n.
func ritz(ctx context.Context, t *table, basis blas32.General, n int) (components, error) {
	width := basis.Cols
	gram := mat.NewSymDense(width, nil)
	total := 0.0
	err := t.blocks(ctx, func(_ int, x blas32.General) {
		y := newGeneral(x.Rows, width)
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, x, basis, 0, y)
		wide := mat.NewDense(x.Rows, width, widen(y.Data))
		var g mat.SymDense
		g.SymOuterK(1, wide.T())
		gram.AddSym(gram, &g)
		total += blas32.DDot(vector(x.Data), vector(x.Data))
	})
	if err != nil {
		return components{}, err
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(gram, true) {
		return components{}, fmt.Errorf("%w: the principal components do not converge", ErrData)
	}
	values := eigen.Values(nil) // ascending
	var axes mat.Dense
	eigen.VectorsTo(&axes)
	rotation := newGeneral(width, n)
	c := components{rows: newGeneral(n, t.width), variances: make([]float64, n)}
	freedom := float64(max(1, len(t.rows)-1))
	c.total = total / freedom
	for k := range n {
		from := width - 1 - k
		c.variances[k] = max(0, values[from]) / freedom
		for i := range width {
			rotation.Data[i*n+k] = float32(axes.At(i, from))
		}
	}
	blas32.Gemm(blas.Trans, blas.Trans, 1, rotation, basis, 0, c.rows)
	for k := range n {
		fixSign(c.rows.Data[k*t.width:][:t.width])
	}
	return c, nil
}

// fixSign makes the entry of the greatest size positive, so that a component does
// not depend on the direction the iteration happened to settle on.
func fixSign(row []float32) {
	greatest := 0
	for j, v := range row {
		if math.Abs(float64(v)) > math.Abs(float64(row[greatest])) {
			greatest = j
		}
	}
	if row[greatest] < 0 {
		blas32.Scal(-1, vector(row))
	}
}

// project returns the coordinates of a standardised table's rows, [rows, n].
func (c components) project(ctx context.Context, t *table) (blas32.General, error) {
	out := newGeneral(len(t.rows), c.rows.Rows)
	err := t.blocks(ctx, func(first int, x blas32.General) {
		blas32.Gemm(blas.NoTrans, blas.Trans, 1, x, c.rows, 0, rowsOf(out, first, x.Rows))
	})
	return out, err
}

// orthonormalise replaces the columns of m, [rows, columns] with at least as many
// rows, by an orthonormal basis of what they span. Householder reflections, in
// float64: columns that have become nearly equal still give a basis.
func orthonormalise(m blas32.General) {
	q := blas64.General{Rows: m.Rows, Cols: m.Cols, Stride: m.Cols, Data: widen(m.Data)}
	tau := make([]float64, m.Cols)
	size := make([]float64, 1)
	lapack64.Geqrf(q, tau, size, -1)
	work := make([]float64, int(size[0]))
	lapack64.Geqrf(q, tau, work, len(work))
	lapack64.Orgqr(q, tau, size, -1)
	work = make([]float64, int(size[0]))
	lapack64.Orgqr(q, tau, work, len(work))
	for i, v := range q.Data {
		m.Data[i] = float32(v)
	}
}

func newGeneral(rows, columns int) blas32.General {
	return blas32.General{Rows: rows, Cols: columns, Stride: columns, Data: make([]float32, rows*columns)}
}

// rowsOf is n rows of m from the first on, in place.
func rowsOf(m blas32.General, first, n int) blas32.General {
	return blas32.General{Rows: n, Cols: m.Cols, Stride: m.Stride, Data: m.Data[first*m.Stride:][:n*m.Stride]}
}

func vector(values []float32) blas32.Vector {
	return blas32.Vector{N: len(values), Inc: 1, Data: values}
}

func widen(values []float32) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
}
