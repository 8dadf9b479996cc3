package probe

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entry is one tensor of a file that a test makes.
type entry struct {
	dtype string
	shape []int
	data  []byte
}

// encode writes a safetensors file with the tensors in the order of their names.
func encode(tensors map[string]entry) []byte {
	type field struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := map[string]field{}
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		e := tensors[name]
		header[name] = field{e.dtype, e.shape, [2]int{len(data), len(data) + len(e.data)}}
		data = append(data, e.data...)
	}
	text, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text, data)
}

func f32s(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func bf16s(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(v)>>16))
	}
	return b
}

func i64s(values ...int64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// twoTokens is the smallest interesting artifact: two tokens, two layers of two; its means are 1.5, 3.5, 5.5, 7.5.
func twoTokens() []byte {
	return encode(map[string]entry{
		tensorHiddenStates: {dtypeF32, []int{2, 2, 2}, f32s(1, 3, 5, 7, 2, 4, 6, 8)},
		tensorTokenIDs:     {dtypeI64, []int{2}, i64s(101, 102)},
	})
}

var twoTokenMeans = []float32{1.5, 3.5, 5.5, 7.5}

// fakeVLLM is the smallest server a probe can talk to: a function that gets the request id and writes the answer.
type fakeVLLM struct {
	*httptest.Server
	dir string
}

func newFake(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, f *fakeVLLM)) *fakeVLLM {
	t.Helper()
	f := &fakeVLLM{dir: t.TempDir()}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r, f) }))
	t.Cleanup(f.Close)
	return f
}

// config returns a configuration for the fake with limits that suit a test.
func (f *fakeVLLM) config() Config {
	cfg := DefaultConfig()
	cfg.Name = "test"
	cfg.Model = "encoder"
	cfg.Endpoint = Endpoint{BaseURL: f.URL + "/v1", HiddenStatesDir: f.dir}
	cfg.RequestTimeout = 5 * time.Second
	cfg.ArtifactTimeout = 100 * time.Millisecond
	cfg.HealthInterval = 0 // a fake answers everything as if it were asked about a task
	return cfg
}

// path is where vLLM puts the artifact of a request.
func (f *fakeVLLM) path(r *http.Request) string {
	return filepath.Join(f.dir, "chatcmpl-"+r.Header.Get("X-Request-Id")+"-0a1b2c3d.safetensors")
}

// reply answers with a path and token ids.
func reply(w io.Writer, path string, ids ...int64) {
	body := map[string]any{"kv_transfer_params": map[string]any{"hidden_states_path": path}}
	if ids != nil {
		body["prompt_token_ids"] = ids
	}
	_ = json.NewEncoder(w).Encode(body)
}

// serveFile answers every request with an artifact of these bytes.
func serveFile(content []byte, ids ...int64) func(http.ResponseWriter, *http.Request, *fakeVLLM) {
	return func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		path := f.path(r)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			panic(err)
		}
		reply(w, path, ids...)
	}
}

// newProbe builds a probe that is closed with the test.
func newProbe(t *testing.T, cfg Config, opts ...Option) *VLLM {
	t.Helper()
	v, err := New(cfg, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close(t.Context()) }) // the context has ended by now: do not wait
	return v
}

// names returns what is in a folder.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("folder holds %v, want %v", got, want)
	}
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
