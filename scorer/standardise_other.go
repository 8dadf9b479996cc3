//go:build !amd64

package scorer

// applyVectorised leaves all features to the portable way.
func (scaling) applyVectorised([]float64, []float32) int { return 0 }
