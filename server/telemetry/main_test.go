package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/rediscache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTelemetry makes a Telemetry that keeps its spans.
func newTelemetry(t testing.TB) (*Telemetry, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	tel, err := New(t.Context(), Config{Log: slog.New(slog.DiscardHandler), Version: "v1.2.3", SpanExporter: spans})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tel.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return tel, spans
}

// exercise makes every measurement there is, once for every value of an enumeration.
func exercise(t testing.TB, tel *Telemetry) {
	t.Helper()
	ctx, span := tel.tracer.Start(t.Context(), "call")
	defer span.End()
	tel.Refused(ctx)
	tel.Reloaded(ctx, nil)
	err := tel.Watch(func() State {
		return State{
			Probes:  map[string]probe.Status{"qwen": {State: probe.StateReady, InFlight: 1, Queued: 2, Capacity: 3}},
			Routes:  []RouteState{{Route: "main", Digest: "sha256:00", Encoder: "e", Shifts: []HeadShift{{Head: "strong", PSI: 0.1}}}},
			RedisUp: new(true),
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	everyDecision(ctx, tel)
	for _, stage := range []Stage{StageProbe, StageScore, StagePolicy} {
		_, done := tel.DecisionStage(ctx, stage)
		done(nil)
	}
	for _, where := range []string{"call", "cache", "decision"} {
		tel.Panicked(ctx, where)
	}
	tel.RPCDone(ctx, "/pointsman.v1.DecisionService/Decide", codes.OK, time.Millisecond)
	for _, fate := range []RecordFate{RecordWritten, RecordDropped, RecordFailed} {
		tel.Recorded(fate, 1)
	}
	everyCacheEvent(ctx, tel)
	for _, op := range []string{"read", "claim", "renew", "release", "store"} {
		tel.RedisObserver().Exchange(op, time.Millisecond, nil)
	}
	tel.RedisObserver().Exchange("read", 0, rediscache.ErrUnavailable)
	everyProbeEvent(ctx, tel)
}

func everyDecision(ctx context.Context, tel *Telemetry) {
	d := Decision{
		ID: "id", RequestID: "request", Route: "main", Target: "weak", Tier: pointsmanv1.Tier_TIER_WEAK,
		Basis: pointsmanv1.Basis_BASIS_LEARNED, Origin: pointsmanv1.Origin_ORIGIN_COMPUTED, Took: time.Millisecond,
		Learned: true, Confidence: new(0.9), Margin: 0.1, Digest: "sha256:00", Tokens: 7, TradeOff: 0.2, IsTolerance: true,
	}
	for origin := range pointsmanv1.Origin_name {
		d.Origin = pointsmanv1.Origin(origin)
		tel.Decided(ctx, &d)
	}
	tel.Predicted(ctx, "main", "strong", 0.9)
	shadow := d
	shadow.Basis, shadow.Target, shadow.Shadow = pointsmanv1.Basis_BASIS_SHADOW, "strong", "weak"
	tel.Decided(ctx, &shadow)
	for reason := range pointsmanv1.FallbackReason_name {
		tel.Decided(ctx, &Decision{
			ID: "id", Route: "main", Target: "strong", Basis: pointsmanv1.Basis_BASIS_FALLBACK,
			Reason: pointsmanv1.FallbackReason(reason), TradeOff: 0.5,
		})
	}
}

func everyCacheEvent(ctx context.Context, tel *Telemetry) {
	o := tel.CacheObserver()
	for layer := range cacheLayers {
		for found := range cacheOutcomes {
			o.Lookup(ctx, cache.Layer(layer), cache.Outcome(found))
		}
	}
	for stage := range cacheStages {
		_, done := o.Stage(ctx, cache.Stage(stage))
		done(nil)
		_, done = o.Stage(ctx, cache.Stage(stage))
		done(cache.ErrPanicked)
	}
	for event := range cacheEvents {
		o.Count(ctx, cache.Event(event))
	}
	o.Joined(ctx, ctx)
	o.PanicRecovered(ctx, "a task", []byte("stack"))
}

func everyProbeEvent(ctx context.Context, tel *Telemetry) {
	o := tel.ProbeObserver(ProbeInfo{Name: "qwen", Model: "Qwen/Qwen3-8B", BaseURL: "http://vllm:8000/v1"})
	for stage := range probeStages {
		for _, row := range outcomeTable {
			_, done := o.Stage(ctx, probe.Stage(stage))
			done(fmt.Errorf("wrapped: %w", row.err))
		}
		for _, err := range []error{nil, errors.New("anything else")} {
			_, done := o.Stage(ctx, probe.Stage(stage))
			done(err)
		}
	}
	o.Inject(ctx, http.Header{})
	for _, dtype := range []string{"BF16", "F16", "F32", "", "I8"} {
		o.Artifact(ctx, probe.ArtifactReport{Bytes: 1 << 20, DType: dtype, Tokens: 7, Locked: dtype != "", Left: dtype == "I8"})
	}
	for _, state := range []probe.State{probe.StateDown, probe.StateDegraded, probe.StateReady} {
		o.Breaker(state)
	}
	o.Swept(probe.SweepReport{Removed: 1, Held: 2, Foreign: 3, Took: time.Millisecond})
	o.Swept(probe.SweepReport{Errors: 1})
}

// scrape asks for /metrics as Prometheus does.
func scrape(t testing.TB, h http.Handler, accept string) string {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept", accept)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	body, err := io.ReadAll(rec.Body)
	if err != nil || rec.Code != http.StatusOK {
		t.Fatalf("%d %v", rec.Code, err)
	}
	return string(body)
}

// families parses a scrape.
func families(t testing.TB, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
