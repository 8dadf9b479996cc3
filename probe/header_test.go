package probe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestParseHeader(t *testing.T) {
	const states = `"hidden_states":{"dtype":"F32","shape":[1,1,2],"data_offsets":[0,8]}`
	tests := []struct {
		name, text string
		want       string // part of the error; empty: good
	}{
		{"good", `{` + states + `}  `, ""},
		{"no tensors", `{}`, ""},
		{"metadata", `{"__metadata__":{"format":"pt"},` + states + `}`, ""},
		{"another known tensor", `{` + states + `,"x":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}`, ""},
		{"scalar and empty tensor", `{` + states + `,"x":{"dtype":"U8","shape":[],"data_offsets":[8,9]},"y":{"dtype":"U8","shape":[0],"data_offsets":[9,9]}}`, ""},
		{"empty tensor in front", `{` + states + `,"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, ""},

		{"empty", ``, "not a JSON object"},
		{"leading space", ` {}`, "not a JSON object"},
		{"array", `[]`, "not a JSON object"},
		{"two values", `{}{}`, "not a JSON object"},
		{"not UTF-8", "{\"\xff\":1}", "not a JSON object"},
		{"trailing comma", `{` + states + `,}`, "not a JSON object"},
		{"duplicate tensor", `{` + states + `,` + states + `}`, "duplicate"},
		{"duplicate by escape", `{` + states + `,"hidden\u005fstates":{"dtype":"F32","shape":[1,1,2],"data_offsets":[8,16]}}`, "duplicate"},
		{"duplicate field", `{"x":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "duplicate"},
		{"metadata not strings", `{"__metadata__":{"a":1}}`, "string expected"},
		{"tensor not an object", `{"hidden_states":[]}`, "hidden_states"},
		{"unknown field", `{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}}`, "unknown field"},
		{"no dtype", `{"x":{"shape":[1],"data_offsets":[0,1]}}`, "dtype"},
		{"dtype not a string", `{"x":{"dtype":1,"shape":[1],"data_offsets":[0,1]}}`, "string expected"},
		{"unknown dtype", `{"x":{"dtype":"Q4","shape":[1],"data_offsets":[0,1]}}`, "dtype"},
		{"no shape", `{"x":{"dtype":"U8","data_offsets":[0,1]}}`, "shape is missing"},
		{"shape null", `{"x":{"dtype":"U8","shape":null,"data_offsets":[0,1]}}`, "shape"},
		{"negative", `{"x":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, "negative"},
		{"fraction", `{"x":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, "not whole"},
		{"exponent", `{"x":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}`, "not whole"},
		{"shape of strings", `{"x":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}}`, "number expected"},
		{"shape overflows", `{"x":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,1]}}`, "overflows"},
		{"shape overflows behind a zero", `{"x":{"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}}`, "overflows"},
		{"shape overflows by width", `{"x":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,1]}}`, "overflows"},
		{"no offsets", `{"x":{"dtype":"U8","shape":[1]}}`, "data_offsets"},
		{"three offsets", `{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, "data_offsets"},
		{"reversed offsets", `{"x":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, "data_offsets"},
		{"offset beyond int64", `{"x":{"dtype":"U8","shape":[1],"data_offsets":[9223372036854775807,9223372036854775808]}}`, "data_offsets"},
		{"size and shape differ", `{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}`, "do not match"},
		{"gap", `{"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, "gap or overlap"},
		{"overlap", `{` + states + `,"x":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}}`, "gap or overlap"},
		{"same range twice", `{` + states + `,"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`, "gap or overlap"},
		{"total overflows", `{"x":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}}`, "overflow"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseHeader([]byte(tt.text))
			if tt.want == "" && err != nil {
				t.Errorf("error %v, want none", err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestReadHeaderOfEveryPrefix: while a file grows it is incomplete, never malformed; one byte more is malformed.
func TestReadHeaderOfEveryPrefix(t *testing.T) {
	whole := twoTokens()
	for n := range whole {
		if _, err := readHeader(bytes.NewReader(whole), int64(n), math.MaxInt64); !errors.Is(err, errIncomplete) {
			t.Fatalf("first %d of %d bytes: %v, want errIncomplete", n, len(whole), err)
		}
	}
	h, err := readHeader(bytes.NewReader(whole), int64(len(whole)), math.MaxInt64)
	if err != nil || h.total != int64(len(whole)) {
		t.Fatalf("whole file: total %d, error %v", h.total, err)
	}
	longer := append(slices.Clone(whole), 0)
	if _, err := readHeader(bytes.NewReader(longer), int64(len(longer)), math.MaxInt64); err == nil || errors.Is(err, errIncomplete) {
		t.Errorf("one byte too many: %v, want a final error", err)
	}
}

func TestReadHeaderLimits(t *testing.T) {
	whole := twoTokens()
	size := int64(len(whole))
	if _, err := readHeader(bytes.NewReader(whole), size, size-1); err == nil || errors.Is(err, errIncomplete) {
		t.Errorf("file above the limit: %v, want a final error", err)
	}
	// A growing file that says it will be too large is not waited for.
	if _, err := readHeader(bytes.NewReader(whole), size-1, size-1); err == nil || errors.Is(err, errIncomplete) {
		t.Errorf("file that will be above the limit: %v, want a final error", err)
	}
	for length, final := range map[uint64]bool{0: true, maxHeaderBytes: false, maxHeaderBytes + 1: true, math.MaxUint64: true} {
		text := append(binary.LittleEndian.AppendUint64(nil, length), whole[8:]...)
		_, err := readHeader(bytes.NewReader(text), int64(len(text)), math.MaxInt64)
		if err == nil || errors.Is(err, errIncomplete) == final {
			t.Errorf("header length %d: %v, final error wanted: %v", length, err, final)
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add([]byte(`{"hidden_states":{"dtype":"F32","shape":[1,1,2],"data_offsets":[0,8]}}`))
	f.Add([]byte(`{"__metadata__":{"a":"b"},"token_ids":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}}   `))
	f.Add([]byte(`{"a":{"dtype":"U8","shape":[0,18446744073709551615],"data_offsets":[0,0]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := parseHeader(text)
		if err != nil {
			return
		}
		// Whatever is accepted tiles the file.
		var data int64
		for _, e := range h.tensors {
			width, ok := dtypeBytes(e.dtype)
			size, fits := product(append(slices.Clone(e.shape), width))
			if !ok || !fits || int64(size) != e.size {
				t.Fatalf("tensor of %d bytes with shape %v of %s", e.size, e.shape, e.dtype)
			}
			if e.begin < lengthBytes+int64(len(text)) || e.begin+e.size > h.total {
				t.Fatalf("tensor at %d+%d outside the data", e.begin, e.size)
			}
			data += e.size
		}
		if lengthBytes+int64(len(text))+data != h.total {
			t.Fatalf("tensors hold %d bytes of a file of %d", data, h.total)
		}
	})
}
