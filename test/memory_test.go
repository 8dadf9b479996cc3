package test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

// TestPoolingAHugeArtifactTakesLittleMemory pools 2 GiB, every value of which is
// read: with one layer, whose zeros are allowed, a sparse file will do.
func TestPoolingAHugeArtifactTakesLittleMemory(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector takes memory and time of its own; make test runs this without it")
	}
	if _, err := os.Stat("/proc/self/clear_refs"); err != nil {
		t.Skip("the peak of memory is read from Linux's /proc")
	}
	vllm := &sparse{tokens: 1}
	vllm.mu.Lock() // until the folder is known
	w := start(t, setup{
		vllm: vllm, sim: vllmsim.Config{Layers: 1},
		probeYAML: "zero_vectors: allow_slot_0\nartifact_timeout: 2m",
		routeYAML: "decide_timeout: 3m",
	})
	vllm.dir = w.dir
	vllm.mu.Unlock()
	if got := reasonName(w.decide(t, task("Warm up."))); got != "" {
		t.Fatalf("fell back: %s", got)
	}
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // the peak becomes what is now
		t.Skipf("the peak of memory cannot be reset: %v", err)
	}
	idle := memory(t, "VmRSS")
	const rowBytes = 2 * hiddenSize // BF16
	vllm.setTokens(2 << 30 / rowBytes)
	if got := reasonName(w.decide(t, task("Huge."))); got != "" {
		t.Fatalf("fell back: %s", got)
	}
	const allowed = 64 << 20
	if grown := memory(t, "VmHWM") - idle; grown > allowed {
		t.Errorf("pooling 2 GiB took %d MiB, more than %d", grown>>20, allowed>>20)
	} else {
		t.Logf("pooling 2 GiB took %d KiB", grown>>10)
	}
}

// sparse plays a vLLM whose artifacts are holes: one layer of zeros.
type sparse struct {
	mu     sync.Mutex
	dir    string
	tokens int
}

func (s *sparse) setTokens(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = n
}

func (s *sparse) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(s.dir, "chatcmpl-"+req.Header.Get("X-Request-Id")+".safetensors")
	size := s.tokens * hiddenSize * 2
	header := fmt.Sprintf(`{"hidden_states":{"dtype":"BF16","shape":[%d,1,%d],"data_offsets":[0,%d]}}`, s.tokens, hiddenSize, size)
	header += strings.Repeat(" ", -len(header)&7)
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	if os.WriteFile(path, data, 0o600) != nil || os.Truncate(path, int64(len(data)+size)) != nil {
		http.Error(w, "cannot write", http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kv_transfer_params": map[string]any{"hidden_states_path": path}})
}

// grewAtMost fails if the process holds so much more memory than before. The race
// detector's own memory grows with what is touched, so nothing is checked with it.
func grewAtMost(t testing.TB, before, limit int) {
	t.Helper()
	if grown := memory(t, "VmRSS") - before; grown > limit && !raceDetector {
		t.Errorf("it took %d MiB", grown>>20)
	}
}

// memory reads a line of /proc/self/status, in bytes.
func memory(t testing.TB, key string) int {
	t.Helper()
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), key+":"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no %s in /proc/self/status", key)
	return 0
}
