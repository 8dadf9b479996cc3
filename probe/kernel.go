package probe

import (
	"encoding/binary"
	"math"
)

const (
	signF32     = 1 << 31
	exponentF32 = 0xff << 23
)

// kernel decodes the little-endian elements of src, adds them to sums, element by element, and returns all their bits
// but the sign's, or-ed: 0 says that every element is 0 or -0. len(src) is len(sums) times the element's width.
// Elements are independent of each other, so a kernel that takes several at a time gives the same bits.
type kernel func(sums []float32, src []byte) uint32

// kernelFor returns the kernel of a dtype of hidden states.
func kernelFor(dtype string) (kernel, bool) {
	switch dtype {
	case dtypeBF16:
		return addBF16, true
	case dtypeF16:
		return addF16, true
	case dtypeF32:
		return addF32, true
	default:
		return nil, false
	}
}

// addBF16: a bfloat16 is the upper half of a float32. Four are taken from one load, which halves the time.
func addBF16(sums []float32, src []byte) uint32 {
	var seen uint32
	for len(sums) >= 4 && len(src) >= 8 {
		word := binary.LittleEndian.Uint64(src)
		b0, b1 := uint32(word)<<16, uint32(word)&0xffff0000
		b2, b3 := uint32(word>>32)<<16, uint32(word>>32)&0xffff0000
		sums[0] += math.Float32frombits(b0)
		sums[1] += math.Float32frombits(b1)
		sums[2] += math.Float32frombits(b2)
		sums[3] += math.Float32frombits(b3)
		seen |= b0 | b1 | b2 | b3
		sums, src = sums[4:], src[8:]
	}
	for i := range sums {
		b := uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16
		sums[i] += math.Float32frombits(b)
		seen |= b
	}
	return seen &^ signF32
}

// addF32: two are taken from one load.
func addF32(sums []float32, src []byte) uint32 {
	var seen uint32
	for len(sums) >= 2 && len(src) >= 8 {
		word := binary.LittleEndian.Uint64(src)
		b0, b1 := uint32(word), uint32(word>>32)
		sums[0] += math.Float32frombits(b0)
		sums[1] += math.Float32frombits(b1)
		seen |= b0 | b1
		sums, src = sums[2:], src[8:]
	}
	for i := range sums {
		b := binary.LittleEndian.Uint32(src[4*i:])
		sums[i] += math.Float32frombits(b)
		seen |= b
	}
	return seen &^ signF32
}

// addF16: four are taken from one load.
func addF16(sums []float32, src []byte) uint32 {
	var seen uint64
	for len(sums) >= 4 && len(src) >= 8 {
		word := binary.LittleEndian.Uint64(src)
		sums[0] += float16(uint32(word) & 0xffff)
		sums[1] += float16(uint32(word) >> 16)
		sums[2] += float16(uint32(word>>32) & 0xffff)
		sums[3] += float16(uint32(word >> 48))
		seen |= word & 0x7fff7fff7fff7fff
		sums, src = sums[4:], src[8:]
	}
	for i := range sums {
		b := binary.LittleEndian.Uint16(src[2*i:])
		sums[i] += float16(uint32(b))
		seen |= uint64(b & 0x7fff)
	}
	return uint32(seen | seen>>32)
}

// float16 widens an IEEE 754 half float: 1 sign bit, 5 exponent bits with bias 15, 10 fraction bits.
func float16(b uint32) float32 {
	sign, rest := (b&0x8000)<<16, b&0x7fff
	if rest-0x0400 < 0x7c00-0x0400 { // a normal number: only the bias grows, from 15 to 127
		return math.Float32frombits(sign | (rest<<13 + (127-15)<<23))
	}
	return oddFloat16(sign, rest)
}

// oddFloat16 widens what is not a normal number; rest is all but the sign.
func oddFloat16(sign, rest uint32) float32 {
	if rest >= 0x7c00 { // infinity or NaN: float32's largest exponent
		return math.Float32frombits(sign | rest<<13 | exponentF32)
	}
	// 0 or subnormal: the fraction counts units of 2^-24. Made from an integer, since subnormal floats are slow.
	return math.Float32frombits(sign | math.Float32bits(float32(rest)*0x1p-24))
}
