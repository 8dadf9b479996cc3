package features

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

const (
	format       = "pointsman-features-1"
	rowsTensor   = "features"
	digestTensor = "digests"

	keyLayers     = "layers"
	keyHiddenSize = "hidden_size"

	bytesPerFloat = 4
	// prefixBytes is the length of the little-endian header length that a
	// safetensors file begins with.
	prefixBytes = 8
	// headerBytes is what the writer keeps free for prefix and header, padded with
	// spaces as safetensors allows: the header must hold the number of rows, which
	// is known last. An encoder's name and the ids of 130 layers take 2 KiB.
	headerBytes = 16 << 10
	// maxHeaderBytes bounds the header of a file that is read.
	maxHeaderBytes = 1 << 20
	// maxDim bounds layers*hidden_size: 4 GiB a row, far beyond any encoder, and
	// small enough that no product with it overflows.
	maxDim = 1 << 30
	// maxRows bounds the rows for the same reason.
	maxRows = 1 << 30
)

var (
	// ErrFormat reports a file that is not a whole features file.
	ErrFormat = errors.New("not a features file")
	// ErrOtherProbe reports features of another encoder, shape or revision than
	// what they are to be used with.
	ErrOtherProbe = errors.New("features of another probe")
	// ErrNonFinite reports a NaN or an infinity among the features.
	ErrNonFinite = errors.New("not finite")
)

// Digest identifies a task without holding its text: SHA-256 of its bytes.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a task.
func DigestOf(task string) Digest { return sha256.Sum256([]byte(task)) }

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Header says where features come from.
type Header struct {
	Encoder       string // as the checkpoint will name it
	Layers        int    // L
	HiddenSize    int    // H; a row has L*H numbers
	ProbeRevision string // free text, as in the probe's configuration
	VLLMLayerIDs  []int  // the layers vLLM was launched to extract; nil: not known
}

// Dim returns the length of a row, Layers*HiddenSize.
func (h Header) Dim() int { return h.Layers * h.HiddenSize }

// Validate reports everything that is wrong with the header.
func (h Header) Validate() error {
	var faults []error
	if h.Encoder == "" || !utf8.ValidString(h.Encoder) {
		faults = append(faults, errors.New("encoder is empty or not UTF-8"))
	}
	switch {
	case h.Layers <= 0:
		faults = append(faults, fmt.Errorf("layers is %d, want above 0", h.Layers))
	case h.HiddenSize <= 0:
		faults = append(faults, fmt.Errorf("hidden_size is %d, want above 0", h.HiddenSize))
	case h.HiddenSize > maxDim/h.Layers:
		faults = append(faults, fmt.Errorf("%d layers of %d numbers are more than %d", h.Layers, h.HiddenSize, maxDim))
	}
	if !utf8.ValidString(h.ProbeRevision) {
		faults = append(faults, errors.New("probe_revision is not UTF-8"))
	}
	if h.VLLMLayerIDs != nil && len(h.VLLMLayerIDs) != h.Layers {
		faults = append(faults, fmt.Errorf("vllm_layer_ids has %d ids, want %d, one a layer", len(h.VLLMLayerIDs), h.Layers))
	}
	return errors.Join(faults...)
}

// Matches reports, as an [ErrOtherProbe], the first thing in which features with
// header h differ from those with header want. Layer ids are compared where both
// know them.
func (h Header) Matches(want Header) error {
	for _, f := range []struct {
		name      string
		got, want any
	}{
		{"encoder", strconv.Quote(h.Encoder), strconv.Quote(want.Encoder)},
		{keyLayers, h.Layers, want.Layers},
		{keyHiddenSize, h.HiddenSize, want.HiddenSize},
		{"probe_revision", strconv.Quote(h.ProbeRevision), strconv.Quote(want.ProbeRevision)},
	} {
		if f.got != f.want {
			return fmt.Errorf("%w: %s is %v, want %v", ErrOtherProbe, f.name, f.got, f.want)
		}
	}
	if h.VLLMLayerIDs != nil && want.VLLMLayerIDs != nil && !slices.Equal(h.VLLMLayerIDs, want.VLLMLayerIDs) {
		return fmt.Errorf("%w: vllm_layer_ids is %v, want %v", ErrOtherProbe, h.VLLMLayerIDs, want.VLLMLayerIDs)
	}
	return nil
}

// tensorInfo is a tensor's entry in a safetensors header.
type tensorInfo struct {
	DType       string   `json:"dtype"`
	Shape       []uint64 `json:"shape"`
	DataOffsets []uint64 `json:"data_offsets"`
}

// document is the safetensors header of a features file.
type document struct {
	Metadata map[string]string `json:"__metadata__"`
	Features *tensorInfo       `json:"features"`
	Digests  *tensorInfo       `json:"digests"`
}

// encode returns the first headerBytes of a file of n rows.
func (h Header) encode(n int) ([]byte, error) {
	metadata := map[string]string{
		"format":         format,
		"encoder":        h.Encoder,
		keyLayers:        strconv.Itoa(h.Layers),
		keyHiddenSize:    strconv.Itoa(h.HiddenSize),
		"probe_revision": h.ProbeRevision,
	}
	if h.VLLMLayerIDs != nil {
		ids, err := json.Marshal(h.VLLMLayerIDs)
		if err != nil {
			return nil, err
		}
		metadata["vllm_layer_ids"] = string(ids)
	}
	rows, width := uint64(n), uint64(h.Dim())
	end := rows * width * bytesPerFloat
	data, err := json.Marshal(document{
		Metadata: metadata,
		Features: &tensorInfo{"F32", []uint64{rows, width}, []uint64{0, end}},
		Digests:  &tensorInfo{"U8", []uint64{rows, sha256.Size}, []uint64{end, end + rows*sha256.Size}},
	})
	if err != nil {
		return nil, err
	}
	return pad(data)
}

// decode reads a safetensors header. The offsets are checked by layout.
func decode(data []byte) (h Header, doc document, err error) {
	if err := json.Unmarshal(data, &doc); err != nil {
		return h, doc, fmt.Errorf("%w: its header is not JSON of a safetensors file", ErrFormat)
	}
	if got := doc.Metadata["format"]; got != format {
		return h, doc, fmt.Errorf("%w: __metadata__ format is %.60q, want %q", ErrFormat, got, format)
	}
	h.Encoder = doc.Metadata["encoder"]
	h.ProbeRevision = doc.Metadata["probe_revision"]
	for name, into := range map[string]*int{keyLayers: &h.Layers, keyHiddenSize: &h.HiddenSize} {
		if *into, err = strconv.Atoi(doc.Metadata[name]); err != nil {
			return h, doc, fmt.Errorf("%w: __metadata__ %s is %.60q, want a whole number", ErrFormat, name, doc.Metadata[name])
		}
	}
	if ids, ok := doc.Metadata["vllm_layer_ids"]; ok {
		if err := json.Unmarshal([]byte(ids), &h.VLLMLayerIDs); err != nil {
			return h, doc, fmt.Errorf("%w: __metadata__ vllm_layer_ids is not a list of whole numbers", ErrFormat)
		}
	}
	if err := h.Validate(); err != nil {
		return h, doc, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return h, doc, nil
}

// layout checks both tensors against the header and the number of bytes that
// follow it, and returns the number of rows.
func (d document) layout(h Header, rest uint64) (rows int, err error) {
	for _, t := range []struct {
		name, dtype  string
		info         *tensorInfo
		width, bytes uint64
	}{
		{rowsTensor, "F32", d.Features, uint64(h.Dim()), bytesPerFloat},
		{digestTensor, "U8", d.Digests, sha256.Size, 1},
	} {
		switch {
		case t.info == nil:
			return 0, fmt.Errorf("%w: tensor %s is missing", ErrFormat, t.name)
		case t.info.DType != t.dtype:
			return 0, fmt.Errorf("%w: tensor %s has dtype %.20q, want %s", ErrFormat, t.name, t.info.DType, t.dtype)
		case len(t.info.Shape) != 2 || t.info.Shape[1] != t.width || t.info.Shape[0] > maxRows:
			return 0, fmt.Errorf("%w: tensor %s has shape %v, want [rows, %d]", ErrFormat, t.name, t.info.Shape, t.width)
		case t.info.Shape[0] != d.Features.Shape[0]:
			return 0, fmt.Errorf("%w: %d digests for %d rows of features", ErrFormat, t.info.Shape[0], d.Features.Shape[0])
		}
		size := t.info.Shape[0] * t.width * t.bytes
		if o := t.info.DataOffsets; len(o) != 2 || o[0] > rest || o[1] > rest || o[1] < o[0] || o[1]-o[0] != size {
			return 0, fmt.Errorf("%w: tensor %s has data_offsets %v in %d bytes of data, want a range of %d bytes (is the file cut off?)",
				ErrFormat, t.name, o, rest, size)
		}
	}
	return int(d.Features.Shape[0]), nil
}
