package scorer

import "fmt"

// standardise computes (x - scaler_mean)/scaler_scale - pca_mean, elementwise in
// float32 as the format has it: dst and x are [raw].
func (t *Tensors) standardise(dst []float64, x []float32) error {
	n := len(x)
	s := scaling{mean: t.ScalerMean[:n], scale: t.ScalerScale[:n], centre: t.PCAMean[:n]}
	return s.applyPortably(dst[:n], x, s.applyVectorised(dst[:n], x))
}

// scaling is what features are standardised with; all are [raw].
type scaling struct{ mean, scale, centre []float32 }

// applyPortably standardises the features from one on, and finds what is at fault.
func (s scaling) applyPortably(dst []float64, x []float32, from int) error {
	for i := from; i < len(x); i++ {
		centred := (x[i]-s.mean[i])/s.scale[i] - s.centre[i]
		dst[i] = float64(centred)
		// The parameters are finite, so a fault in any step shows in the last.
		if !finite(centred) {
			if !finite(x[i]) {
				return fmt.Errorf("%w: feature %d", ErrNonFinite, i)
			}
			return fmt.Errorf("%w: feature %d once standardised", ErrNonFinite, i)
		}
	}
	return nil
}
