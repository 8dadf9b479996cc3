package test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

func TestHealthAndReflection(t *testing.T) {
	w := start(t, setup{})
	for _, name := range []string{"", "liveness", "readiness", "pointsman.v1.DecisionService"} {
		resp, err := healthv1.NewHealthClient(w.conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
		if err != nil || resp.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v %v", name, resp, err)
		}
	}
	if got := listServices(t, w); !slices.Contains(got, "pointsman.v1.DecisionService") {
		t.Errorf("reflection lists %q", got)
	}
}

func TestReflectionCanBeSwitchedOff(t *testing.T) {
	w := start(t, setup{grpcYAML: "reflection: false"})
	stream, err := reflectionv1.NewServerReflectionClient(w.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("%v", err)
	}
}

func listServices(t testing.TB, w *world) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := reflectionv1.NewServerReflectionClient(w.conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	}); err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range resp.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	return names
}

// readyz is what the tests read of /readyz.
type readyz struct {
	Ready  bool
	Phase  string
	Probes map[string]struct {
		State     string
		LastError string `json:"last_error"`
		InFlight  int    `json:"in_flight"`
	}
}

func (w *world) get(t testing.TB, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.admin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (w *world) readyz(t testing.TB) (int, readyz) {
	t.Helper()
	code, body := w.get(t, "/readyz")
	var r readyz
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return code, r
}

func TestAFailingProbeIsReportedAndLeavesTheServiceReady(t *testing.T) {
	w := start(t, setup{})
	if code, r := w.readyz(t); code != http.StatusOK || !r.Ready || r.Phase != "serving" || r.Probes["p"].State != "READY" {
		t.Errorf("at first: %d %+v", code, r)
	}
	w.sim.SetFault(vllmsim.Status(500, vllmsim.BodyJSON))
	w.decide(t, task("It fails."))
	if code, r := w.readyz(t); code != http.StatusOK || !r.Ready || r.Probes["p"].State != "DEGRADED" || r.Probes["p"].LastError == "" {
		t.Errorf("with a failing probe: %d %+v", code, r)
	}
	if code, _ := w.get(t, "/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d", code)
	}
	if resp := w.decide(t, task("It still answers.")); resp.GetBasis() != pointsmanv1.Basis_BASIS_FALLBACK {
		t.Errorf("%v", resp)
	}
}

// TestStoppingLetsCallsFinish stops a service while a probe is under way: the
// caller gets its learned answer, and no file is left.
func TestStoppingLetsCallsFinish(t *testing.T) {
	w := start(t, setup{sim: vllmsim.Config{Latency: 300 * time.Millisecond}})
	answer := make(chan *pointsmanv1.DecideResponse, 1)
	go func() {
		resp, err := w.client.Decide(t.Context(), task("Just in time."))
		if err != nil {
			t.Error(err)
		}
		answer <- resp
	}()
	w.awaitProbe(t)
	go w.stop()
	if resp := <-answer; resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED {
		t.Errorf("%v", resp)
	}
	w.stop() // waits for the one that is under way
	if left := w.files(t); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestStoppingLetsAbandonedProbesFinish does the same for a probe whose caller
// has left.
func TestStoppingLetsAbandonedProbesFinish(t *testing.T) {
	w := start(t, setup{sim: vllmsim.Config{Latency: 300 * time.Millisecond}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := w.client.Decide(ctx, task("No patience.")); err != nil {
		t.Fatal(err)
	}
	w.stop()
	if stats := w.sim.Stats(); stats.Requests != 1 || stats.Aborted != 0 {
		t.Errorf("%d probes, %d aborted; want 1 and 0", stats.Requests, stats.Aborted)
	}
	if left := w.files(t); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestOneLogLineAnRPC(t *testing.T) {
	w := start(t, setup{})
	const secret = "a task that nobody may read"
	resp := w.decide(t, task(secret))
	w.decide(t, task(secret))
	if _, err := w.client.Decide(t.Context(), &pointsmanv1.DecideRequest{Route: "nowhere", Input: &pointsmanv1.DecideRequest_Task{Task: secret}}); err == nil {
		t.Error("an unknown route was answered")
	}
	if _, err := healthv1.NewHealthClient(w.conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	w.stop()
	var lines []map[string]any
	for line := range strings.Lines(w.log.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if entry["msg"] == "rpc" {
			lines = append(lines, entry)
		}
	}
	if len(lines) != 3 {
		t.Fatalf("%d lines for 3 calls:\n%s", len(lines), w.log.String())
	}
	for key, want := range map[string]any{
		"code": "OK", "method": "/pointsman.v1.DecisionService/Decide", "decision_id": resp.GetDecisionId(),
		"route": "main", "target": resp.GetTarget(), "basis": "LEARNED", "origin": "COMPUTED",
	} {
		if lines[0][key] != want {
			t.Errorf("%s is %v, want %v", key, lines[0][key], want)
		}
	}
	if lines[1]["origin"] != "LOCAL_CACHE" || lines[2]["code"] != "NotFound" {
		t.Errorf("%v\n%v", lines[1], lines[2])
	}
	if strings.Contains(w.log.String(), secret) {
		t.Error("the log holds the task")
	}
}
