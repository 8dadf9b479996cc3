package vllmsim

import (
	"encoding/binary"
	"math"
)

// The hidden state of token t in layer l is
//
//	W(word of t, l) + B(token t-1, token t, l) / 2
//
// where W and B are fixed pseudo-random vectors with components uniform in
// (-1, 1). The token mean of a prompt is therefore a random linear projection
// of its relative word and bigram counts: a linear model can learn from it
// which words a task is made of, and 1/length, through the template's tokens.
//
// Every component is an odd multiple of 2^-17 below 1.5. So it is exact in
// float32 and never zero, and as all three formats reach below 2^-17 it stays
// non-zero and finite when it is stored.
const stateUnit = 1.0 / (1 << 17)

// HiddenStates returns the states of tokens before they are rounded to a
// stored format, row-major [len(tokens), layers, hiddenSize]. It is meant for
// small shapes; [WriteArtifact] never holds more than a token.
func HiddenStates(tokens []int64, layers, hiddenSize int) []float32 {
	width := layers * hiddenSize
	out := make([]float32, len(tokens)*width)
	for t := range tokens {
		fillRow(out[t*width:(t+1)*width], tokens, t, hiddenSize)
	}
	return out
}

// Features returns the token means of the states of a one-message prompt, as
// read back from an artifact of that format: layer-major, [layer*hiddenSize+h].
// Sums are taken in float64.
func Features(text string, layers, hiddenSize int, dtype DType) []float32 {
	dtype = dtype.orDefault()
	tokens := Tokens(text)
	row := make([]float32, layers*hiddenSize)
	sums := make([]float64, len(row))
	for t := range tokens {
		fillRow(row, tokens, t, hiddenSize)
		for i, v := range row {
			sums[i] += float64(round(v, dtype))
		}
	}
	means := make([]float32, len(sums))
	for i, sum := range sums {
		means[i] = float32(sum / float64(len(tokens)))
	}
	return means
}

// fillRow computes the states of token t, [layers, hiddenSize] flat.
func fillRow(row []float32, tokens []int64, t, hiddenSize int) {
	previous := int64(0) // before the first token: no token has this id
	if t > 0 {
		previous = tokens[t-1]
	}
	word := seed(0, wordOf(tokens[t]))
	bigram := seed(seed(1, previous), tokens[t])
	for layer := 0; layer*hiddenSize < len(row); layer++ {
		fillLayer(row[layer*hiddenSize:(layer+1)*hiddenSize],
			seed(word, int64(layer)), seed(bigram, int64(layer)))
	}
}

// fillLayer computes one vector from the seeds of its W and its B. Each
// 64-bit output of the generators makes four components.
func fillLayer(vector []float32, word, bigram uint64) {
	for h := 0; h < len(vector); {
		word, bigram = word+splitMixStep, bigram+splitMixStep
		w, b := splitMix(word), splitMix(bigram)
		for range min(4, len(vector)-h) {
			odd := 2*(2*int32(int16(w))+1) + 2*int32(int16(b)) + 1
			vector[h] = float32(odd) * stateUnit
			w, b, h = w>>16, b>>16, h+1
		}
	}
}

// seed derives the seed of a stream from that of another and a number.
func seed(from uint64, n int64) uint64 { return splitMix(from ^ splitMix(uint64(n)+splitMixStep)) }

// splitMixStep and splitMix are the generator of Steele, Lea and Flood, "Fast
// splittable pseudorandom number generators" (2014): the output for each step
// of a Weyl sequence.
const splitMixStep = 0x9e3779b97f4a7c15

func splitMix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// appendRow appends values as stored in dtype, little-endian, rounded to
// nearest with ties to even.
func appendRow(buf []byte, row []float32, dtype DType) []byte {
	switch dtype {
	case BF16:
		for _, v := range row {
			buf = binary.LittleEndian.AppendUint16(buf, toBF16(v))
		}
	case F16:
		for _, v := range row {
			buf = binary.LittleEndian.AppendUint16(buf, toF16(v))
		}
	case F32:
		for _, v := range row {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		}
	}
	return buf
}

// round is v after a journey through dtype.
func round(v float32, dtype DType) float32 {
	switch dtype {
	case BF16:
		return math.Float32frombits(uint32(toBF16(v)) << 16)
	case F16:
		return fromF16(toF16(v))
	case F32:
	}
	return v
}

// toBF16 keeps the upper half of a float32.
func toBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 0x40 // rounding could carry a NaN into infinity
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// toF16 rounds to IEEE 754 binary16.
func toF16(v float32) uint16 {
	bits := math.Float32bits(v)
	sign := uint16(bits >> 16 & 0x8000)
	magnitude := math.Abs(float64(v))
	switch {
	case v != v:
		return sign | 0x7e00
	case magnitude >= 65520: // halfway between the largest number and what would follow
		return sign | 0x7c00
	case magnitude < 1.0/(1<<14): // subnormal: multiples of 2^-24; a carry makes the first normal number
		return sign | uint16(math.RoundToEven(magnitude*(1<<24)))
	}
	exponent := bits>>23&0xff - 127 + 15
	half := exponent<<10 | bits>>13&0x3ff
	rest := bits & 0x1fff
	if rest > 0x1000 || rest == 0x1000 && half&1 == 1 {
		half++ // a carry moves into the exponent, as it should
	}
	return sign | uint16(half)
}

// fromF16 widens IEEE 754 binary16.
func fromF16(half uint16) float32 {
	exponent, fraction := int(half>>10&0x1f), float64(half&0x3ff)
	var v float64
	switch exponent {
	case 0:
		v = math.Ldexp(fraction, -24)
	case 0x1f:
		v = math.Inf(1)
		if fraction != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(1024+fraction, exponent-25)
	}
	if half&0x8000 != 0 {
		v = -v
	}
	return float32(v)
}
