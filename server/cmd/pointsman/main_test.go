package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeService answers every Decide alike and keeps the last request.
type fakeService struct {
	pointsmanv1.UnimplementedDecisionServiceServer

	response *pointsmanv1.DecideResponse
	err      error
	got      *pointsmanv1.DecideRequest
	deadline time.Duration
}

func (f *fakeService) Decide(ctx context.Context, r *pointsmanv1.DecideRequest) (*pointsmanv1.DecideResponse, error) {
	f.got = proto.CloneOf(r)
	if at, ok := ctx.Deadline(); ok {
		f.deadline = time.Until(at)
	}
	return f.response, f.err
}

// start serves service and a health service whose readiness is ready.
func start(t *testing.T, service *fakeService, ready healthpb.HealthCheckResponse_ServingStatus) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pointsmanv1.RegisterDecisionServiceServer(s, service)
	h := health.NewServer()
	h.SetServingStatus("readiness", ready)
	healthpb.RegisterHealthServer(s, h)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(listener) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return listener.Addr().String()
}

// pointsman runs one command line.
func pointsman(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, streams{strings.NewReader(stdin), &out, &errs})
	return code, out.String(), errs.String()
}

func learned() *pointsmanv1.DecideResponse {
	return &pointsmanv1.DecideResponse{
		DecisionId: "0198-id", Route: "main", Target: "weak", Model: "provider/weak", Tier: pointsmanv1.Tier_TIER_WEAK,
		Basis: pointsmanv1.Basis_BASIS_LEARNED, Origin: pointsmanv1.Origin_ORIGIN_COMPUTED,
		Confidence: new(0.98765), Margin: new(0.125),
		Scores: []*pointsmanv1.TargetScore{
			{Target: "strong", Model: "provider/strong", Tier: pointsmanv1.Tier_TIER_STRONG, Head: "h1", Probability: 0.9, ProbabilityStddev: new(0.01), Cost: 1, NormalizedCost: 1, Utility: 0.425},
			{Target: "weak", Model: "provider/weak", Head: "h2", Probability: 0.8, Cost: 0.25, Utility: 0.6},
		},
		TradeOffUsed:     &pointsmanv1.DecideResponse_QualityWeight{QualityWeight: 0.75},
		CheckpointDigest: "sha256:ab", ScoreTime: timestamppb.New(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)), TaskTokens: 12,
		Timing: &pointsmanv1.Timing{Total: durationpb.New(42 * time.Millisecond), Probe: durationpb.New(40*time.Millisecond + 400*time.Nanosecond)},
	}
}

func TestDecidePrintsATable(t *testing.T) {
	tests := []struct {
		name     string
		response *pointsmanv1.DecideResponse
		want     string
	}{
		{"learned", learned(), `
target      weak
model       provider/weak
tier        WEAK
basis       LEARNED
confidence  0.9877
margin      0.1250
trade-off   quality weight 0.75
origin      COMPUTED
scored at   2026-01-31T12:00:00Z
tokens      12
checkpoint  sha256:ab
route       main
decision    0198-id
timing      total 42ms, probe 40ms

   TARGET  TIER    HEAD  PROBABILITY  STDDEV  COST  NORMALISED  UTILITY
   strong  STRONG  h1    0.9000       0.0100  1     1.0000      0.4250
*  weak    -       h2    0.8000       -       0.25  0.0000      0.6000
`},
		{"fallback", &pointsmanv1.DecideResponse{
			DecisionId: "id", Route: "main", Target: "strong", Model: "m\x1b[2J", Basis: pointsmanv1.Basis_BASIS_FALLBACK,
			FallbackReason: pointsmanv1.FallbackReason_FALLBACK_REASON_DEADLINE,
			Timing:         &pointsmanv1.Timing{Total: durationpb.New(time.Millisecond)},
		}, `
target    strong
model     m?[2J
basis     FALLBACK
reason    DEADLINE
route     main
decision  id
timing    total 1ms
`},
		{"shadow", &pointsmanv1.DecideResponse{
			Target: "strong", Basis: pointsmanv1.Basis_BASIS_SHADOW, ShadowTarget: "weak",
			TradeOffUsed: &pointsmanv1.DecideResponse_Tolerance{Tolerance: 0.2},
		}, `
target         strong
basis          SHADOW
shadow target  weak
trade-off      tolerance 0.2
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			address := start(t, &fakeService{response: tt.response}, healthpb.HealthCheckResponse_SERVING)
			code, out, errs := pointsman(t, "", "decide", "--addr", address, "task")
			if code != 0 || errs != "" {
				t.Fatalf("exit code %d: %s", code, errs)
			}
			if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), out); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideRequests(t *testing.T) {
	conversation := filepath.Join(t.TempDir(), "chat.json")
	if err := os.WriteFile(conversation, []byte(`[{"role":"user","content":"hello"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	asTask := func(task string) *pointsmanv1.DecideRequest {
		return &pointsmanv1.DecideRequest{Input: &pointsmanv1.DecideRequest_Task{Task: task}}
	}
	asConversation := &pointsmanv1.DecideRequest{Input: &pointsmanv1.DecideRequest_Conversation{Conversation: &pointsmanv1.Conversation{
		Messages: []*pointsmanv1.ChatMessage{{Role: pointsmanv1.Role_ROLE_USER, Parts: []*pointsmanv1.ContentPart{textPart("hello")}}},
	}}}
	weighed, tolerant := asTask("t"), asTask("t")
	weighed.Route, weighed.TradeOff = "r", &pointsmanv1.DecideRequest_QualityWeight{QualityWeight: 0}
	tolerant.TradeOff = &pointsmanv1.DecideRequest_Tolerance{Tolerance: 0.5}
	tests := []struct {
		name, stdin string
		args        []string
		want        *pointsmanv1.DecideRequest
	}{
		{"task", "", []string{"t"}, asTask("t")},
		{"empty task", "", []string{""}, asTask("")},
		{"task from standard input, byte for byte", " a\n\n", []string{"-"}, asTask(" a\n\n")},
		{"weight zero is a weight", "", []string{"--route", "r", "--quality-weight", "0", "t"}, weighed},
		{"tolerance", "", []string{"--tolerance", "0.5", "t"}, tolerant},
		{"conversation", "", []string{"--conversation", conversation}, asConversation},
		{"conversation from standard input", `{"messages":[{"role":"user","content":"hello"}]}`, []string{"--conversation", "-"}, asConversation},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			service := &fakeService{response: learned()}
			address := start(t, service, healthpb.HealthCheckResponse_SERVING)
			args := append([]string{"decide", "--addr", address, "--deadline", "1m", "--json"}, tt.args...)
			code, out, errs := pointsman(t, tt.stdin, args...)
			if code != 0 || !strings.Contains(out, `"decisionId"`) {
				t.Fatalf("exit code %d, out %s, err %s", code, out, errs)
			}
			if diff := cmp.Diff(tt.want, service.got, protocmp.Transform()); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if service.deadline < 50*time.Second || service.deadline > time.Minute {
				t.Errorf("deadline: %v, want the minute that was asked for", service.deadline)
			}
		})
	}
}

func TestDecideErrors(t *testing.T) {
	refused, err := status.New(codes.NotFound, "there is no route x").WithDetails(
		&errdetails.ErrorInfo{Reason: "ROUTE_NOT_FOUND", Domain: "pointsman.dev"},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "route", Description: "unknown\x07"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, stdin string
		args        []string
		code        int
		want        string
	}{
		{"refused", "", []string{"t"}, 1, "pointsman: decide: NotFound: there is no route x [ROUTE_NOT_FOUND]\n  route: unknown?\n"},
		{"nothing", "", nil, 1, "pointsman: decide: nothing to decide on: give a TASK, - for standard input, or --conversation FILE\n"},
		{"both inputs", "", []string{"t", "--conversation", "-"}, 1, "pointsman: decide: there is both a TASK and --conversation: give one of them\n"},
		{"not UTF-8", "\xff", []string{"-"}, 1, "pointsman: decide: the task is not valid UTF-8\n"},
		{"bad conversation", "{}", []string{"--conversation", "-"}, 1, "pointsman: decide: the conversation has no \"messages\"\n"},
		{"two trade-offs", "", []string{"--tolerance=1", "--quality-weight=1", "t"}, 64, "pointsman: --quality-weight and --tolerance can't be used together\nTry: pointsman --help\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			address := start(t, &fakeService{err: refused.Err()}, healthpb.HealthCheckResponse_SERVING)
			code, out, errs := pointsman(t, tt.stdin, append([]string{"decide", "--addr", address}, tt.args...)...)
			if code != tt.code || out != "" || errs != tt.want {
				t.Errorf("exit code %d, out %q, err %q; want %d, %q", code, out, errs, tt.code, tt.want)
			}
		})
	}
}

func TestHealthcheck(t *testing.T) {
	tests := []struct {
		name   string
		status healthpb.HealthCheckResponse_ServingStatus
		code   int
		want   string // of both streams, with %s for the address
	}{
		{"ready", healthpb.HealthCheckResponse_SERVING, 0, "ready\n"},
		{"not ready", healthpb.HealthCheckResponse_NOT_SERVING, 1, "pointsman: healthcheck: %s: not ready: NOT_SERVING\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			address := start(t, &fakeService{}, tt.status)
			code, out, errs := pointsman(t, "", "healthcheck", "--config", configFor(t, address))
			want := tt.want
			if strings.Contains(want, "%s") {
				want = fmt.Sprintf(want, address)
			}
			if code != tt.code || out+errs != want {
				t.Errorf("exit code %d, %q; want %d, %q", code, out+errs, tt.code, want)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		code, _, errs := pointsman(t, "", "healthcheck", "--config", configFor(t, "127.0.0.1:1"))
		if want := "pointsman: healthcheck: 127.0.0.1:1: no answer: Unavailable\n"; code != 1 || errs != want {
			t.Errorf("exit code %d, %q; want 1, %q", code, errs, want)
		}
	})
}

func configFor(t *testing.T, listen string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "p.yaml")
	text := fmt.Sprintf(`
grpc: {listen: %q}
routes:
  r: {probe: p, checkpoint: c, targets: [{name: a, model: a, head: a, cost: 1}, {name: b, model: b, head: b, cost: 1}]}
probes:
  p: {encoder: e, endpoints: [{base_url: http://127.0.0.1:1, hidden_states_dir: d}]}
`, listen)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestDialAddress(t *testing.T) {
	tests := []struct{ listen, want string }{
		{"127.0.0.1:50051", "127.0.0.1:50051"},
		{":50051", "127.0.0.1:50051"},
		{"0.0.0.0:50051", "127.0.0.1:50051"},
		{"[::]:50051", "[::1]:50051"},
		{"10.0.0.1:1", "10.0.0.1:1"},
		{":0", ""},
	}
	for _, tt := range tests {
		got, err := dialAddress(tt.listen)
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("dialAddress(%q) = %q, %v; want %q", tt.listen, got, err, tt.want)
		}
	}
}

func TestVersionLine(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.9.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"},
	}}
	if got, want := versionLine("v1.2.3", info), "pointsman v1.2.3, commit abc (modified), go1.26.8 "; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q…", got, want)
	}
	if got, want := versionLine("", info), "pointsman v0.9.0, "; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q…", got, want)
	}
	if got, want := versionLine("", new(debug.BuildInfo)), "pointsman unknown, commit unknown, go"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q…", got, want)
	}
	code, out, _ := pointsman(t, "", "version")
	if code != 0 || !strings.HasPrefix(out, "pointsman ") || strings.Count(out, "\n") != 1 {
		t.Errorf("version: exit code %d, %q", code, out)
	}
}

// check's exit code and report pass through.
func TestCheckReportsABrokenConfiguration(t *testing.T) {
	name := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(name, []byte("log: {level: loud}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := pointsman(t, "", "check", "--offline", "--config", name)
	if code != 1 || errs != "" || !strings.Contains(out, name+":1:14: log.level: must be debug, info, warn or error") {
		t.Errorf("exit code %d, out %q, err %q", code, out, errs)
	}
}

func TestServeRefusesABrokenConfiguration(t *testing.T) {
	code, out, errs := pointsman(t, "", "serve", "--config", filepath.Join(t.TempDir(), "none.yaml"))
	if code != 1 || out != "" || !strings.HasPrefix(errs, "pointsman: read configuration: ") {
		t.Errorf("exit code %d, out %q, err %q", code, out, errs)
	}
}
