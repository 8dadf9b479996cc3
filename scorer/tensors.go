package scorer

import (
	"fmt"
	"math"
)

// Tensors holds the numbers of a checkpoint. raw stands for Manifest.FeatureDim.
type Tensors struct {
	ScalerMean    []float32 // [raw]
	ScalerScale   []float32 // [raw], above 0
	PCAMean       []float32 // [raw]
	PCAComponents []float32 // [PCADim, raw], row-major
	Members       []Member  // EnsembleSize
}

// Member is one network of the ensemble: its hidden layers in order, then the
// output layer.
type Member []Dense

// Dense is one fully connected layer.
type Dense struct {
	Weight []float32 // [out, in], row-major
	Bias   []float32 // [out]
}

const (
	transformVectors = 3                    // scaler mean, scaler scale, PCA mean
	transformTensors = transformVectors + 1 // and the PCA components
	tensorsPerLayer  = 2                    // weight and bias
)

// slot is one tensor that a checkpoint must hold: its name in the file, its
// shape, and where its values stand.
type slot struct {
	name     string
	shape    []int
	values   *[]float32
	positive bool // every value must be above 0
}

func (s slot) elements() int {
	n := 1
	for _, d := range s.shape {
		n *= d
	}
	return n
}

// check reports the first value that the tensor may not hold.
func (s slot) check(file string) error {
	for i, v := range *s.values {
		switch {
		case !finite(v):
			return &CheckpointError{File: file, Part: s.name, Problem: fmt.Sprintf("is %v at element %d, want finite numbers", v, i)}
		case s.positive && v <= 0:
			return &CheckpointError{File: file, Part: s.name, Problem: fmt.Sprintf("is %v at element %d, want numbers above 0", v, i)}
		}
	}
	return nil
}

// emptyTensors returns Tensors with the members and layers of m and no values.
func emptyTensors(m Manifest) *Tensors {
	t := &Tensors{Members: make([]Member, m.EnsembleSize)}
	for i := range t.Members {
		t.Members[i] = make(Member, len(m.TrunkHidden)+1)
	}
	return t
}

// slots lists every tensor of a valid manifest, pointing into t, which must have
// the members and layers of m. Names and shapes: checkpoint format 1, the trunk
// and the ensemble taken from router.json.
func slots(m Manifest, t *Tensors) []slot {
	raw := m.FeatureDim()
	list := make([]slot, 0, transformTensors+m.EnsembleSize*tensorsPerLayer*(len(m.TrunkHidden)+1))
	list = append(list,
		slot{name: "transform.scaler_mean", shape: []int{raw}, values: &t.ScalerMean},
		slot{name: "transform.scaler_scale", shape: []int{raw}, values: &t.ScalerScale, positive: true},
		slot{name: "transform.pca_mean", shape: []int{raw}, values: &t.PCAMean},
		slot{name: "transform.pca_components", shape: []int{m.PCADim, raw}, values: &t.PCAComponents},
	)
	for i, member := range t.Members {
		in := m.PCADim
		for j := range member {
			out := len(m.OutputNames)
			if j < len(m.TrunkHidden) {
				out = m.TrunkHidden[j]
			}
			prefix := fmt.Sprintf("ensemble.%d.%s", i, layerName(j, len(member)))
			list = append(list,
				slot{name: prefix + ".weight", shape: []int{out, in}, values: &member[j].Weight},
				slot{name: prefix + ".bias", shape: []int{out}, values: &member[j].Bias},
			)
			in = out
		}
	}
	return list
}

// layerName names layer i of n as the format does: linear1.. and output.
func layerName(i, n int) string {
	if i == n-1 {
		return "output"
	}
	return fmt.Sprintf("linear%d", i+1)
}

// finite reports whether v is neither NaN nor an infinity: its exponent bits are
// not all set.
func finite(v float32) bool {
	const exponent = 0x7f800000
	return math.Float32bits(v)&exponent != exponent
}
