package test

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
	"github.com/pointsman-dev/pointsman/server"
)

// span is one span as any tracing system has it.
type span struct {
	id, parent, name, kind string
	begin                  time.Time
	attributes             map[string]string
	links                  []string // ids of spans
	events                 []string
}

// spanSource is where the spans of a trace are read, once at least as many as wanted
// are there.
type spanSource interface {
	options() []server.Option
	spans(t *testing.T, traceID string, wanted int) []span
}

// tree renders the spans of a trace, children below their parents in the order of
// their begin. What the service did not make is not in it.
func spanTree(spans []span, parent string) string {
	var b strings.Builder
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Or(a.begin.Compare(b.begin), cmp.Compare(a.id, b.id)) })
	var walk func(parent string, depth int)
	walk = func(parent string, depth int) {
		for _, s := range spans {
			if s.parent == parent {
				fmt.Fprintf(&b, "%s%s\n", strings.Repeat("  ", depth), s.name)
				walk(s.id, depth+1)
			}
		}
	}
	walk(parent, 0)
	return b.String()
}

// find returns the trace's span of a name.
func find(t *testing.T, spans []span, name string) span {
	t.Helper()
	for _, s := range spans {
		if s.name == name {
			return s
		}
	}
	t.Fatalf("no span %q in\n%s", name, spanTree(spans, gatewaySpan))
	return span{}
}

// The trace that the tests' gateway is in: each call has a trace of its own.
const gatewaySpan = "00f067aa0ba902b7"

var newTraceID = func() func() string {
	var mu sync.Mutex
	n := time.Now().UnixNano()
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		n++
		return fmt.Sprintf("%032x", n)
	}
}()

// decideTraced decides as a gateway that is being traced does.
func (w *world) decideTraced(t *testing.T, req *pointsmanv1.DecideRequest) (traceID string, resp *pointsmanv1.DecideResponse) {
	t.Helper()
	traceID = newTraceID()
	ctx := metadata.AppendToOutgoingContext(t.Context(),
		"traceparent", "00-"+traceID+"-"+gatewaySpan+"-01",
		"baggage", "tenant=acme")
	resp, err := w.client.Decide(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return traceID, resp
}

const decideSpan = "pointsman.v1.DecisionService/Decide"

// The trees of a decision, by where its scores came from.
var trees = map[pointsmanv1.Origin]string{
	pointsmanv1.Origin_ORIGIN_COMPUTED: decideSpan + `
  redis claim
  cache compute
    probe
      probe queue
      chat test/encoder
      probe artifact
      probe pool
    score
  policy
`,
	pointsmanv1.Origin_ORIGIN_LOCAL_CACHE:  decideSpan + "\n  policy\n",
	pointsmanv1.Origin_ORIGIN_SHARED_CACHE: decideSpan + "\n  redis claim\n  policy\n",
	pointsmanv1.Origin_ORIGIN_JOINED_LOCAL: decideSpan + "\n  cache wait\n  policy\n",
	pointsmanv1.Origin_ORIGIN_JOINED_SHARED: decideSpan + `
  redis claim
  cache lease
  policy
`,
}

func TestTraces(t *testing.T) { testTraces(t, &memorySpans{tracetest.NewInMemoryExporter()}) }

// testTraces holds that a trace shows where a decision's time went and why it was
// made, for every origin.
func testTraces(t *testing.T, source spanSource) {
	redis := redistest.Start(t)
	checkpoint := filepath.Join(t.TempDir(), "router")
	saveCheckpoint(t, checkpoint, layers)
	here := setup{
		sim:        vllmsim.Config{Latency: 150 * time.Millisecond},
		checkpoint: checkpoint,
		moreYAML:   fmt.Sprintf("cache: { redis: { url: %q, op_timeout: 100ms } }", "redis://"+redis.Addr),
		options:    source.options(),
	}
	one, other := start(t, here), start(t, here)
	for _, w := range []*world{one, other} {
		eventually(t, func() string {
			if _, body := w.get(t, "/readyz"); strings.Contains(body, "DEGRADED") {
				return body
			}
			return ""
		})
	}
	// check reads a trace back and compares its tree.
	check := func(t *testing.T, traceID string, resp *pointsmanv1.DecideResponse, origin pointsmanv1.Origin) []span {
		t.Helper()
		if resp.GetOrigin() != origin {
			t.Fatalf("origin %v, want %v", resp.GetOrigin(), origin)
		}
		want := trees[origin]
		spans := source.spans(t, traceID, strings.Count(want, "\n"))
		if got := spanTree(spans, gatewaySpan); got != want {
			t.Errorf("the trace is\n%s\nwant\n%s", got, want)
		}
		root := find(t, spans, decideSpan)
		for key, value := range map[string]string{
			"pointsman.route": "main", "pointsman.target": resp.GetTarget(), "pointsman.basis": "LEARNED",
			"pointsman.tier":              strings.TrimPrefix(resp.GetTier().String(), "TIER_"),
			"pointsman.origin":            strings.TrimPrefix(origin.String(), "ORIGIN_"),
			"pointsman.decision.id":       resp.GetDecisionId(),
			"pointsman.tolerance":         "0.2",
			"pointsman.checkpoint.digest": resp.GetCheckpointDigest(),
			"pointsman.task.tokens":       fmt.Sprint(resp.GetTaskTokens()),
			"pointsman.confidence":        fmt.Sprint(resp.GetConfidence()),
			"pointsman.margin":            fmt.Sprint(resp.GetMargin()),
		} {
			if root.attributes[key] != value {
				t.Errorf("%s is %q, want %q", key, root.attributes[key], value)
			}
		}
		return spans
	}

	t.Run("computed, then local, then shared", func(t *testing.T) {
		const text = "What is the capital of the moon?"
		traceID, resp := one.decideTraced(t, task(text))
		spans := check(t, traceID, resp, pointsmanv1.Origin_ORIGIN_COMPUTED)
		chat := find(t, spans, "chat test/encoder")
		if chat.kind != "client" || chat.attributes["gen_ai.operation.name"] != "chat" || chat.attributes["gen_ai.request.model"] != encoder {
			t.Errorf("the probe's span is %+v", chat)
		}
		seen := one.sim.Requests()[0].Header
		if want := "00-" + traceID + "-" + chat.id + "-01"; seen.Get("Traceparent") != want {
			t.Errorf("vLLM was told traceparent %q, want %q", seen.Get("Traceparent"), want)
		}
		if got := seen.Get("Baggage"); got != "" {
			t.Errorf("vLLM was told the caller's baggage: %q", got)
		}
		if got := find(t, spans, "probe").attributes["gen_ai.usage.input_tokens"]; got != fmt.Sprint(resp.GetTaskTokens()) {
			t.Errorf("input tokens %s, want %d", got, resp.GetTaskTokens())
		}
		traceID, resp = one.decideTraced(t, task(text))
		check(t, traceID, resp, pointsmanv1.Origin_ORIGIN_LOCAL_CACHE)
		// The value is stored after the answer has left.
		eventually(t, func() string {
			traceID, resp = other.decideTraced(t, &pointsmanv1.DecideRequest{
				Input: &pointsmanv1.DecideRequest_Task{Task: text}, CachePolicy: pointsmanv1.CachePolicy_CACHE_POLICY_ONLY_IF_CACHED,
			})
			return reasonName(resp)
		})
		if resp.GetOrigin() != pointsmanv1.Origin_ORIGIN_SHARED_CACHE {
			t.Fatalf("%v", resp)
		}
		if got, want := spanTree(source.spans(t, traceID, 3), gatewaySpan), decideSpan+"\n  redis read\n  policy\n"; got != want {
			t.Errorf("the trace is\n%s\nwant\n%s", got, want)
		}
	})
	t.Run("shared", func(t *testing.T) {
		const text = "Shared by all."
		one.decide(t, task(text))
		client := redis.Client()
		defer client.Close()
		eventually(t, func() string {
			if keys, err := client.Keys(t.Context(), "*:v").Result(); err != nil || len(keys) < 2 {
				return fmt.Sprint(keys, err)
			}
			return ""
		})
		traceID, resp := other.decideTraced(t, task(text))
		check(t, traceID, resp, pointsmanv1.Origin_ORIGIN_SHARED_CACHE)
	})
	for _, c := range []struct {
		name   string
		joiner *world
		origin pointsmanv1.Origin
	}{
		{"joined in this process", one, pointsmanv1.Origin_ORIGIN_JOINED_LOCAL},
		{"joined in another process", other, pointsmanv1.Origin_ORIGIN_JOINED_SHARED},
	} {
		t.Run(c.name, func(t *testing.T) {
			leader := make(chan string, 1)
			go func() {
				traceID, _ := one.decideTraced(t, task(c.name))
				leader <- traceID
			}()
			one.awaitProbe(t)
			traceID, resp := c.joiner.decideTraced(t, task(c.name))
			spans := check(t, traceID, resp, c.origin)
			leading := source.spans(t, <-leader, strings.Count(trees[pointsmanv1.Origin_ORIGIN_COMPUTED], "\n"))
			if c.joiner != one {
				return // what another process does is not known here
			}
			want := []string{find(t, leading, decideSpan).id}
			if got := find(t, spans, "cache wait").links; !slices.Equal(got, want) {
				t.Errorf("the waiting span links to %q, want %q", got, want)
			}
		})
	}
	t.Run("fallback", func(t *testing.T) {
		one.sim.QueueFaults(vllmsim.NaN())
		traceID, resp := one.decideTraced(t, task("Not a number."))
		spans := source.spans(t, traceID, 8)
		root := find(t, spans, decideSpan)
		if root.attributes["pointsman.fallback_reason"] != "PROBE_ARTIFACT" || root.attributes["pointsman.basis"] != "FALLBACK" {
			t.Errorf("%v: %v", resp, root.attributes)
		}
		if got := find(t, spans, "probe pool").attributes["error.type"]; got != "artifact" {
			t.Errorf("error.type %q, want artifact", got)
		}
	})
	t.Run("health and reflection are not traced", func(t *testing.T) {
		traceID := newTraceID()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+traceID+"-"+gatewaySpan+"-01")
		if _, err := healthv1.NewHealthClient(one.conn).Check(ctx, &healthv1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		listServices(t, one)
		// One that is traced, and comes after them.
		later, _ := one.decideTraced(t, task("Later."))
		source.spans(t, later, strings.Count(trees[pointsmanv1.Origin_ORIGIN_COMPUTED], "\n"))
		if got := source.spans(t, traceID, 0); len(got) != 0 {
			t.Errorf("traced:\n%s", spanTree(got, gatewaySpan))
		}
	})
}

// memorySpans keeps spans in the test's own memory.
type memorySpans struct{ exporter *tracetest.InMemoryExporter }

func (m *memorySpans) options() []server.Option {
	return []server.Option{server.WithSpanExporter(keepOpen{m.exporter})}
}

// keepOpen lets several services share an exporter: the first to stop does not end it.
type keepOpen struct{ sdktrace.SpanExporter }

func (keepOpen) Shutdown(context.Context) error { return nil }

func (m *memorySpans) spans(t *testing.T, traceID string, wanted int) []span {
	t.Helper()
	var found []span
	eventually(t, func() string {
		found = nil
		for _, s := range m.exporter.GetSpans() {
			if s.SpanContext.TraceID().String() == traceID {
				found = append(found, fromStub(&s))
			}
		}
		if len(found) < wanted {
			return fmt.Sprintf("%d spans, want %d:\n%s", len(found), wanted, spanTree(found, gatewaySpan))
		}
		return ""
	})
	return found
}

func fromStub(s *tracetest.SpanStub) span {
	out := span{
		id: s.SpanContext.SpanID().String(), parent: s.Parent.SpanID().String(), name: s.Name,
		kind: s.SpanKind.String(), begin: s.StartTime, attributes: map[string]string{},
	}
	for _, a := range s.Attributes {
		out.attributes[string(a.Key)] = a.Value.String()
	}
	for _, l := range s.Links {
		out.links = append(out.links, l.SpanContext.SpanID().String())
	}
	for _, e := range s.Events {
		out.events = append(out.events, e.Name)
	}
	return out
}
