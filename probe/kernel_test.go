package probe

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFloat16 compares every half float with its value computed from the standard's definition.
func TestFloat16(t *testing.T) {
	for b := range uint32(1 << 16) {
		want := exactFloat16(b)
		got := math.Float32frombits(float16(b))
		if math.IsNaN(want) {
			if !math.IsNaN(float64(got)) {
				t.Fatalf("float16(%#04x) = %v, want NaN", b, got)
			}
			continue
		}
		if math.Float32bits(got) != math.Float32bits(float32(want)) {
			t.Fatalf("float16(%#04x) = %v, want %v", b, got, want)
		}
	}
}

func exactFloat16(b uint32) float64 {
	sign, exponent, fraction := 1.0, int(b>>10&0x1f), float64(b&0x3ff)
	if b>>15 == 1 {
		sign = -1
	}
	switch {
	case exponent == 0x1f && fraction != 0:
		return math.NaN()
	case exponent == 0x1f:
		return math.Inf(int(sign))
	case exponent == 0:
		return sign * math.Ldexp(fraction, -24)
	default:
		return sign * math.Ldexp(1024+fraction, exponent-25)
	}
}

// dtypes are those of hidden states, with the bytes of an element.
var dtypes = map[string]int{dtypeBF16: 2, dtypeF16: 2, dtypeF32: 4}

// decode returns element i of a row by the dtype's definition.
func decode(dtype string, row []byte, i int) float32 {
	switch dtype {
	case dtypeBF16:
		return math.Float32frombits(uint32(row[2*i])<<16 | uint32(row[2*i+1])<<24)
	case dtypeF16:
		return float32(exactFloat16(uint32(row[2*i]) | uint32(row[2*i+1])<<8))
	default:
		return math.Float32frombits(uint32(row[4*i]) | uint32(row[4*i+1])<<8 | uint32(row[4*i+2])<<16 | uint32(row[4*i+3])<<24)
	}
}

// plainKernel does what kernel promises as plainly as it can be said.
func plainKernel(dtype string) kernel {
	return func(sums []float32, src []byte, stride int, nonzero []byte) {
		value := func(r, i int) float32 {
			v := decode(dtype, src[r*stride:], i)
			if v != 0 {
				nonzero[r] = 1
			}
			return v
		}
		for i := range sums {
			r := 0
			for ; len(nonzero)-r >= 8; r += 8 {
				tree := ((value(r, i) + value(r+1, i)) + (value(r+2, i) + value(r+3, i))) +
					((value(r+4, i) + value(r+5, i)) + (value(r+6, i) + value(r+7, i)))
				sums[i] += tree
			}
			for ; r < len(nonzero); r++ {
				sums[i] += value(r, i)
			}
		}
	}
}

// sameBits reports whether two lists of sums are equal to the bit, NaNs aside, which are all one.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool {
		return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
	})
}

// compareKernels runs the portable kernel and this machine's best one and compares both with the plain one, to the bit.
// Beside what they may write there are guards; beside what they read there is nothing, or bytes that must not count.
func compareKernels(t *testing.T, dtype string, start []float32, src []byte, stride, rows int) {
	t.Helper()
	k, ok := kernelsFor(dtype)
	if !ok {
		t.Fatalf("no kernel for %s", dtype)
	}
	src = slices.Clip(src)
	longer := append(slices.Clone(src), bytes.Repeat([]byte{0xff}, maxVectorBytes)...)[:len(src)]
	run := func(add kernel, src []byte) ([]float32, []byte) {
		sums := append(slices.Clone(start), 7, 7)
		nonzero := append(make([]byte, rows), 7, 7)
		add(sums[:len(start):len(start)], src, stride, nonzero[:rows:rows])
		return sums, nonzero
	}
	wantSums, wantNonzero := run(plainKernel(dtype), src)
	for name, variant := range map[string]struct {
		kernel
		src []byte
	}{"portable": {k.portable, src}, "best": {k.best, src}, "best with space": {k.best, longer}} {
		sums, nonzero := run(variant.kernel, variant.src)
		if !sameBits(sums, wantSums) {
			t.Fatalf("%s, %s: %d rows of %d, %d bytes apart: sums %v, want %v", dtype, name, rows, len(start), stride, sums, wantSums)
		}
		if !bytes.Equal(nonzero, wantNonzero) {
			t.Fatalf("%s, %s: %d rows of %d, %d bytes apart: nonzero %v, want %v", dtype, name, rows, len(start), stride, nonzero, wantNonzero)
		}
	}
}

// TestKernels compares the kernels on every small width, around the steps of eight columns and eight rows, with random
// bits: all values there are, the infinite ones too.
func TestKernels(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for dtype, width := range dtypes {
		t.Run(dtype, func(t *testing.T) {
			for columns := range 42 {
				for _, rows := range []int{0, 1, 2, 7, 8, 9, 15, 16, 17, 24, 40} {
					for _, gap := range []int{0, width, 6 * width} {
						stride := columns*width + gap
						src := make([]byte, max(0, rows*stride-gap)) // not a byte too many
						for i := range src {
							src[i] = byte(random.Uint32())
						}
						start := make([]float32, columns)
						for i := range start {
							start[i] = random.Float32()
						}
						compareKernels(t, dtype, start, src, stride, rows)
					}
				}
			}
		})
	}
}

// TestKernelsSeeZeros: a row of zeros of either sign is one, and a single smallest value anywhere in it makes it none.
func TestKernelsSeeZeros(t *testing.T) {
	for dtype, width := range dtypes {
		k, _ := kernelsFor(dtype)
		for name, add := range map[string]kernel{"portable": k.portable, "best": k.best} {
			t.Run(dtype+"/"+name, func(t *testing.T) {
				const rows, columns = 17, 19
				// Beyond the last row there is room, full of what must not count.
				src := append(make([]byte, rows*columns*width), bytes.Repeat([]byte{0xff}, maxVectorBytes)...)[:rows*columns*width]
				for i := width - 1; i < len(src); i += 2 * width {
					src[i] = 0x80 // -0
				}
				sums, nonzero := make([]float32, columns), make([]byte, rows)
				add(sums, src, columns*width, nonzero)
				if i := slices.Index(nonzero, 1); i >= 0 {
					t.Errorf("row %d of zeros was taken for another", i)
				}
				for i := range rows * columns {
					src[i*width] |= 1
					clear(nonzero)
					add(sums, src, columns*width, nonzero)
					src[i*width] &^= 1
					if nonzero[i/columns] != 1 || slices.Max(append(nonzero[:i/columns:i/columns], nonzero[i/columns+1:]...)) != 0 {
						t.Fatalf("a value in row %d, column %d: nonzero %v", i/columns, i%columns, nonzero)
					}
				}
			})
		}
	}
}

func FuzzKernels(f *testing.F) {
	f.Add(uint16(16), uint8(9), uint8(0), []byte{0x80, 0x3f, 0xc0, 0xbf, 0, 0x80, 1, 0, 0x80, 0x7f})
	f.Add(uint16(40), uint8(8), uint8(3), []byte{0, 0, 0, 0x80, 1})
	f.Add(uint16(2), uint8(33), uint8(1), []byte{0xff, 0x7f, 0xff, 0x7b, 1, 0x7c, 0, 0xfc})
	f.Fuzz(func(t *testing.T, columns uint16, rows, gap uint8, pattern []byte) {
		if len(pattern) == 0 || columns > 600 || rows > 40 {
			return
		}
		start := make([]float32, columns)
		for i := range start {
			start[i] = decode(dtypeBF16, []byte{pattern[i%len(pattern)], pattern[(i+1)%len(pattern)]}, 0)
		}
		for dtype, width := range dtypes {
			stride := int(columns)*width + int(gap)
			src := bytes.Repeat(pattern, int(rows)*stride/len(pattern)+1)[:int(rows)*stride]
			compareKernels(t, dtype, start, src, stride, int(rows))
		}
	})
}

// BenchmarkKernel adds rows that are in the memory, beyond the caches, as pooling calls it: 4 layers of 4096, and one of
// 16. "read" is as fast as the memory can be read: bytes.IndexByte in search of what is not there.
func BenchmarkKernel(b *testing.B) {
	const size = 128 << 20
	src := bytes.Repeat([]byte{0x12, 0x34}, size/2)
	b.Run("read", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if bytes.IndexByte(src, 0xff) >= 0 {
				b.Fatal("found")
			}
		}
	})
	for _, dtype := range []string{dtypeBF16, dtypeF16, dtypeF32} {
		k, _ := kernelsFor(dtype)
		for _, shape := range []Shape{{4, 4096}, {1, 16}} {
			stride := shape.Layers * shape.HiddenSize * k.bytes
			rows := min(poolBufferBytes/stride, blockTokens)
			sums, nonzero := make([]float32, shape.Layers*shape.HiddenSize), make([]byte, rows)
			for _, add := range []struct {
				name string
				kernel
			}{{"best", k.best}, {"portable", k.portable}} {
				b.Run(fmt.Sprintf("%s/%dx%d/%s", dtype, shape.Layers, shape.HiddenSize, add.name), func(b *testing.B) {
					b.SetBytes(size)
					for b.Loop() {
						for at := 0; at < size; at += rows * stride {
							for l := range shape.Layers {
								add.kernel(sums[l*shape.HiddenSize:][:shape.HiddenSize], src[at+l*shape.HiddenSize*k.bytes:], stride, nonzero)
							}
						}
					}
				})
			}
		}
	}
}
