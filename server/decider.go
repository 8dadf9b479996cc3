package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

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

// errLeft is the end of a decision whose caller has left.
var errLeft = fmt.Errorf("deciding: the caller left: %w", context.Canceled)

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
	if err := req.checkOverrides(snapshot.overrides & req.May); err != nil {
		return nil, err
	}
	route, err := snapshot.route(req.Route)
	if err != nil {
		return nil, err
	}
	among, err := route.allow(req.AllowedTargets)
	if err != nil {
		return nil, err
	}
	dec = &Decision{ID: req.ID, Route: route, TradeOff: route.TradeOff}
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
	defer d.inFlight.Add(-1)
	answerBy := earlier(req.AnswerBy, req.Arrived.Add(route.Timeout))
	q := question{
		route: route, source: &route.Source, targets: among.targets, candidates: among.candidates, task: task, req: req,
		answerBy: answerBy.Add(-route.backupTime(time.Until(answerBy))),
	}
	dec.Basis = pointsmanv1.Basis_BASIS_LEARNED
	learned, err := d.learn(ctx, q, dec)
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return nil, errLeft
	case err != nil:
		reason := reasonOf(err)
		d.observer.FellBack(ctx, route.Name, reason, err)
		if !route.backs(reason) {
			return dec.fallBack(among, reason), nil
		}
		q.source, q.candidates, q.answerBy = route.Backup, among.backup, answerBy
		learned, err = d.learn(ctx, q, dec)
		switch {
		case errors.Is(err, context.Canceled) && ctx.Err() != nil:
			return nil, errLeft
		case err != nil:
			d.observer.FellBack(ctx, route.Name, reasonOf(err), fmt.Errorf("backup: %w", err))
			return dec.fallBack(among, reason), nil
		}
		dec.Basis, dec.Reason = pointsmanv1.Basis_BASIS_BACKUP, reason
	}
	dec.Learned = learned
	dec.Target = among.targets[learned.Choice.Index]
	if route.Mode == pointsmanv1.RouteMode_ROUTE_MODE_SHADOW {
		dec.Basis, dec.Target, dec.Shadow = pointsmanv1.Basis_BASIS_SHADOW, among.fallback, dec.Target
	}
	return dec, nil
}

// question is a task put to one of a route's sources.
type question struct {
	route   *Route
	source  *Source
	targets []*Target // those that are allowed
	// candidates stands beside targets, with the heads of the source's checkpoint.
	candidates []scorer.Candidate
	task       string
	req        *Request
	// answerBy is when the answer has to be there.
	answerBy time.Time
}

// fallBack makes dec the answer for when nothing was learned.
func (dec *Decision) fallBack(among choice, reason pointsmanv1.FallbackReason) *Decision {
	dec.Basis, dec.Reason, dec.Target = pointsmanv1.Basis_BASIS_FALLBACK, reason, among.fallback
	return dec
}

// learn gets the task's scores and lets the policy choose. A panic on the way is
// an error like any other.
func (d *Decider) learn(ctx context.Context, q question, dec *Decision) (learned *Learned, err error) {
	defer func() {
		if value := recover(); value != nil {
			d.observer.Panicked(ctx, q.route.Name, debug.Stack())
			learned, err = nil, errPanicked
		}
	}()
	result, err := d.scores(ctx, q, dec)
	if err != nil {
		return nil, err
	}
	_, done := d.observer.Stage(ctx, StagePolicy)
	chosen, err := scorer.Choose(result.Value.Probabilities, q.candidates, dec.TradeOff)
	done(err)
	if err != nil {
		return nil, fmt.Errorf("choosing a target: %w", err)
	}
	return &Learned{
		Scores: result.Value, Computed: result.Computed, Origin: result.Origin,
		Targets: q.targets, Choice: chosen,
	}, nil
}

// scores climbs the cache ladder, whose last rung is to compute. Most calls end on
// the first rung, so what only the others need is not made before.
func (d *Decider) scores(ctx context.Context, q question, dec *Decision) (cache.Result[Scores], error) {
	fields := q.source.key
	fields.Namespace, fields.Task = q.req.Namespace, q.task
	key := d.keyer.Key(fields)
	opts := cache.Options{
		Policy:         q.req.CachePolicy,
		MaxAge:         q.req.MaxAge,
		Checkpoint:     q.source.key.CheckpointDigest,
		Source:         q.source.probeName,
		ComputeTimeout: q.source.computeTimeout,
	}
	if result, ok := d.ladder.Local(ctx, key, opts); ok {
		return result, nil
	}
	return d.climb(ctx, q, key, opts, &dec.Timing)
}

// climb climbs the ladder beyond its first rung and notes where the time went.
func (d *Decider) climb(ctx context.Context, q question, key cache.Key, opts cache.Options, timing *Timing) (cache.Result[Scores], error) {
	ctx, cancel := context.WithDeadline(ctx, q.answerBy)
	defer cancel()

	// What a computation took belongs to the call that led it, if that call is still
	// here at its end.
	spent := make(chan Timing, 1)
	opts.Reach = reach(q.source.Probe, time.Until(q.answerBy))
	result, err := d.ladder.Get(ctx, key, opts, func(ctx context.Context) (Scores, error) {
		scores, took, err := d.compute(ctx, q.source, probe.Request{
			Task: q.task, CacheSalt: q.req.Namespace, Shape: q.source.shape,
		})
		spent <- took
		return scores, err
	})
	select {
	case took := <-spent:
		timing.add(took)
	default:
	}
	timing.add(Timing{Wait: ifSpent(result.Wait)})
	return result, err
}

// compute probes the task and scores its features. It runs on a context of its
// own, which outlives the caller.
func (d *Decider) compute(ctx context.Context, source *Source, req probe.Request) (Scores, Timing, error) {
	source, leave := d.useSource(source)
	defer leave()
	probing, done := d.observer.Stage(ctx, StageProbe)
	extraction, err := source.Probe.Extract(probing, req)
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
	probabilities, err := d.score(source, extraction.Values)
	timing.Score = new(time.Since(began))
	done(err)
	if err != nil {
		return Scores{}, timing, fmt.Errorf("scoring: %w", err)
	}
	return Scores{
		Probabilities: probabilities,
		Tokens:        extraction.Tokens,
		Digest:        source.Checkpoint.Digest(),
	}, timing, nil
}

// score waits for a processor and scores. It waits whatever becomes of the ctx: the
// computation goes on when its callers have left, and those ahead take milliseconds.
func (d *Decider) score(source *Source, features []float32) (scorer.Probabilities, error) {
	if d.scoring != nil {
		d.scoring <- struct{}{}
		defer func() { <-d.scoring }()
	}
	return source.Checkpoint.Score(features)
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

// useSource keeps a source's probe from being closed until leave is called. A
// computation can begin when the callers that asked for it have left and a reload has
// ended their snapshot: it then serves those who joined it since, from a snapshot with
// a source that makes the same scores, and uses that. If there is none, nobody waits,
// and the closed probe says so.
func (d *Decider) useSource(source *Source) (_ *Source, leave func()) {
	if source.life.use() {
		return source, source.life.leave
	}
	snapshot := d.useSnapshot()
	key := d.keyer.Key(source.key)
	for now := range snapshot.sources() {
		if d.keyer.Key(now.key) == key {
			return now, snapshot.life.leave
		}
	}
	snapshot.life.leave()
	return source, func() {}
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
