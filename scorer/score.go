package scorer

import (
	"fmt"
	"math"
)

// scratch holds the intermediate vectors of one Score.
type scratch struct {
	projection              // its x is [raw], its y [PCADim]
	input      []float64    // of a layer, of the widest
	layers     [2][]float32 // outputs of two neighbouring layers, each of the widest
}

func newScratch(m Manifest) *scratch {
	widest := len(m.OutputNames)
	for _, w := range m.TrunkHidden {
		widest = max(widest, w)
	}
	return &scratch{
		projection: newProjection(m.FeatureDim(), m.PCADim),
		input:      make([]float64, max(widest, m.PCADim)),
		layers:     [2][]float32{make([]float32, widest), make([]float32, widest)},
	}
}

// Score returns, for every member of the ensemble and every head, the
// probability that the head's model answers correctly. features is one token-mean
// vector, layer-major: features[layer*HiddenSize+h]. It is only read.
//
// The steps are those of checkpoint format 1, in float32 with sums in float64:
// standardise, project on the principal components, and for each member dense
// layers with ReLU, then a sigmoid for each head. The errors are [ErrShape] and
// [ErrNonFinite].
func (c *Checkpoint) Score(features []float32) (Probabilities, error) {
	if len(features) != c.manifest.FeatureDim() {
		return Probabilities{}, fmt.Errorf("%w: %d features, the checkpoint takes %d (%d layers x %d)",
			ErrShape, len(features), c.manifest.FeatureDim(), c.manifest.Layers, c.manifest.HiddenSize)
	}
	s, _ := c.scratch.Get().(*scratch) // the pool makes nothing else
	defer c.scratch.Put(s)

	if err := c.tensors.standardise(s.x, features); err != nil {
		return Probabilities{}, err
	}
	c.projector.project(&s.projection)
	if i := firstNonFinite(s.y); i >= 0 {
		return Probabilities{}, fmt.Errorf("%w: principal component %d", ErrNonFinite, i)
	}
	p := Probabilities{Members: c.manifest.EnsembleSize, Heads: len(c.manifest.OutputNames)}
	p.Values = make([]float32, p.Members*p.Heads)
	for i, member := range c.tensors.Members {
		logits, err := member.forward(s.y, s.input, &s.layers)
		if err != nil {
			return Probabilities{}, fmt.Errorf("member %d: %w", i, err)
		}
		row := p.Values[i*p.Heads:][:p.Heads]
		for head, logit := range logits {
			row[head] = sigmoid(logit)
		}
	}
	return p, nil
}

// forward runs one member on x, [PCADim], and returns its logits, [heads], which
// stand in one of the buffers. input is space for the widest layer's input.
func (m Member) forward(x []float32, input []float64, buffers *[2][]float32) ([]float32, error) {
	for i, layer := range m {
		y := buffers[i%2][:len(layer.Bias)]
		for j, v := range x {
			input[j] = float64(v)
		}
		layer.forward(y, input[:len(x)], i < len(m)-1)
		if j := firstNonFinite(y); j >= 0 {
			return nil, fmt.Errorf("%w: %s, output %d", ErrNonFinite, layerName(i, len(m)), j)
		}
		x = y
	}
	return x, nil
}

// forward computes dst = W x + b, [out] from [in], with max(., 0) if relu.
func (d Dense) forward(dst []float32, x []float64, relu bool) {
	matVec(dst, d.Weight, x)
	for i, b := range d.Bias {
		dst[i] += b
		if relu {
			// The built-in keeps a NaN, which a comparison would turn into 0.
			dst[i] = max(dst[i], 0)
		}
	}
}

// sigmoid maps a finite logit to [0,1]. In float64 the exponential of a large
// float32 is an infinity and the quotient then exactly 0: no case needs care.
func sigmoid(logit float32) float32 {
	return float32(1 / (1 + math.Exp(-float64(logit))))
}

// firstNonFinite returns the position of the first NaN or infinity, or -1.
func firstNonFinite(values []float32) int {
	for i, v := range values {
		if !finite(v) {
			return i
		}
	}
	return -1
}
