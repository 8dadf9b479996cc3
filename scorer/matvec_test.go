package scorer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"gonum.org/v1/gonum/blas/blas32"
)

// randomProduct returns a product of random values, some of them massive.
func randomProduct(rows, columns, vectors int, seed uint64) *product {
	p := &product{m: randomValues(rows*columns, seed), columns: columns, vectors: vectors}
	for v := range vectors {
		p.x[v] = widen(randomValues(columns, seed+uint64(v)+1))
		p.y[v] = make([]float32, rows)
	}
	return p
}

func randomValues(n int, seed uint64) []float32 {
	random := rand.New(rand.NewPCG(seed, 3))
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(random.NormFloat64())
		if random.IntN(50) == 0 {
			values[i] *= 2e4
		}
	}
	return values
}

func widen(values []float32) []float64 {
	wide := make([]float64, len(values))
	for i, v := range values {
		wide[i] = float64(v)
	}
	return wide
}

// compute multiplies all rows by one of the two ways and returns the results' bits; a NaN is one bit pattern.
func (p *product) compute(multiply func(p *product, first, rows int)) [][]uint32 {
	var results [][]uint32
	for block := range p.blocks() {
		first := block * p.blockRows()
		multiply(p, first, min(p.blockRows(), len(p.y[0])-first))
	}
	for v := range p.vectors {
		bits := make([]uint32, len(p.y[v]))
		for r, y := range p.y[v] {
			if bits[r] = math.Float32bits(y); y != y {
				bits[r] = math.Float32bits(float32(math.NaN()))
			}
			p.y[v][r] = 7 // to be written again
		}
		results = append(results, bits)
	}
	return results
}

// compareProducts checks that both ways give the same bits.
func compareProducts(t *testing.T, p *product) {
	t.Helper()
	if !canVectorise {
		t.Skip("no vector instructions")
	}
	want := p.compute((*product).multiplyPortably)
	got := p.compute((*product).multiplyVectorised)
	for v := range want {
		if !slices.Equal(got[v], want[v]) {
			t.Fatalf("%d rows, %d columns, vector %d of %d: vectorised %x, portable %x", len(want[v]), p.columns, v, p.vectors, got[v], want[v])
		}
	}
}

func TestProductsAreTheSameEverywhere(t *testing.T) {
	for _, rows := range []int{1, 2, 3, 4, 5, 7, 8, 9, 63, 70, 127, 128, 129} {
		for _, columns := range []int{1, 4, 7, 8, 9, 15, 16, 23, 40, 200} {
			for vectors := 1; vectors <= maxBatch; vectors++ {
				compareProducts(t, randomProduct(rows, columns, vectors, uint64(rows*columns)))
			}
		}
	}
	for vectors := 1; vectors <= maxBatch; vectors++ { // several stretches
		compareProducts(t, randomProduct(7, 32_768+3*1024+13, vectors, 9))
	}
}

// TestProductBlocks: whatever the number of rows, the blocks cover them, and two processors get much the same.
func TestProductBlocks(t *testing.T) {
	for rows := 1; rows < 2000; rows++ {
		p := product{}
		p.y[0] = make([]float32, rows)
		size, blocks := p.blockRows(), p.blocks()
		if size < 1 || size > maxBlockRows || size*blocks < rows || size*(blocks-1) >= rows {
			t.Errorf("%d rows: %d blocks of %d", rows, blocks, size)
		}
		if first := min(size*((blocks+1)/2), rows); rows >= 100 && first > rows*5/8 {
			t.Errorf("%d rows: %d blocks of %d, of which one processor gets %d rows", rows, blocks, size, first)
		}
	}
}

// TestProductsDoNotDependOnTheBatch: a decision is the same alone and beside others.
func TestProductsDoNotDependOnTheBatch(t *testing.T) {
	p := randomProduct(37, 9000+5, maxBatch, 4)
	for block := range p.blocks() {
		p.multiply(block)
	}
	for v := range maxBatch {
		alone := make([]float32, 37)
		matVec(alone, p.m, p.x[v])
		if !slices.Equal(alone, p.y[v]) {
			t.Errorf("vector %d of a batch differs from the same alone", v)
		}
	}
}

// TestProductsAgreeWithGonum compares with sums in float64 in another order: equal but for the last bit.
func TestProductsAgreeWithGonum(t *testing.T) {
	const rows, columns = 40, 147_456
	p := randomProduct(rows, columns, 1, 6)
	x := make([]float32, columns)
	for i, v := range p.x[0] {
		x[i] = float32(v)
	}
	matVec(p.y[0], p.m, p.x[0])
	for r, got := range p.y[0] {
		row := blas32.Vector{N: columns, Inc: 1, Data: p.m[r*columns:][:columns]}
		want := blas32.DDot(row, blas32.Vector{N: columns, Inc: 1, Data: x})
		if math.Abs(float64(got)-want) > math.Abs(want)*0x1p-24+1e-3*0x1p-24 {
			t.Errorf("row %d is %v, want %v", r, got, want)
		}
	}
}

func FuzzProducts(f *testing.F) {
	f.Add(uint8(5), uint16(17), uint8(3), []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x80, 1, 0, 0, 0})
	f.Add(uint8(33), uint16(8), uint8(8), []byte{0xff, 0xff, 0x7f, 0x7f, 0, 0, 0x80, 0xff, 0, 0, 0xc0, 0x7f, 9})
	f.Fuzz(func(t *testing.T, rows uint8, columns uint16, vectors uint8, pattern []byte) {
		if rows < 1 || rows > 70 || columns < 1 || columns > 3000 || vectors < 1 || vectors > maxBatch || len(pattern) == 0 {
			return
		}
		at := 0
		next := func(n int) []float32 {
			values := make([]float32, n)
			for i := range values {
				var b [4]byte
				for j := range b {
					b[j] = pattern[at%len(pattern)]
					at++
				}
				values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[:]))
			}
			return values
		}
		p := &product{m: next(int(rows) * int(columns)), columns: int(columns), vectors: int(vectors)}
		for v := range p.vectors {
			p.x[v], p.y[v] = widen(next(p.columns)), make([]float32, rows)
		}
		compareProducts(t, p)
	})
}

// BenchmarkProduct multiplies the principal components of the largest checkpoint, 118 MB, on one processor: with one
// vector and with a full batch. "read" reads the same bytes and does nothing with them; "gonum" is what it replaces.
func BenchmarkProduct(b *testing.B) {
	const rows, columns = 200, 147_456
	p := randomProduct(rows, columns, maxBatch, 5)
	size := int64(bytesPerFloat * len(p.m))
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&p.m[0])), size)
	x := make([]float32, columns)
	b.Run("read", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			bytes.Count(memory, []byte{0x55})
		}
	})
	b.Run("gonum", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			for r := range rows {
				blas32.DDot(blas32.Vector{N: columns, Inc: 1, Data: p.m[r*columns:][:columns]}, blas32.Vector{N: columns, Inc: 1, Data: x})
			}
		}
	})
	for _, vectors := range []int{1, 2, 4, maxBatch} {
		b.Run(fmt.Sprintf("vectors=%d", vectors), func(b *testing.B) {
			p.vectors = vectors
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				for block := range p.blocks() {
					p.multiply(block)
				}
			}
		})
	}
}
