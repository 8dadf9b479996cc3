package scorer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	manifestFile      = "router.json"
	defaultTensorFile = "router.safetensors"

	// maxManifestBytes bounds router.json. The largest known is under 2 KiB; the
	// rest is room for unknown fields.
	maxManifestBytes = 1 << 20
	// maxElements bounds each tensor and all of them together: 4 GiB of float32.
	// The largest known use is 36 layers x 4096 x 200 components, 0.11 GiB.
	maxElements = 1 << 30
	// maxLayers bounds the layers; the deepest known encoders have about 130.
	maxLayers = 1 << 16
	// maxTensors bounds the names built from router.json before the tensor file
	// is opened. The original checkpoint has 34.
	maxTensors = 1 << 16
)

// What format 1 fixes. Everything else in router.json is a free parameter.
const (
	formatVersion     = 1
	trainingMode      = "single_pca_block"
	representation    = "token_mean_per_layer_concat"
	featureBlocks     = 1
	probabilityLink   = "independent_sigmoid"
	ensembleReduction = "probability_mean"
)

// Manifest holds what a checkpoint says about itself in router.json, without
// the fields that format 1 fixes.
type Manifest struct {
	Encoder      string   // the model whose hidden states it was trained on
	Layers       int      // L: hidden-state layers in a feature vector
	HiddenSize   int      // H: width of a layer; a feature vector is L*H long, layer-major
	PCADim       int      // principal components
	TrunkHidden  []int    // width of each hidden layer of a member, in order
	EnsembleSize int      // members
	OutputNames  []string // a head each, in output order
	// VLLMLayerIDs are the layers vLLM must be launched to extract, ascending;
	// nil if the checkpoint does not say. The format's own ids only count 0..L-1.
	VLLMLayerIDs []int
}

// FeatureDim returns the length of a feature vector, Layers*HiddenSize.
func (m Manifest) FeatureDim() int { return m.Layers * m.HiddenSize }

func (m Manifest) clone() Manifest {
	m.TrunkHidden = slices.Clone(m.TrunkHidden)
	m.OutputNames = slices.Clone(m.OutputNames)
	m.VLLMLayerIDs = slices.Clone(m.VLLMLayerIDs)
	return m
}

// document is router.json as it stands in the file, fields in the order in
// which they are checked.
type document struct {
	FormatVersion      int      `json:"format_version"`
	TrainingMode       string   `json:"training_mode"`
	Encoder            string   `json:"encoder"`
	Representation     string   `json:"representation"`
	ExtractionLayerIDs []int    `json:"extraction_layer_ids"`
	HiddenSize         int      `json:"hidden_size"`
	RawFeatureDim      int      `json:"raw_feature_dim"`
	FeatureBlockCount  int      `json:"feature_block_count"`
	PCADim             int      `json:"pca_dim"`
	PCAWhiten          bool     `json:"pca_whiten"`
	OutputNames        []string `json:"output_names"`
	TrunkHidden        []int    `json:"trunk_hidden"`
	EnsembleSize       int      `json:"ensemble_size"`
	ProbabilityLink    string   `json:"probability_link"`
	EnsembleReduction  string   `json:"ensemble_reduction"`
	TensorFile         string   `json:"tensor_file"`
	VLLMLayerIDs       []int    `json:"vllm_layer_ids,omitempty"`
}

// parseDocument decodes and validates router.json. Unknown fields are ignored.
// The first fault in the order of the fields is reported.
func parseDocument(data []byte) (document, error) {
	// A map first: encoding/json would match names in any case and could not
	// tell an absent field from a zero one.
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return document{}, &CheckpointError{File: manifestFile, Problem: "is not a JSON object", Err: err}
	}
	const (
		aString  = "a string"
		aNumber  = "a whole number"
		aList    = "a list of whole numbers"
		optional = true
	)
	var d document
	fields := []struct {
		name     string
		into     any
		want     string
		optional bool
	}{
		{"format_version", &d.FormatVersion, aNumber, !optional},
		{"training_mode", &d.TrainingMode, aString, !optional},
		{"encoder", &d.Encoder, aString, !optional},
		{"representation", &d.Representation, aString, !optional},
		{"extraction_layer_ids", &d.ExtractionLayerIDs, aList, !optional},
		{"hidden_size", &d.HiddenSize, aNumber, !optional},
		{"raw_feature_dim", &d.RawFeatureDim, aNumber, !optional},
		{"feature_block_count", &d.FeatureBlockCount, aNumber, !optional},
		{"pca_dim", &d.PCADim, aNumber, !optional},
		{"pca_whiten", &d.PCAWhiten, "true or false", !optional},
		{"output_names", &d.OutputNames, "a list of strings", !optional},
		{"trunk_hidden", &d.TrunkHidden, aList, !optional},
		{"ensemble_size", &d.EnsembleSize, aNumber, !optional},
		{"probability_link", &d.ProbabilityLink, aString, !optional},
		{"ensemble_reduction", &d.EnsembleReduction, aString, !optional},
		{"tensor_file", &d.TensorFile, aString, !optional},
		{"vllm_layer_ids", &d.VLLMLayerIDs, aList, optional},
	}
	for _, f := range fields {
		value, ok := raw[f.name]
		if !ok || bytes.Equal(value, []byte("null")) {
			if f.optional {
				continue
			}
			return document{}, fieldError(f.name, "missing", f.want)
		}
		if err := json.Unmarshal(value, f.into); err != nil {
			return document{}, fieldError(f.name, string(value), f.want)
		}
	}
	if err := d.validate(); err != nil {
		return document{}, err
	}
	return d, nil
}

// validate checks every field, and that the sizes agree with one another and
// stay within the limits, so that no later product can overflow.
func (d document) validate() error {
	if err := d.validateTransform(); err != nil {
		return err
	}
	if err := validateNames(d.OutputNames); err != nil {
		return err
	}
	if err := d.validateEnsemble(); err != nil {
		return err
	}
	switch {
	case d.ProbabilityLink != probabilityLink:
		return fieldError("probability_link", quote(d.ProbabilityLink), quote(probabilityLink))
	case d.EnsembleReduction != ensembleReduction:
		return fieldError("ensemble_reduction", quote(d.EnsembleReduction), quote(ensembleReduction))
	case !isPlainName(d.TensorFile):
		return fieldError("tensor_file", quote(d.TensorFile), "the plain name of a file in the same folder")
	}
	return validateVLLMLayers(d.VLLMLayerIDs, len(d.ExtractionLayerIDs))
}

// validateTransform checks what leads from hidden states to components.
func (d document) validateTransform() error {
	layers := len(d.ExtractionLayerIDs)
	switch {
	case d.FormatVersion != formatVersion:
		return fieldError("format_version", d.FormatVersion, strconv.Itoa(formatVersion))
	case d.TrainingMode != trainingMode:
		return fieldError("training_mode", quote(d.TrainingMode), quote(trainingMode))
	case d.Encoder == "" || !utf8.ValidString(d.Encoder):
		return fieldError("encoder", quote(d.Encoder), "the name of the model whose hidden states are scored")
	case d.Representation != representation:
		return fieldError("representation", quote(d.Representation), quote(representation))
	case layers == 0:
		return fieldError("extraction_layer_ids", "empty", "0,1,...,n-1")
	case layers > maxLayers:
		return fieldError("extraction_layer_ids", fmt.Sprintf("a list of %d", layers), fmt.Sprintf("at most %d", maxLayers))
	case !countsFromZero(d.ExtractionLayerIDs):
		return fieldError("extraction_layer_ids", d.ExtractionLayerIDs, "0,1,...,n-1 in order")
	case d.HiddenSize <= 0:
		return fieldError("hidden_size", d.HiddenSize, "above 0")
	case exceeds(layers, d.HiddenSize):
		return fieldError("hidden_size", d.HiddenSize, fmt.Sprintf("at most %d for %d layers", maxElements/layers, layers))
	case d.RawFeatureDim != layers*d.HiddenSize:
		return fieldError("raw_feature_dim", d.RawFeatureDim,
			fmt.Sprintf("%d (%d extraction_layer_ids x hidden_size %d)", layers*d.HiddenSize, layers, d.HiddenSize))
	case d.FeatureBlockCount != featureBlocks:
		return fieldError("feature_block_count", d.FeatureBlockCount, strconv.Itoa(featureBlocks))
	case d.PCADim <= 0:
		return fieldError("pca_dim", d.PCADim, "above 0")
	case exceeds(d.PCADim, d.RawFeatureDim):
		return fieldError("pca_dim", d.PCADim, fmt.Sprintf("at most %d for raw_feature_dim %d", maxElements/d.RawFeatureDim, d.RawFeatureDim))
	case d.PCAWhiten:
		return fieldError("pca_whiten", d.PCAWhiten, "false")
	}
	return nil
}

// validateEnsemble checks trunk_hidden and ensemble_size. The elements of all
// tensors together must stay within maxElements: each product is checked before
// it is formed, and a sum of checked terms is at most maxTensors*maxElements.
func (d document) validateEnsemble() error {
	elements := int64(0)
	in := d.PCADim
	for i, out := range d.TrunkHidden {
		switch {
		case out <= 0:
			return fieldError("trunk_hidden", fmt.Sprintf("%d at position %d", out, i), "widths above 0")
		case exceeds(out, in):
			return fieldError("trunk_hidden", fmt.Sprintf("%d at position %d", out, i), fmt.Sprintf("at most %d after width %d", maxElements/in, in))
		}
		elements += int64(out)*int64(in) + int64(out)
		in = out
	}
	if exceeds(len(d.OutputNames), in) {
		return fieldError("output_names", fmt.Sprintf("a list of %d", len(d.OutputNames)), fmt.Sprintf("at most %d after width %d", maxElements/in, in))
	}
	elements += int64(len(d.OutputNames))*int64(in) + int64(len(d.OutputNames))
	memberTensors := tensorsPerLayer * (len(d.TrunkHidden) + 1)
	switch {
	case d.EnsembleSize <= 0:
		return fieldError("ensemble_size", d.EnsembleSize, "above 0")
	case d.EnsembleSize > (maxTensors-transformTensors)/memberTensors:
		return fieldError("ensemble_size", d.EnsembleSize,
			fmt.Sprintf("at most %d with %d tensors a member", (maxTensors-transformTensors)/memberTensors, memberTensors))
	}
	transform := (int64(d.PCADim) + transformVectors) * int64(d.RawFeatureDim)
	if limit := (maxElements - transform) / elements; int64(d.EnsembleSize) > limit {
		return fieldError("ensemble_size", d.EnsembleSize,
			fmt.Sprintf("at most %d numbers in all tensors together: the transform has %d, each member %d", maxElements, transform, elements))
	}
	return nil
}

func validateNames(names []string) error {
	if len(names) == 0 {
		return fieldError("output_names", "empty", "a name for every head")
	}
	seen := make(map[string]struct{}, len(names))
	for i, name := range names {
		if name == "" || !utf8.ValidString(name) {
			return fieldError("output_names", fmt.Sprintf("%s at position %d", quote(name), i), "a name for every head")
		}
		if _, twice := seen[name]; twice {
			return fieldError("output_names", quote(name)+" twice", "every name once")
		}
		seen[name] = struct{}{}
	}
	return nil
}

func validateVLLMLayers(ids []int, layers int) error {
	if ids == nil {
		return nil
	}
	const want = "ids from 0 up, each above the one before"
	if len(ids) != layers {
		return fieldError("vllm_layer_ids", fmt.Sprintf("a list of %d", len(ids)), fmt.Sprintf("as many as extraction_layer_ids, %d", layers))
	}
	last := -1
	for i, id := range ids {
		if id <= last {
			return fieldError("vllm_layer_ids", fmt.Sprintf("%d at position %d", id, i), want)
		}
		last = id
	}
	return nil
}

func (d document) manifest() Manifest {
	return Manifest{
		Encoder:      d.Encoder,
		Layers:       len(d.ExtractionLayerIDs),
		HiddenSize:   d.HiddenSize,
		PCADim:       d.PCADim,
		TrunkHidden:  d.TrunkHidden,
		EnsembleSize: d.EnsembleSize,
		OutputNames:  d.OutputNames,
		VLLMLayerIDs: d.VLLMLayerIDs,
	}
}

// document gives m the fields that format 1 fixes. The result is not validated.
func (m Manifest) document() document {
	d := document{
		FormatVersion:      formatVersion,
		TrainingMode:       trainingMode,
		Encoder:            m.Encoder,
		Representation:     representation,
		ExtractionLayerIDs: []int{},
		HiddenSize:         m.HiddenSize,
		RawFeatureDim:      m.FeatureDim(),
		FeatureBlockCount:  featureBlocks,
		PCADim:             m.PCADim,
		OutputNames:        m.OutputNames,
		TrunkHidden:        append([]int{}, m.TrunkHidden...), // [] rather than null in the file
		EnsembleSize:       m.EnsembleSize,
		ProbabilityLink:    probabilityLink,
		EnsembleReduction:  ensembleReduction,
		TensorFile:         defaultTensorFile,
		VLLMLayerIDs:       m.VLLMLayerIDs,
	}
	for i := range min(m.Layers, maxLayers+1) {
		d.ExtractionLayerIDs = append(d.ExtractionLayerIDs, i)
	}
	return d
}

// exceeds reports whether a*b, both above 0, is more than maxElements.
func exceeds(a, b int) bool { return a > maxElements/b }

func countsFromZero(ids []int) bool {
	for i, id := range ids {
		if id != i {
			return false
		}
	}
	return true
}

// isPlainName reports whether name is one path element that stays in its
// folder, on every system: the backslash counts as a separator.
func isPlainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00")
}

func quote(s string) string { return strconv.Quote(clip(s)) }
