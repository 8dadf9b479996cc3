package vllmsim_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The reader in this file is written from the protocol's description and uses
// nothing of the package, so that the two sides cannot share a mistake.

// lockState is what a client can see of a lock.
type lockState string

const (
	lockAbsent lockState = "absent"
	lockHeld   lockState = "held"
	lockFree   lockState = "free"
)

func lockOf(t *testing.T, path string) lockState {
	t.Helper()
	fd, err := syscall.Open(path+".lock", syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, syscall.ENOENT) {
		return lockAbsent
	}
	if err != nil {
		t.Fatalf("open lock: %v", err)
	}
	defer syscall.Close(fd)
	switch err := syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB); {
	case err == nil:
		return lockFree
	case errors.Is(err, syscall.EWOULDBLOCK):
		return lockHeld
	default:
		t.Fatalf("flock: %v", err)
		return ""
	}
}

type tensor struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

type parsed struct {
	headerSize int
	header     string // as it stands in the file
	ids        tensor
	states     tensor
	tokens     []int64
	values     []float64
	missing    int64 // bytes the header promises and the file lacks
}

// parse reads an artifact; data may end early, see parsed.missing.
func parse(t *testing.T, data []byte) parsed {
	t.Helper()
	if len(data) < 8 {
		t.Fatalf("artifact has %d bytes", len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	if n > uint64(len(data)-8) {
		t.Fatalf("header length %d, file %d", n, len(data))
	}
	p := parsed{headerSize: int(n), header: string(data[8 : 8+n])}
	var tensors map[string]tensor
	if err := json.Unmarshal([]byte(p.header), &tensors); err != nil {
		t.Fatalf("header: %v", err)
	}
	if len(tensors) != 2 {
		t.Fatalf("header has entries other than the two tensors: %s", p.header)
	}
	p.ids, p.states = tensors["token_ids"], tensors["hidden_states"]
	body := data[8+n:]
	p.missing = p.states.Offsets[1] - int64(len(body))
	for at := p.ids.Offsets[0]; at < p.ids.Offsets[1]; at += 8 {
		p.tokens = append(p.tokens, int64(binary.LittleEndian.Uint64(body[at:])))
	}
	width := map[string]int64{"BF16": 2, "F16": 2, "F32": 4}[p.states.DType]
	for at := p.states.Offsets[0]; at+width <= min(p.states.Offsets[1], int64(len(body))); at += width {
		var v float64
		switch p.states.DType {
		case "BF16":
			v = float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(body[at:])) << 16))
		case "F16":
			v = half(binary.LittleEndian.Uint16(body[at:]))
		case "F32":
			v = float64(math.Float32frombits(binary.LittleEndian.Uint32(body[at:])))
		}
		p.values = append(p.values, v)
	}
	return p
}

// half decodes IEEE 754 binary16.
func half(bits uint16) float64 {
	sign := 1.0
	if bits>>15 == 1 {
		sign = -1
	}
	exponent, fraction := int(bits>>10&31), float64(bits&1023)
	switch {
	case exponent == 31 && fraction == 0:
		return math.Inf(int(sign))
	case exponent == 31:
		return math.NaN()
	case exponent == 0:
		return sign * fraction * math.Pow(2, -24)
	default:
		return sign * (1 + fraction/1024) * math.Pow(2, float64(exponent-15))
	}
}

func read(t *testing.T, path string) parsed {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, data)
}

// completion is what a client reads of an answer.
type completion struct {
	ID             string          `json:"id"`
	Object         string          `json:"object"`
	Model          string          `json:"model"`
	Choices        []any           `json:"choices"`
	PromptTokenIDs []int64         `json:"prompt_token_ids"`
	KV             json.RawMessage `json:"kv_transfer_params"`
}

// path is kv_transfer_params.hidden_states_path.
func (c completion) path(t *testing.T) string {
	t.Helper()
	var kv struct {
		Path string `json:"hidden_states_path"`
	}
	if err := json.Unmarshal(c.KV, &kv); err != nil || kv.Path == "" {
		t.Fatalf("kv_transfer_params %s: %v", c.KV, err)
	}
	return kv.Path
}

const model = "Qwen/Qwen3-8B"

// config is a small server in a folder that does not exist yet.
func config(t *testing.T) vllmsim.Config {
	return vllmsim.Config{Dir: t.TempDir() + "/hs", Model: model, Layers: 2, HiddenSize: 8}
}

func start(t *testing.T, cfg vllmsim.Config) *vllmsim.Server {
	t.Helper()
	srv, err := vllmsim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// ask is the body of a good request.
func ask(task string) string {
	body, err := json.Marshal(map[string]any{
		"model": model, "messages": []any{map[string]any{"role": "user", "content": task}},
		"max_tokens": 1, "temperature": 0, "return_token_ids": true,
		"kv_transfer_params": map[string]any{"include_output_tokens": false},
	})
	if err != nil {
		panic(err)
	}
	return string(body)
}

func request(t *testing.T, body string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("X-Request-ID", "pm-test-1")
	return r
}

// serve plays one request without a network, so that the clock can be faked.
func serve(srv *vllmsim.Server, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	srv.Handler().ServeHTTP(w, r)
	return w
}

func decode(t *testing.T, w *httptest.ResponseRecorder) completion {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	var c completion
	if err := json.NewDecoder(bytes.NewReader(w.Body.Bytes())).Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c
}
