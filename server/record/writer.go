package record

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
)

// Config says where and how much is written.
type Config struct {
	// File is the file that is written to; older ones have .1, .2 and so on appended.
	File string
	// MaxBytes is the size after which a new file is begun.
	MaxBytes int64
	// MaxFiles is how many files are kept, the current one included.
	MaxFiles int
	// Queue is how many decisions may wait to be written.
	Queue int
	// Secret is the key of the tasks' digests. Empty: a random one, so that digests
	// can be compared only within one run of the process.
	Secret []byte
}

// Fate is what became of an entry.
type Fate uint8

// The fates of an entry.
const (
	Written Fate = iota
	Dropped      // the queue was full, or the writer closed
	Failed       // the file could not be written
)

// Deps are a writer's collaborators. All are optional.
type Deps struct {
	// Count is told what became of entries. It must not block.
	Count func(fate Fate, entries int)
	Log   *slog.Logger
}

// Writer writes entries to the record.
type Writer struct {
	key   []byte
	queue chan Entry
	deps  Deps
	done  chan struct{} // closed when the goroutine has ended

	mu     sync.RWMutex // held to send, so that queue is never closed under a sender
	closed bool
}

// New opens the record and starts its goroutine. [Writer.Close] ends it.
func New(cfg Config, deps Deps) (*Writer, error) {
	if deps.Count == nil {
		deps.Count = func(Fate, int) {}
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	f, err := openRotating(cfg.File, cfg.MaxBytes, cfg.MaxFiles)
	if err != nil {
		return nil, fmt.Errorf("decision record: %w", err)
	}
	w := &Writer{key: digestKey(cfg.Secret), queue: make(chan Entry, cfg.Queue), deps: deps, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.run(f)
	}()
	return w, nil
}

// digestKey derives the digests' key from the secret, so that the secret may have
// other uses.
func digestKey(secret []byte) []byte {
	if len(secret) == 0 {
		key := make([]byte, sha256.Size)
		_, _ = rand.Read(key) // never fails
		return key
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("pointsman decision record: task digest"))
	return mac.Sum(nil)
}

// Digest returns what the record says of a task: the first 16 bytes of its HMAC-SHA256,
// in hex. It is empty for an empty task.
func (w *Writer) Digest(task string) string {
	if task == "" {
		return ""
	}
	mac := hmac.New(sha256.New, w.key)
	mac.Write([]byte(task))
	const enough = 16 // 128 bits: no two tasks will ever share them by chance
	return hex.EncodeToString(mac.Sum(nil)[:enough])
}

// Put hands over an entry. It never waits.
func (w *Writer) Put(e Entry) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if !w.closed {
		select {
		case w.queue <- e:
			return
		default:
		}
	}
	w.deps.Count(Dropped, 1)
}

// Close writes what is queued and closes the file. When ctx ends first, it returns its
// cause; the goroutine still ends by itself. Closing again waits again.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.queue)
	}
	w.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("decision record: not all of it is written: %w", context.Cause(ctx))
	}
}

// run writes what comes until the queue is closed. It flushes whenever there is
// nothing more to write, so that a reader sees decisions soon.
func (w *Writer) run(f *rotating) {
	const (
		buffer   = 64 << 10 // some hundred entries to a write under load
		maxEntry = 8 << 10  // of a route with dozens of targets; a longer one is only written in two pieces
	)
	out := bufio.NewWriterSize(f, buffer)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	pending := 0
	flush := func() {
		if err := out.Flush(); err != nil {
			out.Reset(f)
			w.failed(pending, err)
		} else if pending > 0 {
			w.deps.Count(Written, pending)
		}
		pending = 0
	}
	for e := range w.queue {
		if out.Available() < maxEntry {
			flush()
			f.rotateIfFull()
		}
		pending++
		if err := encoder.Encode(e); err != nil {
			out.Reset(f) // the error would stick
			w.failed(pending, err)
			pending = 0
		}
		if len(w.queue) == 0 {
			flush()
			f.rotateIfFull()
		}
	}
	flush()
	if err := f.Close(); err != nil {
		w.deps.Log.Warn("the decision record cannot be closed", "error", pathless(err))
	}
}

// failed tells of entries that did not reach the file.
func (w *Writer) failed(entries int, err error) {
	w.deps.Count(Failed, entries)
	w.deps.Log.Warn("the decision record cannot be written", "error", pathless(err))
}
