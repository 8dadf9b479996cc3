package scorer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tensorFile puts a safetensors file together from a header and what follows it.
func tensorFile(header string, data []byte) []byte {
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	file = append(file, header...)
	return append(file, data...)
}

func TestReadTensorsRefusesMalformedFiles(t *testing.T) {
	const entry = `"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`
	eight := make([]byte, 8)
	tests := []struct {
		name string
		file []byte
		part string
		want string
	}{
		{"empty", nil, "", "it has 0 bytes"},
		{"shorter than a length", []byte{1, 2}, "", "it has 2 bytes"},
		{"endless header", binary.LittleEndian.AppendUint64(nil, math.MaxUint64), "", "want at most"},
		{"header beyond the file", binary.LittleEndian.AppendUint64(nil, 100), "", "in a file of 8"},
		{"header is not JSON", tensorFile("{", nil), "", "cannot be decoded"},
		{"header is a list", tensorFile("[]", nil), "", "cannot be decoded"},
		{"header is null", tensorFile("null", nil), "x", "is missing"},
		{"unknown dtype", tensorFile(`{"x":{"dtype":"F8","shape":[2],"data_offsets":[0,8]}}`, eight), "", "F8"},
		{"another dtype of the same size", tensorFile(`{"x":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}}`, eight), "x", "has dtype I32, want F32"},
		{"scalar", tensorFile(`{"x":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, eight[:4]), "x", "has shape [], want [2]"},
		{"more dimensions", tensorFile(`{"x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}`, eight), "x", "has shape [2 1], want [2]"},
		{"overflowing shape", tensorFile(`{"x":{"dtype":"F32","shape":[9223372036854775809],"data_offsets":[0,8]}}`, eight), "x", "want [2]"},
		{"backward offsets", tensorFile(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, eight), "x", "has data_offsets [8 0], want [0 8]"},
		{"offsets beyond the file", tensorFile(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}`, eight), "x", "want [0 8]"},
		{"short tensor", tensorFile(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, eight), "x", "want [0 8]"},
		{"truncated data", tensorFile("{"+entry+"}", eight[:7]), "", "holds 7 bytes after its header, want 8"},
		{"data left over", tensorFile("{"+entry+"}", make([]byte, 9)), "", "holds 9 bytes after its header, want 8"},
		{"tensor left over", tensorFile("{"+entry+`,"z":{"dtype":"F32","shape":[0],"data_offsets":[8,8]},"y":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}}`, eight), `"y"`, "not a tensor that"},
		{"NaN", tensorFile("{"+entry+"}", []byte{0, 0, 0, 0, 0, 0, 0xc0, 0x7f}), "x", "is NaN at element 1"},
		{"infinity", tensorFile("{"+entry+"}", []byte{0, 0, 0x80, 0xff, 0, 0, 0, 0}), "x", "is -Inf at element 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var values []float32
			list := []slot{{name: "x", shape: []int{2}, values: &values}}
			err := readTensors(bytes.NewReader(tt.file), int64(len(tt.file)), "f", list)
			var e *CheckpointError
			if !errors.As(err, &e) || e.File != "f" || e.Part != tt.part {
				t.Fatalf("error %v, want one that blames %q of f", err, tt.part)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q does not say %q", err, tt.want)
			}
		})
	}
}

func TestReadTensorsAcceptsAnyOrderAndMetadata(t *testing.T) {
	var a, b []float32
	list := []slot{{name: "a", shape: []int{1}, values: &a}, {name: "b", shape: []int{2}, values: &b}}
	data := make([]byte, 0, 12)
	for _, v := range []float32{1, 2, 3} {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	file := tensorFile(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},`+
		`"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   `, data)
	if err := readTensors(bytes.NewReader(file), int64(len(file)), "f", list); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]float32{{3}, {1, 2}}, [][]float32{a, b}); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestReadTensorsReportsAFileThatShrinks(t *testing.T) {
	var x []float32
	file := tensorFile(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, make([]byte, 8))
	err := readTensors(bytes.NewReader(file[:len(file)-1]), int64(len(file)), "f", []slot{{name: "x", shape: []int{2}, values: &x}})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v, want it to wrap %v", err, io.ErrUnexpectedEOF)
	}
}

// A hostile pair of files must not make Load reserve memory that the files do
// not back: here router.json asks for 3 GiB and the tensor file has 100 bytes.
func TestLoadReservesNothingForAbsentData(t *testing.T) {
	fields := validFields(t)
	fields["hidden_size"], fields["raw_feature_dim"], fields["pca_dim"] = 1<<20, 1<<21, 350
	manifest := marshal(t, fields)
	doc, err := parseDocument(manifest)
	if err != nil {
		t.Fatal(err)
	}
	m := doc.manifest()
	header := tensorHeader(t, slots(m, emptyTensors(m)))
	file := tensorFile(header, make([]byte, 100))

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = load(memoryFiles(manifest, file))
	runtime.ReadMemStats(&after)
	checkPart(t, err, defaultTensorFile, "")
	if reserved := after.TotalAlloc - before.TotalAlloc; reserved > 1<<20 {
		t.Errorf("%d bytes reserved", reserved)
	}
}

// tensorHeader returns a true header for the slots, whose values need not exist.
func tensorHeader(t testing.TB, list []slot) string {
	t.Helper()
	header, end := map[string]any{}, 0
	for _, s := range list {
		start := end
		end += s.elements() * bytesPerFloat
		header[s.name] = map[string]any{"dtype": "F32", "shape": s.shape, "data_offsets": []int{start, end}}
	}
	return string(marshal(t, header))
}

// memoryFiles serves a checkpoint's two files from memory, the tensor file under
// any name.
func memoryFiles(manifest, tensors []byte) openFunc {
	return func(name string) (io.ReadCloser, int64, error) {
		data := tensors
		if name == manifestFile {
			data = manifest
		}
		return io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
	}
}

// FuzzLoad: nothing makes the loader panic, and what it accepts can be scored
// and comes back the same when it is written and read again.
func FuzzLoad(f *testing.F) {
	err := filepath.WalkDir("testdata", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != manifestFile {
			return err
		}
		manifest, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		tensors, err := os.ReadFile(filepath.Join(filepath.Dir(path), defaultTensorFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if len(tensors) < 8<<10 { // small ones are enough, and fast
			f.Add(manifest, tensors)
		}
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, manifest, tensors []byte) {
		c, err := load(memoryFiles(manifest, tensors))
		if err != nil {
			var e *CheckpointError
			if !errors.As(err, &e) || e.File == "" {
				t.Fatalf("error %v names no file", err)
			}
			return
		}
		p, err := c.Score(make([]float32, c.manifest.FeatureDim()))
		if err == nil {
			err = p.Validate()
		}
		if err != nil && !errors.Is(err, ErrNonFinite) {
			t.Fatal(err)
		}

		files, err := encode(c.manifest, c.tensors)
		if err != nil {
			t.Fatalf("an accepted checkpoint cannot be written: %v", err)
		}
		var written [2]bytes.Buffer
		for i, name := range []string{manifestFile, defaultTensorFile} {
			if err := files[name](&written[i]); err != nil {
				t.Fatal(err)
			}
		}
		again, err := load(memoryFiles(written[0].Bytes(), written[1].Bytes()))
		if err != nil {
			t.Fatalf("what was written is refused: %v", err)
		}
		if diff := cmp.Diff(c.tensors, again.tensors); diff != "" {
			t.Errorf("tensors (-read +read again):\n%s", diff)
		}
		if diff := cmp.Diff(marshal(t, c.manifest), marshal(t, again.manifest)); diff != "" {
			t.Errorf("manifests (-read +read again):\n%s", diff)
		}
	})
}
