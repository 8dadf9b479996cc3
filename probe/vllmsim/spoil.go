package vllmsim

import (
	"math"
	"slices"
)

// longHeader is twice what a client need accept (1 MiB) and far below what
// safetensors allows, so that nothing but the client's own limit refuses it.
const longHeader = 2 << 20

// spoil changes a good artifact into the one the fault describes. Faults of
// other kinds leave it as it is.
func (f Fault) spoil(a artifact) artifact {
	middle, last := len(a.states)/2, a.layers-1
	one := func(t int, row []float32, v float32) {
		if t == middle {
			row[last*a.hidden] = v
		}
	}
	switch f.kind { //nolint:exhaustive // the others leave the artifact good
	case headerTooLong:
		a.headerSize = longHeader
	case axesSwapped:
		a.shape = []int{a.layers, len(a.states), a.hidden}
	case layerTooMany:
		a = newArtifact(a.tokens, a.layers+1, a.hidden, a.dtype)
	case tooWide:
		a = newArtifact(a.tokens, a.layers, a.hidden+1, a.dtype)
	case rank2:
		a.shape = []int{len(a.states), a.layers * a.hidden}
	case noTokens:
		a = newArtifact(nil, a.layers, a.hidden, a.dtype)
	case rowsMissing:
		a.states = a.states[1:]
		a.shape = []int{len(a.states), a.layers, a.hidden}
	case oneNaN:
		a.alter = func(t int, row []float32) { one(t, row, float32(math.NaN())) }
	case oneInf:
		a.alter = func(t int, row []float32) { one(t, row, float32(math.Inf(1))) }
	case allZero:
		a.alter = func(_ int, row []float32) { clear(row) }
	case oneZeroVector:
		a.alter = func(t int, row []float32) {
			if t == middle {
				clear(row[last*a.hidden:])
			}
		}
	case otherTokens:
		a.tokens = slices.Clone(a.tokens)
		a.tokens[middle]++
	}
	return a
}
