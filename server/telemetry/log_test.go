package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// logged returns the lines of a log that do writes to.
func logged(t *testing.T, level slog.Level, do func(*slog.Logger, *slog.LevelVar)) []map[string]any {
	t.Helper()
	var out bytes.Buffer
	v := new(slog.LevelVar)
	v.Set(level)
	do(slog.New(NewLogHandler(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}), v)), v)
	var lines []map[string]any
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var line map[string]any
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestLogLinesHaveTheTrace(t *testing.T) {
	ctx := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
	}))
	lines := logged(t, slog.LevelInfo, func(log *slog.Logger, _ *slog.LevelVar) {
		log.InfoContext(ctx, "with")
		log.Info("without")
		log.With("probe", "p").InfoContext(ctx, "with attributes")
	})
	for i, want := range []any{"01000000000000000000000000000000", nil, "01000000000000000000000000000000"} {
		if lines[i]["trace_id"] != want {
			t.Errorf("line %d: trace_id %v, want %v", i, lines[i]["trace_id"], want)
		}
	}
}

func TestTheLevelChangesAtRunTime(t *testing.T) {
	lines := logged(t, slog.LevelInfo, func(log *slog.Logger, level *slog.LevelVar) {
		derived := log.With("a", 1)
		derived.Debug("too early")
		level.Set(slog.LevelDebug)
		derived.Debug("seen")
		level.Set(slog.LevelError)
		derived.Warn("too late")
	})
	if len(lines) != 1 || lines[0]["msg"] != "seen" {
		t.Errorf("%v", lines)
	}
}

func TestWarningsAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := logged(t, slog.LevelInfo, func(log *slog.Logger, _ *slog.LevelVar) {
			for range 1000 {
				log.Warn("the probe fails")
			}
			log.With("probe", "p").Warn("the probe fails") // the same, from elsewhere
			log.Warn("another")
			for range 3 {
				log.Error("errors always show")
			}
			time.Sleep(warnEvery)
			log.WarnContext(context.Background(), "the probe fails")
		})
		if len(lines) != 6 {
			t.Fatalf("%d lines, want 6: %v", len(lines), lines)
		}
		if last := lines[5]; last["left_out"] != 1000.0 {
			t.Errorf("the next warning says %v were left out, want 1000", last["left_out"])
		}
	})
}
