package server

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// chunks notes every write that comes through.
type chunks struct {
	mu  sync.Mutex // a timer's write and the test's look are ordered by the fake clock alone
	all []string
}

func (c *chunks) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, string(p))
	return len(p), nil
}

func TestLinesAreGatheredAndNoneIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out chunks
		b := newLineBuffer(&out)
		log := slog.New(b.handler(slog.NewTextHandler(b, nil)))
		wantChunks := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			out.mu.Lock()
			defer out.mu.Unlock()
			if len(out.all) != want {
				t.Fatalf("%s: %d writes, want %d: %q", when, len(out.all), want, out.all)
			}
		}

		log.Info("one")
		log.Info("two")
		time.Sleep(lineDelay - time.Millisecond)
		wantChunks("before the delay is over", 0)
		time.Sleep(time.Millisecond)
		wantChunks("after it", 1)
		time.Sleep(10 * lineDelay)
		wantChunks("with nothing held back", 1)

		log.Info("three")
		log.With("a", 1).WithGroup("g").Warn("four")
		wantChunks("after a warning", 2)
		time.Sleep(10 * lineDelay)
		wantChunks("the timer of what was written already", 2)

		log.Info("five")
		b.flush()
		wantChunks("at the end", 3)
		all := strings.Join(out.all, "")
		for _, line := range []string{"one", "two", "three", "four", "five"} {
			if strings.Count(all, "msg="+line+"\n")+strings.Count(all, "msg="+line+" ") != 1 {
				t.Errorf("the line %q is not there once: %q", line, all)
			}
		}
	})
}

func TestAFullBufferIsWritten(t *testing.T) {
	var out bytes.Buffer
	b := newLineBuffer(&out)
	line := bytes.Repeat([]byte("x"), 1000)
	const n = 1000
	for range n {
		if _, err := b.Write(line); err != nil {
			t.Fatal(err)
		}
		if held := len(b.lines); held > lineBufferBytes {
			t.Fatalf("%d bytes are held back", held)
		}
	}
	if _, err := b.Write(bytes.Repeat([]byte("y"), 2*lineBufferBytes)); err != nil { // longer than the buffer
		t.Fatal(err)
	}
	b.flush()
	if out.Len() != n*1000+2*lineBufferBytes {
		t.Errorf("%d bytes came through", out.Len())
	}
}
