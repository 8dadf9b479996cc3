package server

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pointsman-dev/pointsman/cache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
	"github.com/pointsman-dev/pointsman/scorer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeProber answers with the stand-in's features at once, unless told to do
// something else.
type fakeProber struct {
	status  probe.Status
	extract func(ctx context.Context, req probe.Request) (probe.Extraction, error)
}

func (f *fakeProber) Status() probe.Status { return f.status }

func (f *fakeProber) Extract(ctx context.Context, req probe.Request) (probe.Extraction, error) {
	if f.extract != nil {
		return f.extract(ctx, req)
	}
	return probe.Extraction{Features: probe.Features{
		Values: vllmsim.Features(req.Task, demoLayers, demoHiddenSize, vllmsim.BF16),
		Shape:  req.Shape,
		Tokens: len(vllmsim.Tokens(req.Task)),
	}, HTTP: time.Millisecond}, nil
}

// panicObserver counts what panicked.
type panicObserver struct{ panicked int }

func (*panicObserver) Stage(ctx context.Context, _ Stage) (context.Context, func(error)) {
	return ctx, func(error) {}
}
func (o *panicObserver) Panicked(context.Context, string, []byte) { o.panicked++ }

func (*panicObserver) FellBack(context.Context, string, pointsmanv1.FallbackReason, error) {}

func (*panicObserver) Decided(context.Context, *Decision, string) {}

// newDecider makes a Decider of the demo's checkpoint and one route.
func newDecider(t testing.TB, prober Prober) (*Decider, *Route) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "router")
	if err := saveDemoCheckpoint(dir); err != nil {
		t.Fatal(err)
	}
	checkpoint, err := scorer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	ladder, err := cache.New(cache.DefaultConfig(), cache.Deps[Scores]{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ladder.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	keyer, err := cache.NewKeyer(nil)
	if err != nil {
		t.Fatal(err)
	}
	strong := &Target{Name: "strong", Model: "m/strong", Tier: pointsmanv1.Tier_TIER_STRONG, Head: "strong", Cost: 1}
	middle := &Target{Name: "middle", Model: "m/middle", Head: "strong", Cost: 0.5}
	weak := &Target{Name: "weak", Model: "m/weak", Tier: pointsmanv1.Tier_TIER_WEAK, Head: "weak", Cost: 0.25}
	route := &Route{
		Name: "main", Targets: []*Target{strong, middle, weak}, Fallback: strong, TradeOff: scorer.Tolerance(0.2),
		Mode: pointsmanv1.RouteMode_ROUTE_MODE_SERVE, Task: TaskRules{From: FirstUser, MaxBytes: 1 << 20},
		Timeout: time.Minute,
		Source: Source{
			Probe: prober, Checkpoint: checkpoint,
			shape:      probe.Shape{Layers: demoLayers, HiddenSize: demoHiddenSize},
			key:        cache.KeyFields{Encoder: demoEncoder, CheckpointDigest: checkpoint.Digest()},
			candidates: []scorer.Candidate{{Head: 0, Cost: 1}, {Head: 0, Cost: 0.5}, {Head: 1, Cost: 0.25}},
		},
	}
	d := &Decider{ladder: ladder, keyer: keyer, observer: &panicObserver{}}
	d.snapshot.Store(&Snapshot{routes: map[string]*Route{"main": route}, defaultRoute: "main"})
	return d, route
}

func ask(text string) *Request {
	return &Request{Input: Input{Task: text}, Arrived: time.Now()}
}

func TestTheFallbackStaysWithinTheAllowedTargets(t *testing.T) {
	failing := &fakeProber{extract: func(context.Context, probe.Request) (probe.Extraction, error) {
		return probe.Extraction{}, probe.ErrUnavailable
	}}
	for _, c := range []struct {
		name    string
		allowed []string
		want    string
	}{
		{"all allowed: the route's own", nil, "strong"},
		{"the route's own allowed", []string{"weak", "strong"}, "strong"},
		{"the route's own not allowed: the first that is", []string{"weak", "middle"}, "middle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, _ := newDecider(t, failing)
			req := ask("x")
			req.AllowedTargets = c.allowed
			dec, err := d.Decide(t.Context(), req)
			if err != nil || dec.Target.Name != c.want || dec.Reason != reasonProbeUnavailable {
				t.Errorf("%+v %v", dec, err)
			}
		})
	}
}

func TestScoresAreThoseOfTheAllowedTargetsInTheRoutesOrder(t *testing.T) {
	d, _ := newDecider(t, &fakeProber{})
	req := ask("What is 2+2?")
	req.AllowedTargets = []string{"weak", "middle"}
	dec, err := d.Decide(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, target := range dec.Learned.Targets {
		names = append(names, target.Name)
	}
	if !slices.Equal(names, []string{"middle", "weak"}) || len(dec.Learned.Choice.Scores) != 2 {
		t.Errorf("targets %q, %d scores", names, len(dec.Learned.Choice.Scores))
	}
	// Costs are scaled over the allowed targets alone.
	if got := dec.Learned.Choice.Scores[0].NormalizedCost; got != 1 {
		t.Errorf("the dearest allowed target has the normalised cost %v", got)
	}
}

func TestAPanicIsAFallback(t *testing.T) {
	d, route := newDecider(t, &fakeProber{extract: func(context.Context, probe.Request) (probe.Extraction, error) {
		panic("in a computation")
	}})
	dec, err := d.Decide(t.Context(), ask("x"))
	if err != nil || dec.Reason != reasonScoringFailed || dec.Target != route.Fallback {
		t.Errorf("in a computation: %+v %v", dec, err)
	}
	route.Probe = nil // a defect outside of the computation
	dec, err = d.Decide(t.Context(), ask("y"))
	if err != nil || dec.Reason != reasonScoringFailed || dec.Target != route.Fallback {
		t.Errorf("elsewhere: %+v %v", dec, err)
	}
	if got := d.observer.(*panicObserver).panicked; got != 1 {
		t.Errorf("the observer was told of %d panics, want 1", got)
	}
}

func TestFeaturesThatDoNotFitAreNotScored(t *testing.T) {
	d, _ := newDecider(t, &fakeProber{extract: func(context.Context, probe.Request) (probe.Extraction, error) {
		return probe.Extraction{Features: probe.Features{Values: make([]float32, 3)}}, nil
	}})
	dec, err := d.Decide(t.Context(), ask("x"))
	if err != nil || dec.Reason != reasonScoringFailed {
		t.Errorf("%+v %v", dec, err)
	}
}

func TestHowFarADecisionGoes(t *testing.T) {
	const typical = 40 * time.Millisecond
	for _, c := range []struct {
		name   string
		left   time.Duration
		status probe.Status
		want   cache.Reach
	}{
		{"plenty of time", time.Second, probe.Status{Typical: typical, Capacity: 4, InFlight: 4}, cache.ReachCompute},
		{"hopeless, gate nearly empty", 10 * time.Millisecond, probe.Status{Typical: typical, Capacity: 4, InFlight: 1}, cache.ReachCompute},
		{"hopeless, gate half full", 10 * time.Millisecond, probe.Status{Typical: typical, Capacity: 4, InFlight: 2}, cache.ReachJoin},
		{"hopeless, some queued", 10 * time.Millisecond, probe.Status{Typical: typical, Capacity: 4, InFlight: 1, Queued: 1}, cache.ReachJoin},
		{"nothing known of the probe", 10 * time.Millisecond, probe.Status{Capacity: 4, InFlight: 4}, cache.ReachCompute},
		{"next to no time", time.Millisecond, probe.Status{Capacity: 4}, cache.ReachLocal},
		{"too late", -time.Millisecond, probe.Status{Capacity: 4}, cache.ReachLocal},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := reach(&fakeProber{status: c.status}, c.left); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestLateCallersStillGetWhatIsCached asks with no time left.
func TestLateCallersStillGetWhatIsCached(t *testing.T) {
	d, _ := newDecider(t, &fakeProber{})
	late := func() *Request {
		req := ask("Known.")
		req.AnswerBy = req.Arrived.Add(time.Microsecond)
		return req
	}
	if dec, err := d.Decide(t.Context(), late()); err != nil || dec.Reason != reasonDeadline {
		t.Fatalf("not cached: %+v %v", dec, err)
	}
	if _, err := d.Decide(t.Context(), ask("Known.")); err != nil {
		t.Fatal(err)
	}
	if dec, err := d.Decide(t.Context(), late()); err != nil || dec.Basis != pointsmanv1.Basis_BASIS_LEARNED || dec.Learned.Origin != cache.Local {
		t.Errorf("cached: %+v %v", dec, err)
	}
}

// TestAComputationMayTakeWhatItsSourceSays: its limit is not that of the cache, which is
// made once, but that of the snapshot, which a reload replaces.
func TestAComputationMayTakeWhatItsSourceSays(t *testing.T) {
	for _, limit := range []time.Duration{time.Second, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			d, route := newDecider(t, &fakeProber{extract: func(ctx context.Context, _ probe.Request) (probe.Extraction, error) {
				<-ctx.Done()
				return probe.Extraction{}, context.Cause(ctx)
			}})
			route.Timeout, route.computeTimeout = time.Hour, limit
			dec, err := d.Decide(t.Context(), ask("x"))
			if err != nil || dec.Reason != reasonDeadline || dec.Timing.Total != limit {
				t.Errorf("%v: %+v %v", limit, dec, err)
			}
		})
	}
}

func TestACallerThatLeavesIsNotAnswered(t *testing.T) {
	release := make(chan struct{})
	d, _ := newDecider(t, &fakeProber{extract: func(context.Context, probe.Request) (probe.Extraction, error) {
		<-release
		return probe.Extraction{}, probe.ErrUnavailable
	}})
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if dec, err := d.Decide(ctx, ask("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v %v", dec, err)
	}
}

func BenchmarkDecideCached(b *testing.B) {
	d, _ := newDecider(b, &fakeProber{})
	if _, err := d.Decide(b.Context(), ask("What is 2+2?")); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			dec, err := d.Decide(b.Context(), ask("What is 2+2?"))
			if err != nil || dec.Learned.Origin != cache.Local {
				b.Fatal(dec, err)
			}
		}
	})
}
