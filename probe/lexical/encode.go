package lexical

import "math"

// Encoder is the name of the encoder, for configurations and checkpoints.
const Encoder = "pointsman/lexical-1"

// Sizes of the blocks of a feature vector, and where they begin.
const (
	wordValues  = 1536
	charValues  = 2048
	shapeValues = 512

	charStart  = wordValues
	shapeStart = charStart + charValues

	// Dim is the length of a feature vector.
	Dim = shapeStart + shapeValues
)

// Encode returns the features of a text, Dim of them, and how many pieces it has.
// It reads the text once; its memory does not depend on the text.
func Encode(text string) (features []float32, pieces int) {
	e := encoder{counts: make([]int64, shapeStart)}
	e.words.into, e.chars.into = e.counts[:charStart], e.counts[charStart:]
	e.chars.begin()
	for _, r := range text {
		e.read(r)
	}
	e.words.end()
	e.chars.end()
	e.shape.end(len(text), e.words.pieces)

	features = make([]float32, Dim)
	fill(features[:charStart], e.words.into)
	fill(features[charStart:shapeStart], e.chars.into)
	e.shape.fill(features[shapeStart:])
	return features, e.words.pieces
}

// encoder is a text being read.
type encoder struct {
	counts []int64 // signed, of words and chars
	words  words
	chars  chars
	shape  shape
}

func (e *encoder) read(r rune) {
	c := classOf(r)
	e.shape.read(r, c)
	if c == space {
		e.words.end()
		e.chars.end()
		return
	}
	folded := fold(r, c)
	e.words.read(folded, c)
	e.chars.read(folded)
}

// fill turns signed counts c into sign(c)·√(|c|/Σ|c|).
func fill(out []float32, counts []int64) {
	var sum int64
	for _, c := range counts {
		sum += max(c, -c)
	}
	for i, c := range counts {
		switch {
		case c > 0:
			out[i] = float32(math.Sqrt(float64(c) / float64(sum)))
		case c < 0:
			out[i] = -float32(math.Sqrt(float64(-c) / float64(sum)))
		}
	}
}
