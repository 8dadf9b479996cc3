package probe

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestMemory extracts an artifact of 2 GiB, a file of holes, and watches what memory the process holds. Its one layer
// slot is slot 0, where zeros can be allowed. Under the race detector the file is 64 MiB.
func TestMemory(t *testing.T) {
	const hidden = 4096
	tokens := 1 << 18
	if raceDetector || testing.Short() {
		tokens /= 32
	}
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		header := fmt.Sprintf(`{"hidden_states":{"dtype":"BF16","shape":[%d,1,%d],"data_offsets":[0,%d]}}`, tokens, hidden, 2*tokens*hidden)
		path := f.path(r)
		writeFile(t, path, append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...))
		if err := os.Truncate(path, int64(lengthBytes+len(header)+2*tokens*hidden)); err != nil {
			t.Errorf("no sparse files here: %v", err)
		}
		reply(w, path)
	})
	cfg := f.config()
	cfg.ZeroVectors = ZeroAllowSlot0
	cfg.ArtifactTimeout = time.Minute
	cfg.Sweep.MinAge = time.Hour
	v := newProbe(t, cfg)

	held := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.Sys - m.HeapReleased)
	}
	runtime.GC()
	before, most := held(), int64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				most = max(most, held())
			}
		}
	}()
	got, err := v.Extract(t.Context(), Request{})
	close(stop)
	<-stopped
	if err != nil || got.Tokens != tokens {
		t.Fatalf("%d tokens, error %v", got.Tokens, err)
	}
	const limit = 16 << 20
	if most-before > limit {
		t.Errorf("memory grew by %d bytes, want at most %d", most-before, limit)
	}
	t.Logf("%d MiB in %v, memory grew by %d KiB", 2*hidden*tokens>>20, got.Artifact, (most-before)>>10)
	wantNames(t, f.dir)
}
