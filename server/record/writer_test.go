package record

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counts is what became of entries.
type counts struct {
	mu   sync.Mutex
	fate [3]int
}

func (c *counts) count(fate Fate, entries int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fate[fate] += entries
}

func (c *counts) get(fate Fate) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fate[fate]
}

func newWriter(t testing.TB, cfg Config, c *counts) *Writer {
	t.Helper()
	w, err := New(cfg, Deps{Count: c.count})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close(context.Background()) })
	return w
}

func closeWriter(t testing.TB, w *Writer) {
	t.Helper()
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// ids are the decision ids in a file; every line must be whole.
func ids(t *testing.T, path string) []string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(content)) {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		out = append(out, e.DecisionID)
	}
	return out
}

func TestEntriesAreAppended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "decisions.jsonl")
	var c counts
	for run := range 2 {
		w := newWriter(t, Config{File: path, MaxBytes: 1 << 20, MaxFiles: 2, Queue: 10}, &c)
		for i := range 5 {
			w.Put(Entry{DecisionID: fmt.Sprint(run, i)})
		}
		closeWriter(t, w)
		closeWriter(t, w) // again is no error
	}
	if got := strings.Join(ids(t, path), ","); got != "0 0,0 1,0 2,0 3,0 4,1 0,1 1,1 2,1 3,1 4" {
		t.Errorf("%s", got)
	}
	if got := c.get(Written); got != 10 {
		t.Errorf("%d counted as written, want 10", got)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v %v, want 0600", info.Mode(), err)
	}
}

// TestFullFilesArePutAside holds that no entry is lost or torn at a rotation, and that
// no more files are kept than asked for.
func TestFullFilesArePutAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "decisions.jsonl")
	const entries, most = 3000, 100
	var c counts
	w := newWriter(t, Config{File: path, MaxBytes: 64 << 10, MaxFiles: most, Queue: entries}, &c)
	for i := range entries {
		w.Put(Entry{DecisionID: fmt.Sprint(i), Route: strings.Repeat("r", 100)})
	}
	closeWriter(t, w)
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files %v", len(files), err)
	}
	next := 0
	for i := range slices.Backward(files) {
		name := path
		if i > 0 {
			name = fmt.Sprintf("%s.%d", path, i)
		}
		for _, id := range ids(t, name) {
			if id != fmt.Sprint(next) {
				t.Fatalf("%s: entry %s, want %d", name, id, next)
			}
			next++
		}
	}
	if next != entries {
		t.Errorf("%d entries, want %d", next, entries)
	}

	w = newWriter(t, Config{File: path, MaxBytes: 1, MaxFiles: 2, Queue: 10}, &c)
	for range 10 {
		w.Put(Entry{})
	}
	closeWriter(t, w)
	if _, err := os.Stat(path + ".1"); err != nil {
		t.Error(err)
	}
}

// TestPutNeverWaits fills the queue of a writer whose file cannot be written: what
// does not fit is dropped and counted, and so is what could not be written.
func TestPutNeverWaits(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here")
	}
	var c counts
	w := newWriter(t, Config{File: "/dev/full", MaxBytes: 1 << 40, MaxFiles: 2, Queue: 4}, &c)
	const entries = 10_000
	for range entries {
		w.Put(Entry{})
	}
	closeWriter(t, w)
	w.Put(Entry{}) // after the end it is dropped too
	if got := c.get(Dropped) + c.get(Failed); got != entries+1 || c.get(Dropped) == 0 || c.get(Failed) == 0 {
		t.Errorf("%d dropped and %d failed of %d", c.get(Dropped), c.get(Failed), entries+1)
	}
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	w := &Writer{queue: make(chan Entry), done: make(chan struct{})} // whose goroutine never ends
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Close(ctx); err == nil {
		t.Error("no error")
	}
}

func TestDigests(t *testing.T) {
	dir := t.TempDir()
	var c counts
	digest := func(secret, task string) string {
		w := newWriter(t, Config{File: filepath.Join(dir, "d"), MaxBytes: 1, MaxFiles: 1, Queue: 1, Secret: []byte(secret)}, &c)
		return w.Digest(task)
	}
	if again := digest("0123456789abcdef", "a"); again != digest("0123456789abcdef", "a") {
		t.Error("the same secret and task give different digests")
	}
	for _, other := range []string{digest("another secret!!", "a"), digest("0123456789abcdef", "b"), digest("", "a"), digest("", "a")} {
		if other == digest("0123456789abcdef", "a") || len(other) != 32 {
			t.Errorf("digest %q", other)
		}
	}
	if again := digest("", "a"); again == digest("", "a") {
		t.Error("without a secret, runs can be compared")
	}
	if got := digest("0123456789abcdef", ""); got != "" {
		t.Errorf("no task has the digest %q", got)
	}
}
