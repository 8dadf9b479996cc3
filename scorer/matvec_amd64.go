package scorer

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// canVectorise says that this machine has the instructions of kernels_amd64.s.
var canVectorise = cpu.X86.HasAVX2 && cpu.X86.HasFMA

const (
	// few vectors are multiplied with rowsAtOnce rows from end to end, as the memory
	// likes it; the stretches only bound the time of a call, to some 30 µs. With two
	// vectors, the sums fill half of the registers.
	few, rowsAtOnce, longStretch = 2, 4, 32768
	// More vectors are multiplied four at a time with two rows at a time: it is the
	// arithmetic that takes the time then, and so a weight is converted to float64 for
	// four. All rows of a block are multiplied in short stretches, so that four vectors
	// stay in the first-level cache, 4 x 512 float64 are 16 KiB, and the weights in the
	// second for the other four.
	vectorsAtOnce, rowsOfFour, shortStretch = 4, 2, 512

	// yieldEvery is after how many stretches others get the processor, a quarter of a
	// millisecond. Where one is idle, to offer it costs some microseconds.
	yieldEvery = 8

	floatBytes = 4
)

// rowSums holds the sums of one row.
type rowSums [maxBatch][lanes]float64

// multiplyVectorised does what multiplyPortably does. Assembly cannot be
// interrupted, by the collector above all, hence the stretches.
func (p *product) multiplyVectorised(first, rows int) {
	var sums [maxBlockRows]rowSums
	group, stretch := rows, shortStretch
	if p.vectors <= few {
		group, stretch = rowsAtOnce, longStretch
	}
	whole := p.columns &^ (2*lanes - 1)
	stretches := 0
	for from := 0; from < rows; from += group {
		to := min(from+group, rows)
		for column := 0; column < whole; column += stretch {
			if stretches++; stretches%yieldEvery == 0 {
				// A pass is work of milliseconds among answers of microseconds: let those
				// that wait go first.
				runtime.Gosched()
			}
			eights := min(stretch, whole-column) / (2 * lanes)
			for v := 0; v < p.vectors; v += vectorsAtOnce {
				if p.vectors-v > few {
					p.addMany(sums[from:to], first+from, v, column, eights)
				} else {
					p.addFew(sums[from:to], first+from, v, column, eights)
				}
			}
		}
	}
	for r := range rows {
		for v := range p.vectors {
			p.finish(first+r, v, &sums[r][v])
		}
	}
}

// addMany adds the products of rows, from a row and a column on, with the vectors v
// to v+3 to their sums. If there are only three, the third stands in for the fourth,
// whose sum is nobody's.
func (p *product) addMany(sums []rowSums, row, v, column, eights int) {
	stride := floatBytes * p.columns
	x0, x1, x2, x3 := &p.x[v][column], &p.x[v+1][column], &p.x[v+2][column], &p.x[min(v+3, p.vectors-1)][column]
	r := 0
	for ; r+rowsOfFour <= len(sums); r += rowsOfFour {
		w := &p.m[(row+r)*p.columns+column]
		dot2x4(&sums[r][v], w, stride, x0, x1, x2, x3, eights, floatBytes*shortStretch)
	}
	if r < len(sums) {
		dot1x4(&sums[r][v], &p.m[(row+r)*p.columns+column], stride, x0, x1, x2, x3, eights)
	}
}

// addFew does the same with the vector v, and v+1 if there is one.
func (p *product) addFew(sums []rowSums, row, v, column, eights int) {
	stride, x0 := floatBytes*p.columns, &p.x[v][column]
	var x1 *float64
	if v+1 < p.vectors {
		x1 = &p.x[v+1][column]
	}
	for r := 0; r < len(sums); {
		w, to := &p.m[(row+r)*p.columns+column], &sums[r][v]
		switch four := r+rowsAtOnce <= len(sums); {
		case four && x1 != nil:
			dot4x2(to, w, stride, x0, x1, eights)
		case four:
			dot4x1(to, w, stride, x0, eights)
		case x1 != nil:
			dot1x2(to, w, stride, x0, x1, eights)
		default:
			dot1x1(to, w, stride, x0, eights)
		}
		if r+rowsAtOnce <= len(sums) {
			r += rowsAtOnce
		} else {
			r++
		}
	}
}
