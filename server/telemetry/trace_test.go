package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/probe"
)

func TestTheProbeIsAClientSpanOfTheConventions(t *testing.T) {
	tel, spans := newTelemetry(t)
	ctx, root := tel.tracer.Start(t.Context(), "call")
	o := tel.ProbeObserver(ProbeInfo{Name: "qwen", Model: "Qwen/Qwen3-8B", BaseURL: "http://vllm:8000/v1"})
	ctx, done := o.Stage(ctx, probe.StageHTTP)
	header := http.Header{}
	o.Inject(ctx, header)
	done(fmt.Errorf("asking: %w", probe.ErrUnavailable))
	root.End()

	span := spans.GetSpans()[0]
	if span.Name != "chat Qwen/Qwen3-8B" || span.SpanKind != trace.SpanKindClient {
		t.Errorf("%s %v", span.Name, span.SpanKind)
	}
	if span.Status.Code != codes.Error {
		t.Errorf("status %v", span.Status)
	}
	got := attribute.NewSet(span.Attributes...)
	for key, want := range map[attribute.Key]string{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "vllm", "gen_ai.request.model": "Qwen/Qwen3-8B",
		"server.address": "vllm", "server.port": "8000", "error.type": "unavailable", "pointsman.probe": "qwen",
	} {
		if v, _ := got.Value(key); v.String() != want {
			t.Errorf("%s is %q, want %q", key, v.String(), want)
		}
	}
	want := fmt.Sprintf("00-%s-%s-01", span.SpanContext.TraceID(), span.SpanContext.SpanID())
	if header.Get("Traceparent") != want {
		t.Errorf("traceparent %q, want %q", header.Get("Traceparent"), want)
	}
}

func TestAWaitingCallLinksToTheComputingOne(t *testing.T) {
	tel, spans := newTelemetry(t)
	computing, leader := tel.tracer.Start(t.Context(), "leader")
	ctx, root := tel.tracer.Start(t.Context(), "joiner")
	o := tel.CacheObserver()
	ctx, done := o.Stage(ctx, cache.StageWait)
	o.Joined(ctx, computing)
	done(nil)
	root.End()
	leader.End()
	wait := spans.GetSpans()[0]
	if wait.Name != spanCacheWait || len(wait.Links) != 1 || wait.Links[0].SpanContext.SpanID() != leader.SpanContext().SpanID() {
		t.Errorf("%s links to %v", wait.Name, wait.Links)
	}
}

// TestALocalHitMakesOneSpanOfItsOwn is the budget: with the call's, two.
func TestALocalHitMakesOneSpanOfItsOwn(t *testing.T) {
	tel, spans := newTelemetry(t)
	ctx, root := tel.tracer.Start(t.Context(), "call")
	localHit(ctx, tel, tel.CacheObserver())
	root.End()
	if got := spans.GetSpans(); len(got) != 2 {
		t.Errorf("%d spans, want 2: %v", len(got), names(got))
	}
}

var steady = 0.9

// localHit observes what a decision from the local cache consists of.
func localHit(ctx context.Context, tel *Telemetry, o cache.Observer) {
	o.Lookup(ctx, cache.LayerLocal, cache.Hit)
	_, done := tel.DecisionStage(ctx, StagePolicy)
	done(nil)
	tel.Predicted(ctx, "main", "strong", 0.9)
	tel.Predicted(ctx, "main", "weak", 0.5)
	tel.Decided(ctx, &Decision{
		ID: "id", Route: "main", Target: "weak", Tier: 2, Basis: 1, Origin: 2, Learned: true,
		Confidence: &steady, TradeOff: 0.2, IsTolerance: true,
	})
}

// TestObservingALocalHitAllocatesNothing holds for calls that are not sampled, which
// are nearly all.
func TestObservingALocalHitAllocatesNothing(t *testing.T) {
	tel, _ := newTelemetry(t)
	o := tel.CacheObserver()
	ctx := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1},
	}))
	localHit(ctx, tel, o) // the labels are made
	if got := testing.AllocsPerRun(100, func() { localHit(ctx, tel, o) }); got > 0 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkObserveLocalHit(b *testing.B) {
	tel, _ := newTelemetry(b)
	o := tel.CacheObserver()
	b.ReportAllocs()
	for b.Loop() {
		localHit(b.Context(), tel, o)
	}
}

// TestWithoutASampledParentThereIsNoSpan holds for health checks, sweeps, and what is
// not sampled.
func TestWithoutASampledParentThereIsNoSpan(t *testing.T) {
	tel, spans := newTelemetry(t)
	exerciseStages(t.Context(), tel)
	if got := spans.GetSpans(); len(got) != 0 {
		t.Errorf("%d spans: %v", len(got), names(got))
	}
}

func exerciseStages(ctx context.Context, tel *Telemetry) {
	_, done := tel.DecisionStage(ctx, StageScore)
	done(nil)
	_, done = tel.CacheObserver().Stage(ctx, cache.StageCompute)
	done(nil)
	_, done = tel.ProbeObserver(ProbeInfo{}).Stage(ctx, probe.StagePool)
	done(nil)
}

// TestTheCallersTraceIsKnownWithoutTracing lets the log and vLLM have its id.
func TestTheCallersTraceIsKnownWithoutTracing(t *testing.T) {
	tel, err := New(t.Context(), Config{Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tel.Shutdown(context.Background()) }()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := tel.Continue(metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", parent)))
	header := http.Header{}
	tel.ProbeObserver(ProbeInfo{}).Inject(ctx, header)
	if got := header.Get("Traceparent"); got != parent {
		t.Errorf("vLLM is told %q, want %q", got, parent)
	}
	if tel.RPCHandler(nil) != nil {
		t.Error("calls are traced though nothing is exported")
	}
}

func TestExportNeedsAnEndpoint(t *testing.T) {
	for _, c := range []struct {
		name    string
		env     map[string]string
		offline bool
		spans   bool
		metrics bool
	}{
		{name: "nothing set"},
		{name: "an exporter without an endpoint", env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}},
		{name: "an endpoint", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, spans: true, metrics: true},
		{name: "one for traces", env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, spans: true},
		{
			name: "one, but metrics are scraped", spans: true,
			env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_METRICS_EXPORTER": "none"},
		},
		{name: "disabled", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}},
		{name: "offline", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, offline: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for key, value := range c.env {
				t.Setenv(key, value)
			}
			got, err := exportsFromEnv(t.Context(), c.offline)
			if err != nil {
				t.Fatal(err)
			}
			if (got.spans != nil) != c.spans || (got.metrics != nil) != c.metrics {
				t.Errorf("spans %v, metrics %v", got.spans != nil, got.metrics != nil)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // nobody listens there
			if got.spans != nil {
				_ = got.spans.Shutdown(ctx)
			}
			if got.metrics != nil {
				_ = got.metrics.Shutdown(ctx)
			}
		})
	}
}

func TestAnExporterThatIsUnknownIsAnError(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
	if _, err := New(t.Context(), Config{}); err == nil {
		t.Error("no error")
	}
}

func TestExportProblemsAreInOurOwnWords(t *testing.T) {
	if got := exportProblem(errors.New("the collector says: secret")); got != "the export failed" {
		t.Errorf("%q", got)
	}
	if got := exportProblem(fmt.Errorf("sending: %w", context.DeadlineExceeded)); got != "the collector did not answer in time" {
		t.Errorf("%q", got)
	}
}

func names(spans tracetest.SpanStubs) []string {
	out := make([]string, len(spans))
	for i, s := range spans {
		out[i] = s.Name
	}
	return out
}
