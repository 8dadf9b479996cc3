package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Group is a probe over one or more vLLM servers of the same model, each with a folder of its own. It asks the one with
// the least work, passes over those that fail, and tries a transient failure once on another. It is safe for concurrent
// use.
type Group struct {
	members []*VLLM
	turn    atomic.Uint64 // rotates among equals
}

// NewGroup builds a probe over endpoints. cfg holds for each of them; its Endpoint is not used. [Group.Close] ends it.
func NewGroup(cfg Config, endpoints []Endpoint, opts ...Option) (*Group, error) {
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("probe %s: endpoints: must be one or more", cfg.Name)
	}
	g := &Group{}
	combined := &combinedBreaker{states: make([]State, len(endpoints))}
	var errs []error
	for i, e := range endpoints {
		cfg := cfg
		cfg.Endpoint = e
		if cfg.MaxOutstandingBytes == 0 {
			cfg.MaxOutstandingBytes = outstandingFor(e, endpoints)
		}
		member, err := New(cfg, append(slices.Clip(opts), reportingTo(combined, i, len(endpoints)))...)
		if err != nil {
			errs = append(errs, fmt.Errorf("endpoint %d: %w", i, err))
			continue
		}
		g.members = append(g.members, member)
	}
	if err := errors.Join(errs...); err != nil {
		_ = g.Close(context.Background()) // nothing was sent
		return nil, err
	}
	return g, nil
}

// Endpoints returns the single probes, in the order of the configuration. The group closes them.
func (g *Group) Endpoints() []*VLLM { return g.members }

// Extract is [VLLM.Extract] on the endpoint with the least work. A failure that another endpoint need not share is tried
// once there, if one is fit, a caller still waits, and ctx leaves the time that it typically takes.
func (g *Group) Extract(ctx context.Context, req Request) (Extraction, error) {
	first := g.pick(nil)
	out, err := first.Extract(ctx, req)
	if !transient(err) {
		return out, err
	}
	second := g.pick(first)
	if second == nil || !timeFor(ctx, second) {
		return out, err
	}
	again, err := second.Extract(ctx, req)
	again.Queue += out.Queue
	again.HTTP += out.HTTP
	again.Artifact += out.Artifact
	return again, err
}

// transient says whether another endpoint may succeed where one failed. A refusal of the task and a full queue, which is
// the shortest of all, are not such failures.
func transient(err error) bool {
	for _, kind := range []error{ErrUnavailable, ErrCircuitOpen, ErrTimeout, ErrProtocol, ErrArtifact} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// timeFor says whether a second attempt can still be of use.
func timeFor(ctx context.Context, v *VLLM) bool {
	if ctx.Err() != nil {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > v.Status().Typical
}

// pick returns the fit endpoint with the least work other than tried. When none is fit, it returns nil for a second
// attempt, and for a first one the best there is: its own answer says why it fails.
func (g *Group) pick(tried *VLLM) *VLLM {
	if len(g.members) == 1 {
		if tried != nil {
			return nil
		}
		return g.members[0]
	}
	var (
		best      *VLLM
		bestRank  fitness
		bestWork  int64
		rotation  = g.turn.Add(1)
		contested = uint64(len(g.members))
	)
	for i := range contested {
		v := g.members[(rotation+i)%contested]
		rank := v.fitness()
		if v == tried || (tried != nil && rank != fit) {
			continue
		}
		work := v.gate.inFlight.Load() + v.gate.queued.Load()
		if best == nil || rank < bestRank || (rank == bestRank && work < bestWork) {
			best, bestRank, bestWork = v, rank, work
		}
	}
	return best
}

// Status sums up the endpoints: DOWN if all are, DEGRADED if any is not READY.
func (g *Group) Status() Status {
	if len(g.members) == 1 {
		return g.members[0].Status()
	}
	out := Status{State: StateDown}
	degraded := false
	for _, v := range g.members {
		s := v.Status()
		out.State = min(out.State, s.State)
		degraded = degraded || s.State != StateReady
		out.InFlight += s.InFlight
		out.Queued += s.Queued
		out.Capacity += s.Capacity
		out.Typical = max(out.Typical, s.Typical)
		if out.LastError == "" {
			out.LastError = s.LastError
		}
		if s.LastSuccess.After(out.LastSuccess) {
			out.LastSuccess = s.LastSuccess
		}
	}
	if degraded && out.State == StateReady {
		out.State = StateDegraded
	}
	return out
}

// Close closes all endpoints as [VLLM.Close] does, at the same time.
func (g *Group) Close(ctx context.Context) error {
	var closing sync.WaitGroup
	errs := make([]error, len(g.members))
	for i, v := range g.members {
		closing.Go(func() { errs[i] = v.Close(ctx) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// combinedBreaker makes one breaker of several for the observer: it is open while all are.
type combinedBreaker struct {
	mu     sync.Mutex
	states []State
	last   State
}

// set notes one endpoint's state and tells of the combined one if that changed. It tells while it is locked, so that what is
// told last is what is so.
func (c *combinedBreaker) set(i int, state State, tell func(State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states[i] = state
	combined := StateDown
	for _, s := range c.states {
		combined = min(combined, s)
	}
	if combined != c.last {
		c.last = combined
		tell(combined)
	}
}

// reportingTo makes an endpoint's observer see the group's breaker rather than the endpoint's own. It is the last option.
func reportingTo(c *combinedBreaker, i, of int) Option {
	return func(v *VLLM) {
		if of > 1 {
			v.observer = memberObserver{Observer: v.observer, combined: c, index: i}
			v.log = v.log.With("endpoint", i)
		}
	}
}

type memberObserver struct {
	Observer

	combined *combinedBreaker
	index    int
}

// Breaker implements [Observer].
func (o memberObserver) Breaker(state State) {
	o.combined.set(o.index, state, o.Observer.Breaker)
}

// fitness ranks endpoints: the lower the better.
type fitness int

const (
	fit        fitness = iota
	passedOver         // it failed several times in a row, or its health check does
	unfit              // its circuit is open: it would refuse at once
)

// fitness says how good a choice this endpoint is.
func (v *VLLM) fitness() fitness {
	switch {
	case v.breaker.state() == StateDown:
		return unfit
	case v.health.ejected() || v.unhealthy.Load():
		return passedOver
	default:
		return fit
	}
}

const (
	// healthTimeout: vLLM answers /health from its event loop; one that takes longer is in no state to be asked.
	healthTimeout = 2 * time.Second
	// unhealthyAfter so many failed health checks in a row: one may be a hiccup.
	unhealthyAfter = 2
)

// watchHealth asks vLLM's /health until ctx ends.
func (v *VLLM) watchHealth(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if v.client.healthy(ctx) {
			failures = 0
		} else if ctx.Err() == nil {
			failures++
		}
		if sick := failures >= unhealthyAfter; v.unhealthy.Swap(sick) != sick {
			level := slog.LevelInfo
			if sick {
				level = slog.LevelWarn
			}
			v.log.Log(ctx, level, "vLLM's health check changed", "healthy", !sick)
		}
	}
}

// healthy asks /health, which stands beside the versioned API and needs no key. Only a server error and no answer count
// against vLLM: what stands in front of it may not know the path.
func (c *client) healthy(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.healthURL, http.NoBody)
	if err != nil {
		return true // an address that was good enough for the rest
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // unread: only the status counts
	return resp.StatusCode < http.StatusInternalServerError
}
