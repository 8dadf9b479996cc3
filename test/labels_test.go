package test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// TestAHostileClientAddsNoLabelValue sends 10,000 calls that differ in everything that
// can differ, to a vLLM whose errors all differ, and holds that no series is added to
// those of the first few.
func TestAHostileClientAddsNoLabelValue(t *testing.T) {
	var mu sync.Mutex
	errorsSent := 0
	w := start(t, setup{
		vllm: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			errorsSent++
			n := errorsSent
			mu.Unlock()
			rw.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(rw, `{"error":{"type":"hostile-%d","param":"hostile-%d","message":"hostile %d","code":%d}}`, n, n, n, n)
		}),
		probeYAML: "max_queue: 1024\nqueue_timeout: 1m\nsweep: { interval: 1m, min_age: 1h }",
	})
	hostile := func(n int) {
		ctx := metadata.AppendToOutgoingContext(t.Context(),
			"x-request-id", fmt.Sprintf("hostile-%d", n),
			"traceparent", fmt.Sprintf("00-%032x-%016x-01", n+1, n+1),
			"baggage", fmt.Sprintf("hostile-%d=hostile-%d", n, n),
		)
		text := fmt.Sprintf("Hostile %d.", n)
		for _, req := range []*pointsmanv1.DecideRequest{
			{Input: task(text).GetInput(), CacheNamespace: fmt.Sprintf("hostile-%d", n)},
			{Input: task(text).GetInput(), Route: fmt.Sprintf("hostile-%d", n)},
			{Input: task(text).GetInput(), AllowedTargets: []string{fmt.Sprintf("hostile-%d", n)}},
			{Input: task(text).GetInput(), CachePolicy: pointsmanv1.CachePolicy(100 + n)},
		} {
			_, _ = w.client.Decide(ctx, req) // most are refused
		}
		_ = w.conn.Invoke(ctx, fmt.Sprintf("/pointsman.v1.DecisionService/Hostile%d", n), &emptypb.Empty{}, &emptypb.Empty{})
	}
	hostile(0)
	before := w.series(t)
	const calls, callers = 10_000, 16
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for n := caller; n < calls/5; n += callers { // five calls each
				hostile(1 + n)
			}
		})
	}
	group.Wait()
	if diff := cmp.Diff(before, w.series(t)); diff != "" {
		t.Errorf("series (-before +after):\n%s", diff)
	}
	if errorsSent < calls/5 {
		t.Errorf("vLLM sent %d errors, want %d", errorsSent, calls/5)
	}
}

// series are all series of /metrics by name and labels, those of the Go runtime and
// the process excepted.
func (w *world) series(t *testing.T) []string {
	t.Helper()
	_, text := w.get(t, "/metrics")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for name, family := range families {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		for _, m := range family.GetMetric() {
			all = append(all, name+labelText(m))
		}
	}
	slices.Sort(all)
	return all
}

func labelText(m *dto.Metric) string {
	var b strings.Builder
	for _, l := range m.GetLabel() {
		fmt.Fprintf(&b, " %s=%s", l.GetName(), l.GetValue())
	}
	return b.String()
}
