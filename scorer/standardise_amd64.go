package scorer

// applyVectorised standardises features from the first on and returns how many it
// did: those beyond a multiple of eight are left, and all from a stretch on in which
// something is not finite.
func (s scaling) applyVectorised(dst []float64, x []float32) int {
	const eight = 2 * lanes
	whole := len(x) &^ (eight - 1)
	if !canVectorise {
		return 0
	}
	for i := 0; i < whole; i += longStretch {
		eights := min(longStretch, whole-i) / eight
		if standardise8(&dst[i], &x[i], &s.mean[i], &s.scale[i], &s.centre[i], eights) != 0 {
			return i
		}
	}
	return whole
}
