package probe

import (
	"encoding/binary"
	"math"
)

const (
	signF32     = 1 << 31
	exponentF32 = 0xff << 23
)

// A treeFunc adds eight rows to sums, as a tree; a rowFunc adds one. A row is len(sums) elements. They return for each
// row its elements, as float32, with their bits or-ed.
type (
	treeFunc func(sums []float32, rows *[treeRows][]byte) [treeRows]uint32
	rowFunc  func(sums []float32, row []byte) uint32
)

// portable makes a kernel for elements of width bytes.
func portable(width int, tree treeFunc, row rowFunc) kernel {
	return func(sums []float32, src []byte, stride int, nonzero []byte) {
		n, trees := width*len(sums), len(nonzero)/treeRows*treeRows
		var rows [treeRows][]byte
		for first := 0; first < trees; first += treeRows {
			for r := range rows {
				rows[r] = src[(first+r)*stride:][:n]
			}
			for r, seen := range tree(sums, &rows) {
				mark(&nonzero[first+r], seen)
			}
		}
		for r := trees; r < len(nonzero); r++ {
			mark(&nonzero[r], row(sums, src[r*stride:][:n]))
		}
	}
}

// mark notes that a row is not zero, if one of its bits but the signs is set.
func mark(nonzero *byte, seen uint32) {
	if seen&^signF32 != 0 {
		*nonzero = 1
	}
}

// The functions of the three dtypes differ in one line, which has to stand in the loop to be fast. Rows are locals there
// and taken four at a time, so that what is at hand stays in registers.

// four sums the float32 values of four rows, as half a tree.
func four(a, b, c, d uint32) float32 {
	return (math.Float32frombits(a) + math.Float32frombits(b)) + (math.Float32frombits(c) + math.Float32frombits(d))
}

func treeBF16(sums []float32, rows *[treeRows][]byte) [treeRows]uint32 {
	r0, r1, r2, r3, r4, r5, r6, r7 := rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7]
	var s0, s1, s2, s3, s4, s5, s6, s7 uint32
	for i := range sums {
		a, b, c, d := bf16(r0, i), bf16(r1, i), bf16(r2, i), bf16(r3, i)
		s0, s1, s2, s3 = s0|a, s1|b, s2|c, s3|d
		sum := four(a, b, c, d)
		a, b, c, d = bf16(r4, i), bf16(r5, i), bf16(r6, i), bf16(r7, i)
		s4, s5, s6, s7 = s4|a, s5|b, s6|c, s7|d
		sums[i] += sum + four(a, b, c, d)
	}
	return [treeRows]uint32{s0, s1, s2, s3, s4, s5, s6, s7}
}

func rowBF16(sums []float32, row []byte) (seen uint32) {
	for i := range sums {
		b := bf16(row, i)
		seen |= b
		sums[i] += math.Float32frombits(b)
	}
	return seen
}

func treeF16(sums []float32, rows *[treeRows][]byte) [treeRows]uint32 {
	r0, r1, r2, r3, r4, r5, r6, r7 := rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7]
	var s0, s1, s2, s3, s4, s5, s6, s7 uint32
	for i := range sums {
		a, b, c, d := f16(r0, i), f16(r1, i), f16(r2, i), f16(r3, i)
		s0, s1, s2, s3 = s0|a, s1|b, s2|c, s3|d
		sum := four(a, b, c, d)
		a, b, c, d = f16(r4, i), f16(r5, i), f16(r6, i), f16(r7, i)
		s4, s5, s6, s7 = s4|a, s5|b, s6|c, s7|d
		sums[i] += sum + four(a, b, c, d)
	}
	return [treeRows]uint32{s0, s1, s2, s3, s4, s5, s6, s7}
}

func rowF16(sums []float32, row []byte) (seen uint32) {
	for i := range sums {
		b := f16(row, i)
		seen |= b
		sums[i] += math.Float32frombits(b)
	}
	return seen
}

func treeF32(sums []float32, rows *[treeRows][]byte) [treeRows]uint32 {
	r0, r1, r2, r3, r4, r5, r6, r7 := rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7]
	var s0, s1, s2, s3, s4, s5, s6, s7 uint32
	for i := range sums {
		a, b, c, d := f32(r0, i), f32(r1, i), f32(r2, i), f32(r3, i)
		s0, s1, s2, s3 = s0|a, s1|b, s2|c, s3|d
		sum := four(a, b, c, d)
		a, b, c, d = f32(r4, i), f32(r5, i), f32(r6, i), f32(r7, i)
		s4, s5, s6, s7 = s4|a, s5|b, s6|c, s7|d
		sums[i] += sum + four(a, b, c, d)
	}
	return [treeRows]uint32{s0, s1, s2, s3, s4, s5, s6, s7}
}

func rowF32(sums []float32, row []byte) (seen uint32) {
	for i := range sums {
		b := f32(row, i)
		seen |= b
		sums[i] += math.Float32frombits(b)
	}
	return seen
}

// bf16 returns element i of a row as a float32: a bfloat16 is its upper half.
func bf16(row []byte, i int) uint32 { return uint32(binary.LittleEndian.Uint16(row[2*i:])) << 16 }

func f32(row []byte, i int) uint32 { return binary.LittleEndian.Uint32(row[4*i:]) }

// f16 returns element i of a row, an IEEE 754 half float, as a float32.
func f16(row []byte, i int) uint32 { return float16(uint32(binary.LittleEndian.Uint16(row[2*i:]))) }

// float16 widens a half float: 1 sign bit, 5 exponent bits with bias 15, 10 fraction bits.
func float16(b uint32) uint32 {
	sign, rest := (b&0x8000)<<16, b&0x7fff
	if rest-0x0400 < 0x7c00-0x0400 { // a normal number: only the bias grows, from 15 to 127
		return sign | (rest<<13 + (127-15)<<23)
	}
	return oddFloat16(sign, rest)
}

// oddFloat16 widens what is not a normal number; rest is all but the sign.
func oddFloat16(sign, rest uint32) uint32 {
	if rest >= 0x7c00 { // infinity or NaN: float32's largest exponent
		return sign | rest<<13 | exponentF32
	}
	// 0 or subnormal: the fraction counts units of 2^-24. Made from an integer, since subnormal floats are slow.
	return sign | math.Float32bits(float32(rest)*0x1p-24)
}
