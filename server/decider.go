package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman-dev/pointsman/cache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/scorer"
)

// localOnlyBelow is the remaining time below which only the local cache is
// asked: neither a joined computation nor Redis answers reliably within it.
const localOnlyBelow = 2 * time.Millisecond

// errPanicked stands for a panic on the way to a learned answer. The panic's value
// is dropped: it may quote what it stumbled over.
var errPanicked = errors.New("the decision panicked")

// Decider makes decisions. It knows nothing of gRPC.
type Decider struct {
	snapshot atomic.Pointer[Snapshot]
	ladder   *cache.Ladder[Scores]
	keyer    *cache.Keyer
	observer DecisionObserver
	// maxInFlight bounds the decisions under way; 0: nothing does.
	maxInFlight int64
	inFlight    atomic.Int64
	// scoring holds a value for each processor that scores; nil: nothing bounds them.
	// Scores are computed apart from the probe's gate, so that a burst of artifacts does
	// not take the processors from those who only ask the cache.
	scoring chan struct{}
}

// Decide chooses a target. Its errors are mistakes in the request, and the ctx's
// own when the caller has left; every failure on the way to a learned answer is
// a fallback instead.
func (d *Decider) Decide(ctx context.Context, req *Request) (dec *Decision, err error) {
	snapshot := d.useSnapshot()
	defer snapshot.life.leave()
	route, err := snapshot.route(req.Route)
	if err != nil {
		return nil, err
	}
	among, err := route.allow(req.AllowedTargets)
	if err != nil {
		return nil, err
	}
	// NewV7 fails only if the system has no randomness, which Go treats as fatal.
	dec = &Decision{ID: uuid.Must(uuid.NewV7()).String(), Route: route, TradeOff: route.TradeOff}
	if req.TradeOff != nil {
		dec.TradeOff = *req.TradeOff
	}
	var task string
	defer func() {
		if err == nil {
			dec.Timing.Total = time.Since(req.Arrived)
			d.observer.Decided(ctx, dec, task)
		}
	}()

	if len(among.targets) == 1 {
		dec.Basis, dec.Target = pointsmanv1.Basis_BASIS_RULE, among.targets[0]
		return dec, nil
	}
	var reason pointsmanv1.FallbackReason
	if task, reason = route.Task.take(req.Input); reason != reasonNone {
		return dec.fallBack(among, reason), nil
	}
	if under := d.inFlight.Add(1); d.maxInFlight > 0 && under > d.maxInFlight {
		d.inFlight.Add(-1)
		return dec.fallBack(among, reasonOverloaded), nil
	}
	learned, err := d.learn(ctx, route, task, req, among, dec)
	d.inFlight.Add(-1)
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return nil, fmt.Errorf("deciding: the caller left: %w", context.Canceled)
	case err != nil:
		reason := reasonOf(err)
		d.observer.FellBack(ctx, route.Name, reason, err)
		return dec.fallBack(among, reason), nil
	}
	dec.Learned = learned
	chosen := among.targets[learned.Choice.Index]
	if route.Mode == pointsmanv1.RouteMode_ROUTE_MODE_SHADOW {
		dec.Basis, dec.Target, dec.Shadow = pointsmanv1.Basis_BASIS_SHADOW, among.fallback, chosen
		return dec, nil
	}
	dec.Basis, dec.Target = pointsmanv1.Basis_BASIS_LEARNED, chosen
	return dec, nil
}

// fallBack makes dec the answer for when nothing was learned.
func (dec *Decision) fallBack(among choice, reason pointsmanv1.FallbackReason) *Decision {
	dec.Basis, dec.Reason, dec.Target = pointsmanv1.Basis_BASIS_FALLBACK, reason, among.fallback
	return dec
}

// learn gets the task's scores and lets the policy choose. A panic on the way is
// an error like any other.
func (d *Decider) learn(ctx context.Context, route *Route, task string, req *Request, among choice, dec *Decision) (learned *Learned, err error) {
	defer func() {
		if value := recover(); value != nil {
			d.observer.Panicked(ctx, route.Name, debug.Stack())
			learned, err = nil, errPanicked
		}
	}()
	result, err := d.scores(ctx, route, task, req, dec)
	if err != nil {
		return nil, err
	}
	_, done := d.observer.Stage(ctx, StagePolicy)
	chosen, err := scorer.Choose(result.Value.Probabilities, among.candidates, dec.TradeOff)
	done(err)
	if err != nil {
		return nil, fmt.Errorf("choosing a target: %w", err)
	}
	return &Learned{
		Scores: result.Value, Computed: result.Computed, Origin: result.Origin,
		Targets: among.targets, Choice: chosen,
	}, nil
}

// scores climbs the cache ladder, whose last rung is to compute.
func (d *Decider) scores(ctx context.Context, route *Route, task string, req *Request, dec *Decision) (cache.Result[Scores], error) {
	fields := route.key
	fields.Namespace, fields.Task = req.Namespace, task
	answerBy := earlier(req.AnswerBy, req.Arrived.Add(route.Timeout))
	ctx, cancel := context.WithDeadline(ctx, answerBy)
	defer cancel()

	// What a computation took belongs to the call that led it, if that call is still
	// here at its end.
	spent := make(chan Timing, 1)
	result, err := d.ladder.Get(ctx, d.keyer.Key(fields), cache.Options{
		Policy:     req.CachePolicy,
		MaxAge:     req.MaxAge,
		Checkpoint: route.key.CheckpointDigest,
		Source:     route.probeName,
		Reach:      reach(route.Probe, time.Until(answerBy)),
	}, func(ctx context.Context) (Scores, error) {
		scores, timing, err := d.compute(ctx, route, probe.Request{Task: task, CacheSalt: req.Namespace, Shape: route.shape})
		spent <- timing
		return scores, err
	})
	select {
	case dec.Timing = <-spent:
	default:
	}
	if result.Wait > 0 {
		dec.Timing.Wait = &result.Wait
	}
	return result, err
}

// compute probes the task and scores its features. It runs on a context of its
// own, which outlives the caller.
func (d *Decider) compute(ctx context.Context, route *Route, req probe.Request) (Scores, Timing, error) {
	route, leave := d.useRoute(route)
	defer leave()
	probing, done := d.observer.Stage(ctx, StageProbe)
	extraction, err := route.Probe.Extract(probing, req)
	done(err)
	timing := Timing{
		Queue:    ifSpent(extraction.Queue),
		Probe:    ifSpent(extraction.HTTP),
		Artifact: ifSpent(extraction.Artifact),
	}
	if err != nil {
		return Scores{}, timing, fmt.Errorf("probing: %w", err)
	}
	_, done = d.observer.Stage(ctx, StageScore)
	began := time.Now()
	probabilities, err := d.score(ctx, route, extraction.Values)
	timing.Score = new(time.Since(began))
	done(err)
	if err != nil {
		return Scores{}, timing, fmt.Errorf("scoring: %w", err)
	}
	return Scores{
		Probabilities: probabilities,
		Tokens:        extraction.Tokens,
		Digest:        route.Checkpoint.Digest(),
	}, timing, nil
}

// score waits for a processor and scores.
func (d *Decider) score(ctx context.Context, route *Route, features []float32) (scorer.Probabilities, error) {
	if d.scoring != nil {
		select {
		case d.scoring <- struct{}{}:
			defer func() { <-d.scoring }()
		case <-ctx.Done():
			return scorer.Probabilities{}, fmt.Errorf("waiting for a processor: %w", context.Cause(ctx))
		}
	}
	return route.Checkpoint.Score(features)
}

// useSnapshot returns the newest snapshot, whose life the caller leaves.
func (d *Decider) useSnapshot() *Snapshot {
	for {
		if s := d.snapshot.Load(); s.life.use() {
			return s
		}
		// It was replaced, and its last user left, since it was loaded.
	}
}

// useRoute keeps a route's probe from being closed until leave is called. A
// computation can begin when the callers that asked for it have left and a reload has
// ended their snapshot: it then serves those who joined it since, from a snapshot
// whose route of that name makes the same scores, and uses that. If there is none,
// nobody waits, and the closed probe says so.
func (d *Decider) useRoute(route *Route) (_ *Route, leave func()) {
	if route.life.use() {
		return route, route.life.leave
	}
	snapshot := d.useSnapshot()
	if now := snapshot.routes[route.Name]; now != nil && d.keyer.Key(now.key) == d.keyer.Key(route.key) {
		return now, snapshot.life.leave
	}
	snapshot.life.leave()
	return route, func() {}
}

// reach says how far a decision may go with so much time left. With next to none
// only the local cache is asked. With less than a probe takes, a computation only
// serves the callers after this one: it is started while the gate has room to
// spare, so that hopeless callers never crowd out hopeful ones.
func reach(prober Prober, left time.Duration) cache.Reach {
	if left < localOnlyBelow {
		return cache.ReachLocal
	}
	status := prober.Status()
	if left < status.Typical && 2*(status.InFlight+status.Queued) >= status.Capacity {
		return cache.ReachJoin
	}
	return cache.ReachCompute
}

// earlier returns the earlier of two times; a zero one does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// ifSpent returns nil for a stage that took no time, since it did not happen.
func ifSpent(took time.Duration) *time.Duration {
	if took == 0 {
		return nil
	}
	return &took
}
