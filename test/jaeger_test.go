package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/server"
)

// jaegerEnv names the Jaeger binary; `make e2e` builds one and sets it.
const jaegerEnv = "POINTSMAN_JAEGER"

// TestTracesInJaeger drives the same decisions as TestTraces, exports their spans by
// OTLP as any deployment does, and reads the traces back from a real Jaeger.
func TestTracesInJaeger(t *testing.T) {
	binary := os.Getenv(jaegerEnv)
	if binary == "" {
		t.Skipf("%s is not set: run make e2e", jaegerEnv)
	}
	j := startJaeger(t, binary)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+j.otlp)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	t.Setenv("OTEL_METRICS_EXPORTER", "none") // Jaeger takes traces
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50") // ms; the default of 5 s is long for a test
	testTraces(t, j)
	t.Run("a gateway's call", func(t *testing.T) { testGatewayTrace(t, j) })

	var services struct{ Data []string }
	j.get(t, "/api/services", &services)
	slices.Sort(services.Data)
	if got := strings.Join(services.Data, " "); got != "gateway pointsman" {
		t.Errorf("services %q, want gateway and pointsman", got)
	}
}

// testGatewayTrace calls as a gateway does that exports spans of its own, and holds
// that one trace in Jaeger has both sides of the call.
func testGatewayTrace(t *testing.T, j *jaeger) {
	w := start(t, setup{})
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(j.otlp), otlptracegrpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	provider := trace.NewTracerProvider(trace.WithSyncer(exporter), trace.WithResource(
		resource.NewSchemaless(attribute.String("service.name", "gateway"))))
	conn, err := grpc.NewClient(w.conn.Target(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(
			otelgrpc.WithTracerProvider(provider), otelgrpc.WithPropagators(propagation.TraceContext{}))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, span := provider.Tracer("gateway").Start(t.Context(), "POST /v1/chat/completions")
	if _, err := pointsmanv1.NewDecisionServiceClient(conn).Decide(ctx, task("Through a gateway.")); err != nil {
		t.Fatal(err)
	}
	span.End()
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	const want = "POST /v1/chat/completions\n  " + decideSpan + "\n    " + decideSpan + `
      cache compute
        probe
          probe queue
          chat test/encoder
          probe artifact
          probe pool
        score
      policy
`
	spans := j.spans(t, span.SpanContext().TraceID().String(), strings.Count(want, "\n"))
	if got := spanTree(spans, ""); got != want {
		t.Errorf("the trace is\n%s\nwant\n%s", got, want)
	}
}

// jaeger is a running Jaeger.
type jaeger struct{ otlp, query string }

// startJaeger runs Jaeger until the test ends.
func startJaeger(t *testing.T, binary string) *jaeger {
	t.Helper()
	ports := [2]int{redistest.FreePort(t), redistest.FreePort(t)}
	j := &jaeger{otlp: fmt.Sprintf("127.0.0.1:%d", ports[0]), query: fmt.Sprintf("http://127.0.0.1:%d", ports[1])}
	config, err := filepath.Abs("jaeger/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, "--config="+config)
	var log safeBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Env = append(os.Environ(), fmt.Sprintf("JAEGER_OTLP_PORT=%d", ports[0]), fmt.Sprintf("JAEGER_QUERY_PORT=%d", ports[1]))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was interrupted
		if t.Failed() {
			t.Logf("Jaeger:\n%s", log.String())
		}
	})
	eventually(t, func() string {
		var services any
		if err := j.ask(t.Context(), "/api/services", &services); err != nil {
			return err.Error()
		}
		return ""
	})
	return j
}

func (j *jaeger) options() []server.Option { return nil }

// ask asks Jaeger's query API.
func (j *jaeger) ask(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.query+path, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return nil // a trace that has not come yet
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

func (j *jaeger) get(t *testing.T, path string, into any) {
	t.Helper()
	if err := j.ask(t.Context(), path, into); err != nil {
		t.Fatal(err)
	}
}

// jaegerSpan is what is read of a span in Jaeger's answer.
type jaegerSpan struct {
	SpanID        string
	OperationName string
	StartTime     int64 // microseconds
	References    []struct{ RefType, SpanID string }
	Tags          []struct {
		Key   string
		Value any
	}
}

func (j *jaeger) spans(t *testing.T, traceID string, wanted int) []span {
	t.Helper()
	var found []span
	eventually(t, func() string {
		var answer struct {
			Data []struct{ Spans []jaegerSpan }
		}
		if err := j.ask(t.Context(), "/api/traces/"+traceID, &answer); err != nil {
			return err.Error()
		}
		found = nil
		for _, one := range answer.Data {
			for _, s := range one.Spans {
				found = append(found, fromJaeger(s))
			}
		}
		if len(found) < wanted {
			return fmt.Sprintf("%d spans, want %d:\n%s", len(found), wanted, spanTree(found, gatewaySpan))
		}
		return ""
	})
	return found
}

func fromJaeger(s jaegerSpan) span {
	out := span{id: s.SpanID, name: s.OperationName, begin: time.UnixMicro(s.StartTime), attributes: map[string]string{}}
	for i, r := range s.References {
		if r.RefType == "CHILD_OF" && i == 0 {
			out.parent = r.SpanID
		} else {
			out.links = append(out.links, r.SpanID)
		}
	}
	for _, tag := range s.Tags {
		if tag.Key == "span.kind" {
			out.kind = fmt.Sprint(tag.Value)
			continue
		}
		out.attributes[tag.Key] = fmt.Sprint(tag.Value)
	}
	return out
}
