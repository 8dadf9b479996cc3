package test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

// serving asks gRPC health.
func (w *world) serving(t testing.TB, name string) bool {
	t.Helper()
	resp, err := healthv1.NewHealthClient(w.conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetStatus() == healthv1.HealthCheckResponse_SERVING
}

// TestAReplicaWithoutItsProbeIsNoBlackHole has one with a backup too: it answers faster
// still, and not as well as the replicas beside it.
func TestAReplicaWithoutItsProbeIsNoBlackHole(t *testing.T) {
	words := filepath.Join(t.TempDir(), "words")
	saveLexicalCheckpoint(t, words)
	for _, c := range []struct{ required, backup bool }{{false, false}, {true, false}, {true, true}} {
		required := c.required
		t.Run(fmt.Sprintf("require_probe %v, backup %v", required, c.backup), func(t *testing.T) {
			s := setup{probeYAML: "breaker: { failures: 2, open_for: 500ms }", moreYAML: fmt.Sprintf("readiness: { require_probe: %v }", required)}
			if c.backup {
				s.routeYAML = fmt.Sprintf("backup: { probe: words, checkpoint: %q }", words)
				s.moreYAML = "  words: { kind: lexical }\n" + s.moreYAML
			}
			w := start(t, s)
			w.sim.SetFault(vllmsim.Status(http.StatusServiceUnavailable, vllmsim.BodyEmpty))
			for i := range 3 {
				w.decide(t, task(fmt.Sprintf("It fails %d.", i)))
			}
			eventually(t, func() string {
				code, r := w.readyz(t)
				ready := code == http.StatusOK
				if r.Probes["p"].State == "READY" || w.serving(t, "probe/p") || ready == required || w.serving(t, "readiness") == required {
					return fmt.Sprintf("%d %+v", code, r)
				}
				return ""
			})
			routes, err := w.client.ListRoutes(t.Context(), &pointsmanv1.ListRoutesRequest{})
			if err != nil || routes.GetRoutes()[0].GetProbeState() == pointsmanv1.ProbeState_PROBE_STATE_READY {
				t.Errorf("%v %v", routes, err)
			}
			w.sim.SetFault(vllmsim.Fault{})
			eventually(t, func() string {
				w.decide(t, task(fmt.Sprintf("It is well again %d.", time.Now().UnixNano())))
				if code, r := w.readyz(t); code != http.StatusOK || !w.serving(t, "readiness") || !w.serving(t, "probe/p") {
					return fmt.Sprintf("%d %+v", code, r)
				}
				return ""
			})
		})
	}
}

func TestACanaryIsAnsweredBeforeTheServiceIsReady(t *testing.T) {
	var sim *vllmsim.Server
	w := start(t, setup{
		moreYAML: "readiness: { canary: true }",
		prepare: func(s *vllmsim.Server) {
			sim = s
			s.SetFault(vllmsim.Status(http.StatusServiceUnavailable, vllmsim.BodyEmpty))
		},
	})
	eventually(t, func() string {
		if sim.Stats().Requests == 0 {
			return "no canary yet"
		}
		return ""
	})
	if code, r := w.readyz(t); code != http.StatusServiceUnavailable || r.Phase != "starting" || w.serving(t, "") {
		t.Errorf("%d %+v", code, r)
	}
	sim.SetFault(vllmsim.Fault{})
	eventually(t, func() string {
		if code, r := w.readyz(t); code != http.StatusOK || r.Phase != "serving" || !w.serving(t, "") {
			return fmt.Sprintf("%d %+v", code, r)
		}
		return ""
	})
}

func TestOverALimitIsAFallback(t *testing.T) {
	for name, tt := range map[string]struct {
		setup  setup
		text   string
		reason pointsmanv1.FallbackReason
	}{
		"max_prompt_bytes": {
			setup{probeYAML: "max_prompt_bytes: 100B"},
			strings.Repeat("x", 101),
			pointsmanv1.FallbackReason_FALLBACK_REASON_TASK_TOO_LARGE,
		},
		"max_outstanding_bytes": {
			setup{probeYAML: "max_outstanding_bytes: 1MiB"},
			strings.Repeat("x", 1<<15),
			pointsmanv1.FallbackReason_FALLBACK_REASON_OVERLOADED,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, tt.setup)
			if resp := w.decide(t, task(tt.text)); resp.GetFallbackReason() != tt.reason || w.sim.Stats().Requests != 0 {
				t.Errorf("%v after %d probes", resp, w.sim.Stats().Requests)
			}
			if resp := w.decide(t, task("short")); resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED {
				t.Errorf("%v", resp)
			}
		})
	}
}

func TestTooManyDecisionsAtOnceFallBack(t *testing.T) {
	w := start(t, setup{grpcYAML: "max_in_flight: 1", sim: vllmsim.Config{Latency: 300 * time.Millisecond}})
	first := make(chan *pointsmanv1.DecideResponse, 1)
	go func() {
		resp, err := w.client.Decide(t.Context(), task("the one"))
		if err != nil {
			t.Error(err)
		}
		first <- resp
	}()
	w.awaitProbe(t)
	if resp := w.decide(t, task("one too many")); resp.GetFallbackReason() != pointsmanv1.FallbackReason_FALLBACK_REASON_OVERLOADED {
		t.Errorf("%v", resp)
	}
	if resp := <-first; resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED {
		t.Errorf("%v", resp)
	}
	if resp := w.decide(t, task("there is room again")); resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED {
		t.Errorf("%v", resp)
	}
}

// TestARouteDoesNotSufferFromAnother: the probe of one route answers nothing and its
// gate is full; the other route is as quick as ever.
func TestARouteDoesNotSufferFromAnother(t *testing.T) {
	w := start(t, setup{grpcYAML: "deadline_margin: 100ms"}) // many deadlines end at once, on a machine that may be busy
	stuck := make(chan struct{})
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stuck:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hung.Close)
	t.Cleanup(func() { close(stuck) })
	other := filepath.Join(w.root, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	text := w.yaml + fmt.Sprintf(`
  hung:
    encoder: %q
    endpoints: [ { base_url: %q, hidden_states_dir: %q } ]
    request_timeout: 1500ms
`, encoder, hung.URL+"/v1", other)
	text = strings.Replace(text, "\nprobes:", fmt.Sprintf(`
  other:
    probe: hung
    checkpoint: %q
    targets:
      - { name: strong, tier: strong, model: s, head: strong, cost: 1 }
      - { name: weak, tier: weak, model: w, head: weak, cost: 0.25 }
probes:`, filepath.Join(w.root, "router")), 1)
	text = strings.Replace(text, "\nroutes:", "\ndefault_route: main\nroutes:", 1)
	if err := w.server.Reload(t.Context(), w.parse(t, text)); err != nil {
		t.Fatal(err)
	}
	quick := func() time.Duration {
		var took []time.Duration
		for i := range 20 {
			began := time.Now()
			if resp := w.decide(t, task(fmt.Sprintf("quick %d %d", i, began.UnixNano()))); resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED {
				t.Fatalf("%v", resp)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	alone := quick()
	done := make(chan struct{})
	const many = 80 // more than gate and queue take
	for i := range many {
		go func() {
			defer func() { done <- struct{}{} }()
			req := task(fmt.Sprintf("stuck %d", i))
			req.Route = "other"
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			resp, err := w.client.Decide(ctx, req)
			if err != nil || resp.GetBasis() != pointsmanv1.Basis_BASIS_FALLBACK {
				t.Errorf("%v %v", resp, err)
			}
		}()
	}
	beside := quick()
	for range many {
		<-done
	}
	if beside > 5*alone+20*time.Millisecond {
		t.Errorf("median %v alone, %v beside a route that is stuck", alone, beside)
	}
	t.Logf("median %v alone, %v beside a route that is stuck", alone, beside)
}

// TestTwoEndpoints loses one of two servers of a probe: no call notices.
func TestTwoEndpoints(t *testing.T) {
	w := start(t, setup{})
	dir := filepath.Join(w.root, "second")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	second, err := vllmsim.New(vllmsim.Config{Dir: dir, Model: encoder, Layers: layers, HiddenSize: hiddenSize})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Close() })
	web := httptest.NewServer(second.Handler())
	t.Cleanup(web.Close)
	text := strings.Replace(w.yaml, "endpoints: [ ", fmt.Sprintf("endpoints: [ { base_url: %q, hidden_states_dir: %q }, ", web.URL+"/v1", dir), 1)
	if err := w.server.Reload(t.Context(), w.parse(t, text)); err != nil {
		t.Fatal(err)
	}
	ask := func(what string) {
		t.Helper()
		for i := range 20 {
			if resp := w.decide(t, task(fmt.Sprintf("%s %d", what, i))); resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED {
				t.Fatalf("%v", resp)
			}
		}
	}
	ask("both")
	if a, b := w.sim.Stats().Requests, second.Stats().Requests; a == 0 || b == 0 || a+b != 20 {
		t.Errorf("%d and %d probes", a, b)
	}
	for _, fault := range []vllmsim.Fault{vllmsim.DropEarly(), vllmsim.FileMissing(), vllmsim.Status(500, vllmsim.BodyJSON)} {
		w.sim.SetFault(fault)
		ask(fault.String())
	}
}
