package test

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

func TestALearnedDecisionSaysHowItWasMade(t *testing.T) {
	w := start(t, setup{})
	var trailer metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-request-id", "gateway-17")
	resp, err := w.client.Decide(ctx, task("Count the bridges of the town."), grpc.Trailer(&trailer))
	if err != nil {
		t.Fatal(err)
	}
	if resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED || resp.GetOrigin() != pointsmanv1.Origin_ORIGIN_COMPUTED {
		t.Errorf("basis %v, origin %v", resp.GetBasis(), resp.GetOrigin())
	}
	if resp.Confidence == nil || resp.GetConfidence() < 0.5 || resp.GetConfidence() > 1 || resp.Margin == nil {
		t.Errorf("confidence %v, margin %v", resp.Confidence, resp.Margin)
	}
	if len(resp.GetScores()) != 2 || resp.GetScores()[0].GetTarget() != "strong" || resp.GetScores()[1].ProbabilityStddev == nil {
		t.Errorf("scores %v", resp.GetScores())
	}
	if resp.GetTolerance() != 0.2 {
		t.Errorf("the trade-off used is %v", resp.GetTradeOffUsed())
	}
	if !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(resp.GetCheckpointDigest()) {
		t.Errorf("digest %q", resp.GetCheckpointDigest())
	}
	if resp.GetTaskTokens() != int32(len(vllmsim.Tokens("Count the bridges of the town."))) {
		t.Errorf("%d tokens", resp.GetTaskTokens())
	}
	if age := time.Since(resp.GetScoreTime().AsTime()); age < 0 || age > time.Minute {
		t.Errorf("scored %v ago", age)
	}
	timing := resp.GetTiming()
	if timing.GetTotal() == nil || timing.GetProbe() == nil || timing.GetArtifact() == nil || timing.GetScore() == nil || timing.GetWait() != nil {
		t.Errorf("timing %v", timing)
	}
	want := map[string]string{
		"pointsman-basis": "LEARNED", "pointsman-decision-id": resp.GetDecisionId(), "x-request-id": "gateway-17",
	}
	for key, value := range want {
		if got := trailer.Get(key); !slices.Equal(got, []string{value}) {
			t.Errorf("trailer %s is %q, want %q", key, got, value)
		}
	}
	if trailer.Get("pointsman-fallback-reason") != nil {
		t.Error("there is a fallback reason in the trailer of a learned decision")
	}

	again := w.decide(t, task("Count the bridges of the town."))
	if again.GetOrigin() != pointsmanv1.Origin_ORIGIN_LOCAL_CACHE || again.GetTarget() != resp.GetTarget() {
		t.Errorf("the second answer: origin %v, target %q", again.GetOrigin(), again.GetTarget())
	}
	if again.GetTiming().GetProbe() != nil {
		t.Error("a cached answer claims time of a probe")
	}
	other := task("Count the bridges of the town.")
	other.TradeOff = &pointsmanv1.DecideRequest_QualityWeight{QualityWeight: 0.9}
	weighed := w.decide(t, other)
	if weighed.GetScores()[0].GetUtility() == again.GetScores()[0].GetUtility() || weighed.GetQualityWeight() != 0.9 {
		t.Errorf("another trade-off gave the same utilities: %v", weighed.GetScores())
	}
	if got := w.sim.Stats().Requests; got != 1 {
		t.Errorf("%d probes were sent, want 1", got)
	}
	if left := w.files(t); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestBadRequestsAreRefused goes through section "bad input" of the contract.
func TestBadRequestsAreRefused(t *testing.T) {
	w := start(t, setup{})
	change := func(f func(*pointsmanv1.DecideRequest)) *pointsmanv1.DecideRequest {
		req := task("Lay the track.")
		f(req)
		return req
	}
	for _, c := range []struct {
		name   string
		req    *pointsmanv1.DecideRequest
		code   codes.Code
		reason string
		field  string
	}{
		{"no input", &pointsmanv1.DecideRequest{}, codes.InvalidArgument, "INPUT_MISSING", "input"},
		{"quality weight above 1", change(func(r *pointsmanv1.DecideRequest) {
			r.TradeOff = &pointsmanv1.DecideRequest_QualityWeight{QualityWeight: 1.01}
		}), codes.InvalidArgument, "TRADE_OFF_OUT_OF_RANGE", "quality_weight"},
		{"quality weight NaN", change(func(r *pointsmanv1.DecideRequest) {
			r.TradeOff = &pointsmanv1.DecideRequest_QualityWeight{QualityWeight: math.NaN()}
		}), codes.InvalidArgument, "TRADE_OFF_OUT_OF_RANGE", "quality_weight"},
		{"tolerance below 0", change(func(r *pointsmanv1.DecideRequest) {
			r.TradeOff = &pointsmanv1.DecideRequest_Tolerance{Tolerance: -0.1}
		}), codes.InvalidArgument, "TRADE_OFF_OUT_OF_RANGE", "tolerance"},
		{"tolerance infinite", change(func(r *pointsmanv1.DecideRequest) {
			r.TradeOff = &pointsmanv1.DecideRequest_Tolerance{Tolerance: math.Inf(1)}
		}), codes.InvalidArgument, "TRADE_OFF_OUT_OF_RANGE", "tolerance"},
		{"unknown route", change(func(r *pointsmanv1.DecideRequest) { r.Route = "branch" }), codes.NotFound, "ROUTE_NOT_FOUND", "route"},
		{"unknown target", change(func(r *pointsmanv1.DecideRequest) {
			r.AllowedTargets = []string{"weak", "medium"}
		}), codes.InvalidArgument, "TARGET_UNKNOWN", "allowed_targets"},
		{"unknown cache policy", change(func(r *pointsmanv1.DecideRequest) { r.CachePolicy = 77 }), codes.InvalidArgument, "ENUM_UNKNOWN", "cache_policy"},
		{"unknown fallback policy", change(func(r *pointsmanv1.DecideRequest) { r.FallbackPolicy = -1 }), codes.InvalidArgument, "ENUM_UNKNOWN", "fallback_policy"},
		{"namespace too long", change(func(r *pointsmanv1.DecideRequest) {
			r.CacheNamespace = strings.Repeat("n", 1025)
		}), codes.InvalidArgument, "CACHE_NAMESPACE_TOO_LONG", "cache_namespace"},
		{"negative max age", change(func(r *pointsmanv1.DecideRequest) {
			r.MaxAge = durationpb.New(-time.Second)
		}), codes.InvalidArgument, "MAX_AGE_INVALID", "max_age"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := w.client.Decide(t.Context(), c.req)
			st := status.Convert(err)
			if st.Code() != c.code {
				t.Fatalf("code %v, want %v (%v)", st.Code(), c.code, err)
			}
			if !strings.Contains(st.Message(), c.field) {
				t.Errorf("the message does not name the field %s: %q", c.field, st.Message())
			}
			var info *errdetails.ErrorInfo
			var violations *errdetails.BadRequest
			for _, d := range st.Details() {
				switch d := d.(type) {
				case *errdetails.ErrorInfo:
					info = d
				case *errdetails.BadRequest:
					violations = d
				}
			}
			if info.GetReason() != c.reason || info.GetDomain() != "pointsman.dev" {
				t.Errorf("ErrorInfo %v, want reason %s", info, c.reason)
			}
			if got := violations.GetFieldViolations(); len(got) != 1 || got[0].GetField() != c.field {
				t.Errorf("field violations %v, want one of %s", got, c.field)
			}
		})
	}
	if got := w.sim.Stats().Requests; got != 0 {
		t.Errorf("%d probes were sent for bad requests", got)
	}
}

func TestWhatHasNothingToScoreFallsBack(t *testing.T) {
	w := start(t, setup{sim: vllmsim.Config{MaxModelLen: 256}, grpcYAML: "max_task_bytes: 4KiB"})
	user := func(parts ...*pointsmanv1.ContentPart) *pointsmanv1.DecideRequest {
		return &pointsmanv1.DecideRequest{Input: &pointsmanv1.DecideRequest_Conversation{Conversation: &pointsmanv1.Conversation{
			Messages: []*pointsmanv1.ChatMessage{{Role: pointsmanv1.Role_ROLE_USER, Parts: parts}},
		}}}
	}
	image := &pointsmanv1.ContentPart{Kind: &pointsmanv1.ContentPart_Other{Other: "image/png"}}
	for _, c := range []struct {
		name   string
		req    *pointsmanv1.DecideRequest
		reason pointsmanv1.FallbackReason
		probes int
	}{
		{"empty task", task(""), pointsmanv1.FallbackReason_FALLBACK_REASON_NO_TASK_TEXT, 0},
		{"empty conversation", &pointsmanv1.DecideRequest{Input: &pointsmanv1.DecideRequest_Conversation{}}, pointsmanv1.FallbackReason_FALLBACK_REASON_NO_TASK_TEXT, 0},
		{"only an image", user(image), pointsmanv1.FallbackReason_FALLBACK_REASON_NO_TASK_TEXT, 0},
		{"task too large", task(strings.Repeat("long ", 1000)), pointsmanv1.FallbackReason_FALLBACK_REASON_TASK_TOO_LARGE, 0},
		{"longer than the encoder's context", task(strings.Repeat("word ", 600)), pointsmanv1.FallbackReason_FALLBACK_REASON_PROBE_REJECTED, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := w.sim.Stats().Requests
			resp := w.decide(t, c.req)
			if resp.GetBasis() != pointsmanv1.Basis_BASIS_FALLBACK || resp.GetFallbackReason() != c.reason || resp.GetTarget() != "strong" {
				t.Errorf("basis %v, reason %v, target %q", resp.GetBasis(), resp.GetFallbackReason(), resp.GetTarget())
			}
			if resp.Confidence != nil || resp.Margin != nil || len(resp.GetScores()) != 0 || resp.GetOrigin() != 0 {
				t.Errorf("a fallback looks learned: %v", resp)
			}
			if got := w.sim.Stats().Requests - before; got != c.probes {
				t.Errorf("%d probes were sent, want %d", got, c.probes)
			}
		})
	}
	t.Run("refused when the caller has its own fallback", func(t *testing.T) {
		req := task("")
		req.FallbackPolicy = pointsmanv1.FallbackPolicy_FALLBACK_POLICY_FAIL
		_, err := w.client.Decide(t.Context(), req)
		st := status.Convert(err)
		if st.Code() != codes.Unavailable || len(st.Details()) != 1 {
			t.Fatalf("%v", err)
		}
		info, ok := st.Details()[0].(*errdetails.ErrorInfo)
		if !ok || info.GetReason() != "FALLBACK_REFUSED" || info.GetMetadata()["fallback_reason"] != "NO_TASK_TEXT" {
			t.Errorf("%v", st.Details())
		}
	})
}

func TestOneAllowedTargetNeedsNoProbe(t *testing.T) {
	w := start(t, setup{})
	req := task("Lay the track.")
	req.AllowedTargets = []string{"weak"}
	resp := w.decide(t, req)
	if resp.GetBasis() != pointsmanv1.Basis_BASIS_RULE || resp.GetTarget() != "weak" || w.sim.Stats().Requests != 0 {
		t.Errorf("basis %v, target %q, %d probes", resp.GetBasis(), resp.GetTarget(), w.sim.Stats().Requests)
	}
}

func TestShadowModeScoresAndAnswersTheFallback(t *testing.T) {
	w := start(t, setup{routeYAML: "mode: shadow\nfallback: weak\npolicy: { tolerance: 0 }"})
	resp := w.decide(t, task("Lay the track."))
	if resp.GetBasis() != pointsmanv1.Basis_BASIS_SHADOW || resp.GetTarget() != "weak" || resp.GetShadowTarget() == "" ||
		len(resp.GetScores()) != 2 || resp.Margin == nil {
		t.Errorf("%v", resp)
	}
}

func TestManyEqualTasksMakeOneProbe(t *testing.T) {
	w := start(t, setup{sim: vllmsim.Config{Latency: 200 * time.Millisecond}})
	const callers = 200
	origins := make(chan pointsmanv1.Origin, callers)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			resp, err := w.client.Decide(t.Context(), task("The same for all."))
			if err != nil {
				t.Error(err)
				return
			}
			origins <- resp.GetOrigin()
		})
	}
	wg.Wait()
	close(origins)
	count := map[pointsmanv1.Origin]int{}
	for o := range origins {
		count[o]++
	}
	if got := w.sim.Stats().Requests; got != 1 {
		t.Errorf("%d probes were sent, want 1 (%v)", got, count)
	}
	if count[pointsmanv1.Origin_ORIGIN_COMPUTED] != 1 || count[pointsmanv1.Origin_ORIGIN_JOINED_LOCAL]+count[pointsmanv1.Origin_ORIGIN_LOCAL_CACHE] != callers-1 {
		t.Errorf("origins %v", count)
	}
}

func TestManyDistinctTasksStayWithinTheGate(t *testing.T) {
	const callers, slots = 200, 8
	w := start(t, setup{
		sim:       vllmsim.Config{Latency: 5 * time.Millisecond},
		probeYAML: fmt.Sprintf("max_in_flight: %d\nmax_queue: %d\nqueue_timeout: 30s", slots, callers),
		routeYAML: "decide_timeout: 60s",
	})
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			resp, err := w.client.Decide(t.Context(), task(fmt.Sprintf("Task number %d.", i)))
			if err != nil || resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED {
				t.Errorf("%v %v", resp, err)
			}
		})
	}
	wg.Wait()
	stats := w.sim.Stats()
	if stats.Requests != callers || stats.MaxInFlight > slots {
		t.Errorf("%d probes, at most %d at once; want %d and %d", stats.Requests, stats.MaxInFlight, callers, slots)
	}
}

func TestADeadlineIsKeptAndTheProbeGoesOn(t *testing.T) {
	w := start(t, setup{sim: vllmsim.Config{Latency: 2 * time.Second}})
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Millisecond)
	defer cancel()
	resp, err := w.client.Decide(ctx, task("Too slow for you."))
	if err != nil {
		t.Fatalf("the answer came too late: %v", err)
	}
	if resp.GetFallbackReason() != pointsmanv1.FallbackReason_FALLBACK_REASON_DEADLINE || resp.GetTarget() != "strong" {
		t.Errorf("%v", resp)
	}
	eventually(t, func() string {
		req := task("Too slow for you.")
		req.CachePolicy = pointsmanv1.CachePolicy_CACHE_POLICY_ONLY_IF_CACHED
		return reasonName(w.decide(t, req))
	})
	if stats := w.sim.Stats(); stats.Requests != 1 || stats.Aborted != 0 {
		t.Errorf("%d probes, %d aborted; want 1 and 0", stats.Requests, stats.Aborted)
	}
}

func TestACancelledFirstCallerDoesNotDisturbTheOthers(t *testing.T) {
	w := start(t, setup{sim: vllmsim.Config{Latency: 300 * time.Millisecond}})
	first, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := w.client.Decide(first, task("Shared."))
		gone <- err
	}()
	w.awaitProbe(t)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			resp, err := w.client.Decide(t.Context(), task("Shared."))
			if err != nil || resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED {
				t.Errorf("%v %v", resp, err)
			}
		})
	}
	leave()
	if err := <-gone; status.Code(err) != codes.Canceled {
		t.Errorf("the first caller got %v", err)
	}
	wg.Wait()
	if stats := w.sim.Stats(); stats.Requests != 1 || stats.Aborted != 0 {
		t.Errorf("%d probes, %d aborted; want 1 and 0", stats.Requests, stats.Aborted)
	}
}

func TestAFailureIsNotRemembered(t *testing.T) {
	w := start(t, setup{})
	w.sim.QueueFaults(vllmsim.Status(503, vllmsim.BodyJSON))
	if resp := w.decide(t, task("Try again.")); resp.GetFallbackReason() != pointsmanv1.FallbackReason_FALLBACK_REASON_PROBE_UNAVAILABLE {
		t.Fatalf("%v", resp)
	}
	if resp := w.decide(t, task("Try again.")); resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED || resp.GetOrigin() != pointsmanv1.Origin_ORIGIN_COMPUTED {
		t.Errorf("%v", resp)
	}
}

func TestCachePolicies(t *testing.T) {
	w := start(t, setup{})
	ask := func(p pointsmanv1.CachePolicy, namespace string, maxAge *durationpb.Duration) *pointsmanv1.DecideResponse {
		req := task("Policies.")
		req.CachePolicy, req.CacheNamespace, req.MaxAge = p, namespace, maxAge
		return w.decide(t, req)
	}
	const (
		ordinary = pointsmanv1.CachePolicy_CACHE_POLICY_UNSPECIFIED
		bypass   = pointsmanv1.CachePolicy_CACHE_POLICY_BYPASS
		refresh  = pointsmanv1.CachePolicy_CACHE_POLICY_REFRESH
		only     = pointsmanv1.CachePolicy_CACHE_POLICY_ONLY_IF_CACHED
		computed = pointsmanv1.Origin_ORIGIN_COMPUTED
		local    = pointsmanv1.Origin_ORIGIN_LOCAL_CACHE
	)
	if got := ask(only, "", nil); got.GetFallbackReason() != pointsmanv1.FallbackReason_FALLBACK_REASON_NOT_CACHED {
		t.Errorf("only if cached, and it is not: %v", got.GetFallbackReason())
	}
	for i, step := range []struct {
		policy    pointsmanv1.CachePolicy
		namespace string
		maxAge    *durationpb.Duration
		want      pointsmanv1.Origin
	}{
		{bypass, "", nil, computed},
		{ordinary, "", nil, computed}, // the bypass stored nothing
		{ordinary, "", nil, local},
		{only, "", nil, local},
		{bypass, "", nil, computed},
		{refresh, "", nil, computed},
		{ordinary, "", nil, local},
		{ordinary, "tenant", nil, computed}, // another namespace shares nothing
		{ordinary, "tenant", nil, local},
		{ordinary, "", durationpb.New(time.Hour), local},
		{ordinary, "", durationpb.New(0), computed}, // nothing is fresh enough
	} {
		if got := ask(step.policy, step.namespace, step.maxAge).GetOrigin(); got != step.want {
			t.Errorf("step %d: origin %v, want %v", i, got, step.want)
		}
	}
	requests := w.sim.Requests()
	if last := string(requests[len(requests)-2].Body); !strings.Contains(last, `"cache_salt":"tenant"`) {
		t.Errorf("the namespace was not sent as cache_salt: %s", last)
	}
}

func TestListRoutes(t *testing.T) {
	w := start(t, setup{})
	resp, err := w.client.ListRoutes(t.Context(), &pointsmanv1.ListRoutesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if resp.GetDefaultRoute() != "main" || len(resp.GetRoutes()) != 1 {
		t.Fatalf("%v", resp)
	}
	r := resp.GetRoutes()[0]
	if r.GetName() != "main" || r.GetFallbackTarget() != "strong" || r.GetEncoder() != encoder || r.GetEnsembleSize() != 3 ||
		len(r.GetTargets()) != 2 || r.GetTolerance() != 0.2 || r.GetMode() != pointsmanv1.RouteMode_ROUTE_MODE_SERVE ||
		r.GetProbeState() != pointsmanv1.ProbeState_PROBE_STATE_READY || !slices.Equal(r.GetHeads(), []string{"strong", "weak"}) {
		t.Errorf("%v", r)
	}
}
