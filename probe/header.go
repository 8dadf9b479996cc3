package probe

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

// A safetensors file is: the header's length N as a little-endian uint64; N bytes of JSON, padded with spaces; the
// tensors' data without gaps. The header maps each tensor's name to its dtype, its shape and its range in the data.
// See https://github.com/huggingface/safetensors#format.
const (
	lengthBytes = 8
	// maxHeaderBytes is far more than the some 200 bytes of an artifact's two tensors; it bounds what a broken or
	// hostile file makes us allocate.
	maxHeaderBytes = 1 << 20
)

// errIncomplete says that a file is a true prefix of an artifact as far as can be seen: it may still be growing.
var errIncomplete = errors.New("file is not complete")

// tensor is one entry of a header, with its range resolved to offsets in the file.
type tensor struct {
	dtype string
	shape []uint64
	begin int64 // offset of the first byte in the file
	size  int64 // in bytes
}

// header is a checked header: the tensors' ranges follow each other without gap or overlap and end where the file ends.
type header struct {
	tensors map[string]tensor
	total   int64 // size of the whole file in bytes
}

// readHeader reads the header of a file of size bytes and checks that the file is whole. It returns an error that
// matches errIncomplete if the file may still be growing, any other error if no further byte can make it right.
func readHeader(r io.ReaderAt, size, maxTotal int64) (header, error) {
	if size > maxTotal {
		return header{}, fmt.Errorf("file of %d bytes is larger than the limit of %d", size, maxTotal)
	}
	if size < lengthBytes {
		return header{}, errIncomplete
	}
	var lengthField [lengthBytes]byte
	if err := readFull(r, lengthField[:], 0); err != nil {
		return header{}, err
	}
	length := binary.LittleEndian.Uint64(lengthField[:])
	if length > maxHeaderBytes {
		return header{}, fmt.Errorf("header of %d bytes is longer than the limit of %d", length, maxHeaderBytes)
	}
	if size < lengthBytes+int64(length) {
		return header{}, errIncomplete
	}
	text := make([]byte, length)
	if err := readFull(r, text, lengthBytes); err != nil {
		return header{}, err
	}
	h, err := parseHeader(text)
	if err != nil {
		return header{}, fmt.Errorf("header: %w", err)
	}
	switch {
	case h.total > maxTotal:
		return header{}, fmt.Errorf("file of %d bytes is larger than the limit of %d", h.total, maxTotal)
	case size < h.total:
		return header{}, errIncomplete
	case size > h.total:
		return header{}, fmt.Errorf("file has %d bytes after its last tensor", size-h.total)
	}
	return h, nil
}

// readFull reads len(p) bytes at off. A file that ends early was cut since its size was taken, and may grow again.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case errors.Is(err, io.EOF):
		return errIncomplete
	default:
		return bare(err)
	}
}

// parseHeader parses the JSON of a header strictly: safetensors forbids duplicate names, and a reader that takes the
// last of two would see another file than one that takes the first.
func parseHeader(text []byte) (header, error) {
	if len(text) == 0 || text[0] != '{' || !utf8.Valid(text) || !json.Valid(text) {
		return header{}, errors.New("is not a JSON object")
	}
	h := header{tensors: make(map[string]tensor), total: lengthBytes + int64(len(text))}
	names := make([]string, 0, 2)
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	err := eachField(dec, func(name string) error {
		if name == "__metadata__" {
			return skipMetadata(dec)
		}
		t, err := parseTensor(dec)
		if err != nil {
			// The name is the file's own text; only the two known ones are safe to repeat.
			if name == tensorHiddenStates || name == tensorTokenIDs {
				return fmt.Errorf("tensor %s: %w", name, err)
			}
			return fmt.Errorf("another tensor: %w", err)
		}
		h.tensors[name] = t
		names = append(names, name)
		return nil
	})
	if err != nil {
		return header{}, err
	}
	return h, h.place(names)
}

// place turns the ranges, which count from the end of the header, into offsets in the file, and checks that they follow
// each other.
func (h *header) place(names []string) error {
	slices.SortFunc(names, func(a, b string) int {
		ta, tb := h.tensors[a], h.tensors[b]
		// An empty tensor sorts before the one that begins where it stands.
		return cmp.Or(cmp.Compare(ta.begin, tb.begin), cmp.Compare(ta.size, tb.size))
	})
	data, end := h.total, int64(0)
	for _, name := range names {
		t := h.tensors[name]
		if t.begin != end {
			return errors.New("data_offsets leave a gap or overlap")
		}
		end = t.begin + t.size
		if end < t.begin || data+end < data {
			return errors.New("data_offsets overflow")
		}
		t.begin += data
		h.tensors[name] = t
	}
	h.total = data + end
	return nil
}

// parseTensor parses one tensor's entry; its range still counts from the end of the header.
func parseTensor(dec *json.Decoder) (tensor, error) {
	var t tensor
	var offsets []uint64
	err := eachField(dec, func(field string) (err error) {
		switch field {
		case "dtype":
			t.dtype, err = parseString(dec)
		case "shape":
			t.shape, err = parseUints(dec)
		case "data_offsets":
			offsets, err = parseUints(dec)
		default:
			return errors.New("unknown field")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		return nil
	})
	if err != nil {
		return tensor{}, err
	}
	width, ok := dtypeBytes(t.dtype)
	switch {
	case !ok:
		return tensor{}, errors.New("dtype is missing or unknown")
	case t.shape == nil:
		return tensor{}, errors.New("shape is missing")
	case len(offsets) != 2 || offsets[1] < offsets[0] || int64(offsets[1]) < 0:
		return tensor{}, errors.New("data_offsets is not a range")
	}
	size, ok := product(append(slices.Clone(t.shape), width))
	if !ok {
		return tensor{}, errors.New("shape overflows")
	}
	if size != offsets[1]-offsets[0] {
		return tensor{}, errors.New("data_offsets do not match dtype and shape")
	}
	t.begin, t.size = int64(offsets[0]), int64(size)
	return t, nil
}

// product multiplies the factors; it reports false when the product, or the product of the factors that are not zero,
// leaves int64.
func product(factors []uint64) (uint64, bool) {
	result, zero := uint64(1), false
	for _, f := range factors {
		if f == 0 {
			zero = true
			continue
		}
		high, low := bits.Mul64(result, f)
		if high != 0 || int64(low) < 0 {
			return 0, false
		}
		result = low
	}
	if zero {
		return 0, true
	}
	return result, true
}

// dtypeBytes returns the bytes of one element. An artifact's own tensors are BF16, F16, F32 and I64; the others are
// known so that a tensor that a later vLLM adds can be stepped over.
func dtypeBytes(dtype string) (uint64, bool) {
	switch dtype {
	case "BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2":
		return 1, true
	case "U16", "I16", dtypeF16, dtypeBF16:
		return 2, true
	case "U32", "I32", dtypeF32:
		return 4, true
	case "U64", dtypeI64, "F64":
		return 8, true
	default:
		return 0, false
	}
}

// eachField reads a JSON object and calls field with each key, with the decoder before the value. The text is known to
// be valid JSON; what is checked here is its form.
func eachField(dec *json.Decoder, field func(key string) error) error {
	if err := parseDelim(dec, '{'); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for dec.More() {
		key, err := parseString(dec)
		if err != nil {
			return err
		}
		if seen[key] {
			return errors.New("duplicate name")
		}
		seen[key] = true
		if err := field(key); err != nil {
			return err
		}
	}
	return parseDelim(dec, '}')
}

// skipMetadata steps over a __metadata__ object, which maps strings to strings.
func skipMetadata(dec *json.Decoder) error {
	return eachField(dec, func(string) error {
		_, err := parseString(dec)
		return err
	})
}

func parseDelim(dec *json.Decoder, want json.Delim) error {
	if token, err := dec.Token(); err != nil || token != want {
		return fmt.Errorf("%q expected", want.String())
	}
	return nil
}

func parseString(dec *json.Decoder) (string, error) {
	token, err := dec.Token()
	s, ok := token.(string)
	if err != nil || !ok {
		return "", errors.New("string expected")
	}
	return s, nil
}

// parseUints parses an array of plain decimal integers from 0 to the largest uint64: no sign, fraction or exponent.
func parseUints(dec *json.Decoder) ([]uint64, error) {
	if err := parseDelim(dec, '['); err != nil {
		return nil, err
	}
	numbers := []uint64{}
	for dec.More() {
		token, err := dec.Token()
		number, ok := token.(json.Number)
		if err != nil || !ok {
			return nil, errors.New("number expected")
		}
		n, err := strconv.ParseUint(number.String(), 10, 64)
		if err != nil {
			return nil, errors.New("number is negative, too large or not whole")
		}
		numbers = append(numbers, n)
	}
	return numbers, parseDelim(dec, ']')
}
