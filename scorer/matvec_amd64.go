package scorer

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// canVectorise says that this machine has the instructions of matvec_amd64.s.
var canVectorise = cpu.X86.HasAVX2 && cpu.X86.HasFMA

const (
	// One or two vectors are multiplied with a few rows from end to end, as the
	// memory likes it; the stretches only bound the time of a call, to some 30 µs.
	// More vectors are multiplied with all rows of a block in short stretches, so
	// that they stay in the second-level cache: 8 x 1024 float64 are 64 KiB.
	longStretch, shortStretch = 32768, 1024
	// prefetching is the pair of vectors during which the next weights are brought
	// from the memory: the first pair waits for its own.
	prefetching = 2
	// rowsAtOnce is how many rows of weights are read side by side. With two
	// vectors, their sums fill half of the registers.
	rowsAtOnce = 4
)

// multiplyVectorised does what multiplyPortably does. Assembly cannot be
// interrupted, by the collector above all, hence the stretches.
func (p *product) multiplyVectorised(first, rows int) {
	var sums [maxBlockRows][maxBatch][lanes]float64
	group, stretch := rows, shortStretch
	if p.vectors <= prefetching {
		group, stretch = rowsAtOnce, longStretch
	}
	whole := p.columns &^ (2*lanes - 1)
	for from := 0; from < rows; from += group {
		to := min(from+group, rows)
		for column := 0; column < whole; column += stretch {
			if column > 0 {
				// A pass is work of milliseconds among answers of microseconds: let those
				// that wait go first.
				runtime.Gosched()
			}
			eights := min(stretch, whole-column) / (2 * lanes)
			r := from
			for ; r+rowsAtOnce <= to; r += rowsAtOnce {
				next := rowsAtOnce * p.columns
				if r+2*rowsAtOnce > to { // the first rows of the next stretch
					next = stretch - (r-from)*p.columns
				}
				p.addProducts4(&sums[r], first+r, column, eights, next)
			}
			for ; r < to; r++ {
				p.addProducts1(&sums[r], first+r, column, eights)
			}
		}
	}
	for r := range rows {
		for v := range p.vectors {
			p.finish(first+r, v, &sums[r][v])
		}
	}
}

const floatBytes = 4

// addProducts4 adds the products of rowsAtOnce rows, from a column on, with all
// vectors to sums, of which it gets the first row's. The vectors go in pairs: the
// weights, once read, are then in the first-level cache. The weights needed next
// are so many further.
func (p *product) addProducts4(sums *[maxBatch][lanes]float64, row, column, eights, next int) {
	w, stride := &p.m[row*p.columns+column], floatBytes*p.columns
	v := 0
	for ; v+2 <= p.vectors; v += 2 {
		x0, x1 := &p.x[v][column], &p.x[v+1][column]
		if v == prefetching {
			dot4x2Prefetch(&sums[v], w, stride, x0, x1, eights, floatBytes*next)
		} else {
			dot4x2(&sums[v], w, stride, x0, x1, eights)
		}
	}
	if v < p.vectors {
		dot4x1(&sums[v], w, stride, &p.x[v][column], nil, eights)
	}
}

// addProducts1 does the same for one row.
func (p *product) addProducts1(sums *[maxBatch][lanes]float64, row, column, eights int) {
	w, stride := &p.m[row*p.columns+column], floatBytes*p.columns
	v := 0
	for ; v+2 <= p.vectors; v += 2 {
		dot1x2(&sums[v], w, stride, &p.x[v][column], &p.x[v+1][column], eights)
	}
	if v < p.vectors {
		dot1x1(&sums[v], w, stride, &p.x[v][column], nil, eights)
	}
}
