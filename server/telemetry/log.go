package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// warnEvery is how often one warning is written: often enough to be seen while it
// lasts, too seldom to fill a disk.
const warnEvery = 10 * time.Second

// LogHandler gives a log what the service's own has beside its lines: the trace they
// belong to, a level that can be changed while it runs, and warnings that do not
// repeat themselves more often than every ten seconds. The first is written at once;
// the next that is written says how many were left out.
type LogHandler struct {
	next  slog.Handler
	level *slog.LevelVar
	// warned is shared by all handlers that come of one.
	warned *warned
}

// NewLogHandler wraps a handler, whose own level must let everything pass that level
// may ever be set to.
func NewLogHandler(next slog.Handler, level *slog.LevelVar) *LogHandler {
	return &LogHandler{next: next, level: level, warned: &warned{last: map[string]warning{}}}
}

// Enabled implements [slog.Handler].
func (h *LogHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level.Level() && h.next.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h *LogHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && r.Level < slog.LevelError {
		pass, leftOut := h.warned.pass(r.Message, r.Time)
		if !pass {
			return nil
		}
		if leftOut > 0 {
			r.AddAttrs(slog.Int("left_out", leftOut))
		}
	}
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(
			slog.String("trace_id", span.TraceID().String()),
			slog.String("span_id", span.SpanID().String()),
		)
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *LogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &LogHandler{next: h.next.WithAttrs(attrs), level: h.level, warned: h.warned}
}

// WithGroup implements [slog.Handler].
func (h *LogHandler) WithGroup(name string) slog.Handler {
	return &LogHandler{next: h.next.WithGroup(name), level: h.level, warned: h.warned}
}

// warned remembers when each warning was written. Messages are constants, so there are
// only so many.
type warned struct {
	mu   sync.Mutex
	last map[string]warning
}

type warning struct {
	written time.Time
	leftOut int
}

// pass says whether a warning is due, and how many like it were left out before.
func (w *warned) pass(message string, now time.Time) (due bool, leftOut int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.last[message]
	if known && now.Sub(last.written) < warnEvery {
		last.leftOut++
		w.last[message] = last
		return false, 0
	}
	w.last[message] = warning{written: now}
	return true, last.leftOut
}
