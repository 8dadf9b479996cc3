package scorer

//go:generate go -C asm run . -out ../kernels_amd64.s -stubs ../kernels_stubs_amd64.go -pkg scorer

const (
	// maxBatch is how many vectors are multiplied in one pass over a matrix. With
	// eight, the arithmetic takes twice as long as the memory, so that more
	// would gain nothing.
	maxBatch = 8
	// maxBlockRows bounds how many rows are multiplied at a time: the more, the less
	// often the vectors are read. Their sums stand on the stack, 16 KiB.
	maxBlockRows = 64
	// lanes is the number of sums that an element of the result is made of.
	lanes = 4
)

// product is a matrix and the vectors to multiply it with: y[v] = m x[v].
//
// An element of y is made of four sums in float64: lane i adds up the columns i,
// i+4 and so on; then (0+1)+(2+3), and the columns beyond a multiple of eight.
// The result is rounded once. Massive activations (hidden states have a few
// features thousands of times larger than the rest) would otherwise swallow the
// small terms: float32 sums over 10^5 features drift beyond the 1e-5 on
// probabilities that the format asks for. It takes no longer, since it is the
// memory that is waited for.
//
// A product of two float32 is exact in float64, fused with an addition or not. So
// every machine gets the same bits, whatever stands beside a vector.
//
// A sum too large for float32 becomes an infinity, which the caller must refuse.
type product struct {
	m       []float32 // [rows, columns], row-major
	columns int
	vectors int                 // 1 to maxBatch
	x       [maxBatch][]float64 // each [columns], of float32 values
	y       [maxBatch][]float32 // each [rows]
}

// matVec computes dst = m x for row-major m, [len(dst), len(x)].
func matVec(dst, m []float32, x []float64) {
	p := product{m: m, columns: len(x), vectors: 1}
	p.x[0], p.y[0] = x, dst
	for block := range p.blocks() {
		p.multiply(block)
	}
}

// blockRows is the number of rows in a block; the last one may have fewer. It is such
// that two processors get the same, and a multiple of four.
func (p *product) blockRows() int {
	rows := len(p.y[0])
	blocks := 2 * ((rows + 2*maxBlockRows - 1) / (2 * maxBlockRows))
	return ((rows+blocks-1)/blocks + 3) &^ 3
}

// blocks is the number of blocks of rows.
func (p *product) blocks() int { return (len(p.y[0]) + p.blockRows() - 1) / p.blockRows() }

// multiply computes the rows of one block, for all vectors.
func (p *product) multiply(block int) {
	first := block * p.blockRows()
	rows := min(p.blockRows(), len(p.y[0])-first)
	if canVectorise {
		p.multiplyVectorised(first, rows)
	} else {
		p.multiplyPortably(first, rows)
	}
}

func (p *product) multiplyPortably(first, rows int) {
	for r := first; r < first+rows; r++ {
		row := p.m[r*p.columns:][:p.columns]
		for v := range p.vectors {
			var sum [lanes]float64
			x := p.x[v][:len(row)]
			for i := 0; i+2*lanes <= len(row); i += 2 * lanes {
				w, x := (*[2 * lanes]float32)(row[i:]), (*[2 * lanes]float64)(x[i:])
				for step := 0; step < len(w); step += lanes {
					sum[0] += float64(w[step]) * x[step]
					sum[1] += float64(w[step+1]) * x[step+1]
					sum[2] += float64(w[step+2]) * x[step+2]
					sum[3] += float64(w[step+3]) * x[step+3]
				}
			}
			p.finish(r, v, &sum)
		}
	}
}

// finish makes element r of y[v] of its lanes and of the last columns.
func (p *product) finish(r, v int, sum *[lanes]float64) {
	row, x := p.m[r*p.columns:][:p.columns], p.x[v]
	total := (sum[0] + sum[1]) + (sum[2] + sum[3])
	for i := len(row) &^ (2*lanes - 1); i < len(row); i++ {
		total += float64(row[i]) * x[i]
	}
	p.y[v][r] = float32(total)
}
