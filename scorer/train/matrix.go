package train

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas/blas32"
)

const (
	// blockRows is how many rows go through a multiplication at once: enough to
	// keep it busy, and 64 MiB at 32,768 features.
	blockRows = 512
	// maxCached is the most that is kept in memory of the features; larger data is
	// read from its file on every pass. With the rest it stays well below 4 GiB.
	maxCached = 3 << 29
)

// transform standardises features: (x - mean)/scale, in float32 as a checkpoint
// does it.
type transform struct {
	mean, scale []float32 // [raw]
}

func (t transform) apply(row []float32) {
	for j, v := range row {
		row[j] = (v - t.mean[j]) / t.scale[j]
	}
}

// table is some rows of the features, standardised once scale is set. It is read
// block by block, from memory if it fits.
type table struct {
	data   *Data
	rows   []int // positions in data
	width  int
	cached []float32 // [rows, width], or nil
	buffer []float32 // [blockRows, width] for what is not cached
	scale  *transform
}

// newTable reads the rows into memory if they fit.
func newTable(ctx context.Context, d *Data, rows []int, tell Progress) (*table, error) {
	t := &table{data: d, rows: rows, width: d.rows.Header().Dim()}
	if len(rows) <= maxCached/bytesPerFloat/t.width {
		t.cached = make([]float32, len(rows)*t.width)
	} else {
		t.buffer = make([]float32, blockRows*t.width)
	}
	if t.cached == nil {
		return t, nil
	}
	for i, row := range rows {
		if i%blockRows == 0 {
			if ctx.Err() != nil {
				return nil, ErrInterrupted
			}
			tell.tell(StageRead, i, len(rows), "")
		}
		if err := t.read(row, t.cached[i*t.width:][:t.width]); err != nil {
			return nil, err
		}
	}
	tell.tell(StageRead, len(rows), len(rows), "")
	return t, nil
}

const bytesPerFloat = 4

func (t *table) read(row int, dst []float32) error {
	if err := t.data.rows.ReadRow(t.data.source[row], dst); err != nil {
		return fmt.Errorf("%w: %w", ErrData, err)
	}
	return nil
}

// standardise sets the transform.
func (t *table) standardise(s transform) {
	t.scale = &s
	if t.cached == nil {
		return
	}
	for i := range t.rows {
		s.apply(t.cached[i*t.width:][:t.width])
	}
}

// blocks calls f with every block of rows in order: the position of its first
// row and its values, [n, width], which are only good during the call.
func (t *table) blocks(ctx context.Context, f func(first int, block blas32.General)) error {
	for first := 0; first < len(t.rows); first += blockRows {
		if ctx.Err() != nil {
			return ErrInterrupted
		}
		n := min(blockRows, len(t.rows)-first)
		values := t.buffer
		if t.cached != nil {
			values = t.cached[first*t.width:][:n*t.width]
		} else {
			for i := range n {
				row := values[i*t.width:][:t.width]
				if err := t.read(t.rows[first+i], row); err != nil {
					return err
				}
				if t.scale != nil {
					t.scale.apply(row)
				}
			}
		}
		f(first, blas32.General{Rows: n, Cols: t.width, Stride: t.width, Data: values[:n*t.width]})
	}
	return nil
}

// moments returns the transform of the table's rows: means, and population
// standard deviations, one each or one for all. A feature that never changes is
// left unscaled, as scikit-learn's StandardScaler does.
func (t *table) moments(ctx context.Context, scaling Scaling) (transform, error) {
	mean := make([]float64, t.width)
	squares := make([]float64, t.width) // sums of squared distances from the mean
	n := 0.0
	// Welford, "Note on a method for calculating corrected sums of squares and
	// products" (1962): one pass, and no cancellation at large means.
	err := t.blocks(ctx, func(_ int, block blas32.General) {
		for i := range block.Rows {
			n++
			inverse := 1 / n
			for j, v := range block.Data[i*t.width:][:t.width] {
				x := float64(v)
				delta := x - mean[j]
				mean[j] += delta * inverse
				squares[j] += delta * (x - mean[j])
			}
		}
	})
	if err != nil {
		return transform{}, err
	}
	s := transform{mean: make([]float32, t.width), scale: make([]float32, t.width)}
	total := 0.0
	for j := range mean {
		s.mean[j] = float32(mean[j])
		total += squares[j] / n
		s.scale[j] = positive(math.Sqrt(squares[j]/n), mean[j])
	}
	if scaling == ScaleCommon {
		common := positive(math.Sqrt(total/float64(t.width)), 0)
		for j := range s.scale {
			s.scale[j] = common
		}
	}
	return s, nil
}

// positive returns a standard deviation, or 1 if it is only what rounding makes
// of a constant.
func positive(stddev, mean float64) float32 {
	if s := float32(stddev); s > 0 && stddev > 1e-7*math.Abs(mean) {
		return s
	}
	return 1
}
