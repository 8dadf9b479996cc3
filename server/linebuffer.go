package server

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// lineBufferBytes is when gathered lines are written: some hundred lines.
	lineBufferBytes = 64 << 10
	// lineDelay is the longest that a line is held back. Nobody who reads a log notices,
	// and at a thousand calls a second a hundred writes become one.
	lineDelay = 100 * time.Millisecond
)

// lineBuffer gathers the log's lines and writes them together: a system call for every
// call of ours would cost more than making its line. What is held back when the process
// crashes is lost, so warnings and errors never are: see [lineBuffer.handler].
type lineBuffer struct {
	w io.Writer

	mu    sync.Mutex
	lines []byte
	timer *time.Timer // set while lines are held back
}

func newLineBuffer(w io.Writer) *lineBuffer {
	return &lineBuffer{w: w, lines: make([]byte, 0, lineBufferBytes)}
}

// Write implements [io.Writer] for whole lines.
func (b *lineBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lines)+len(line) > lineBufferBytes {
		b.write()
	}
	if len(b.lines) == 0 {
		b.timer = time.AfterFunc(lineDelay, b.flush)
	}
	b.lines = append(b.lines, line...)
	return len(line), nil
}

// flush writes what is held back. It is to be called when the program ends.
func (b *lineBuffer) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.write()
}

// write writes what is held back; mu is held. A log that cannot be written has nowhere
// to say so.
func (b *lineBuffer) write() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if len(b.lines) > 0 {
		_, _ = b.w.Write(b.lines)
		b.lines = b.lines[:0]
	}
}

// handler returns next, which writes to b, such that a warning or an error, and all that
// came before it, is written at once.
func (b *lineBuffer) handler(next slog.Handler) slog.Handler {
	return &promptHandler{Handler: next, buffer: b}
}

type promptHandler struct {
	slog.Handler

	buffer *lineBuffer
}

// Handle implements [slog.Handler].
func (h *promptHandler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		h.buffer.flush()
	}
	return err
}

// WithAttrs implements [slog.Handler].
func (h *promptHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &promptHandler{Handler: h.Handler.WithAttrs(attrs), buffer: h.buffer}
}

// WithGroup implements [slog.Handler].
func (h *promptHandler) WithGroup(name string) slog.Handler {
	return &promptHandler{Handler: h.Handler.WithGroup(name), buffer: h.buffer}
}
