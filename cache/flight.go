package cache

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// flights is the rung where callers of one key come together: at most one flight a key is under way, and everyone who wants the key
// waits for it. The flight belongs to none of its callers: it has its own goroutine, and a context that outlives them.
//
// What a caller may do to the others is the point of this file, so the interleavings are listed:
//
//   - the first caller leaves: nothing happens, the others wait on;
//   - the last caller leaves: the flight is abandoned, its context ends with the cause ErrAbandoned. What has not committed itself
//     returns and is forgotten; what has goes on, and its value is kept;
//   - a caller arrives at an abandoned flight: it waits for the end, so that no second computation runs beside the first. A good
//     result is its own; after a bad one it starts over, for the failure may be due to callers who are not there any more;
//   - the flight lands while a caller leaves: the result wins over the end of the caller's context;
//   - the computation panics or ends its goroutine: every caller gets ErrPanicked, and the next call starts afresh.
type flights[V any] struct {
	next     rung[V]
	observer Observer
	now      func() time.Time

	mu      sync.Mutex
	joined  map[flightKey]*flight[V] // those that may be joined
	flying  map[*flight[V]]struct{}  // all of them, those of Bypass too
	closed  bool
	drained chan struct{} // closed once closed is set and nothing flies
}

// flightKey tells refreshing flights from the others: a Refresh must not get what a reading flight may have found in a cache.
type flightKey struct {
	key     Key
	refresh bool
}

// flight is one computation under way.
type flight[V any] struct {
	key  flightKey
	ctx  context.Context
	end  context.CancelCauseFunc
	done chan struct{} // closed when result and err are final

	callers   int  // waiting now; guarded by flights.mu
	abandoned bool // callers has been 0; guarded by flights.mu

	result Result[V]
	err    error
}

// role is what a caller is to a flight.
type role uint8

const (
	leads role = iota
	joins
	joinsAbandoned
)

func newFlights[V any](next rung[V], observer Observer, now func() time.Time) *flights[V] {
	return &flights[V]{
		next:     next,
		observer: observer,
		now:      now,
		joined:   make(map[flightKey]*flight[V]),
		flying:   make(map[*flight[V]]struct{}),
		drained:  make(chan struct{}),
	}
}

func (r *flights[V]) get(ctx context.Context, req request[V]) (Result[V], error) {
	if !req.opts.Policy.computes() {
		return r.next.get(ctx, req)
	}
	for {
		if ctx.Err() != nil {
			return Result[V]{}, left(ctx)
		}
		f, role, err := r.board(ctx, req)
		if err != nil {
			return Result[V]{}, err
		}
		if f == nil { // nothing to join, and the call may not start anything: on this goroutine it can still read
			return r.next.get(ctx, req)
		}
		result, err, landed := r.wait(ctx, f, role)
		switch {
		case role == joinsAbandoned && landed && err != nil:
			continue
		case role != leads && err == nil && result.Computed.Before(req.oldest):
			continue // a leader that accepts older values found one in the shared cache
		}
		return result, err
	}
}

// board returns the flight the call is to wait for, starting it if need be. It returns no flight if there is none to join and the call
// may not start one.
func (r *flights[V]) board(ctx context.Context, req request[V]) (*flight[V], role, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, 0, ErrClosed
	}
	if f := r.find(req); f != nil {
		f.callers++
		if f.abandoned {
			return f, joinsAbandoned, nil
		}
		return f, joins, nil
	}
	if !req.mayCompute() {
		return nil, 0, nil
	}
	f := &flight[V]{
		key:     flightKey{key: req.key, refresh: req.opts.Policy == Refresh},
		done:    make(chan struct{}),
		callers: 1,
	}
	f.ctx, f.end = context.WithCancelCause(context.WithoutCancel(ctx))
	r.flying[f] = struct{}{}
	if req.opts.Policy != Bypass {
		r.joined[f.key] = f
	}
	go r.fly(f, req)
	return f, leads, nil
}

// find returns the flight that the call may join, a live one rather than an abandoned one. r.mu is held.
func (r *flights[V]) find(req request[V]) *flight[V] {
	if req.opts.Policy == Bypass {
		return nil
	}
	refreshing := r.joined[flightKey{req.key, true}]
	if req.opts.Policy == Refresh {
		return refreshing
	}
	ordinary := r.joined[flightKey{req.key, false}]
	if ordinary == nil || ordinary.abandoned && refreshing != nil && !refreshing.abandoned {
		return refreshing
	}
	return ordinary
}

// wait waits until the flight lands or the caller's context ends, whichever is first, and says whether it landed.
func (r *flights[V]) wait(ctx context.Context, f *flight[V], role role) (result Result[V], err error, landed bool) {
	start := r.now()
	if role != leads {
		waiting, end := r.observer.Stage(ctx, StageWait)
		r.observer.Joined(waiting, f.ctx)
		defer func() { end(err) }()
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		select {
		case <-f.done: // both are true, and a result beats a cancellation
		default:
			r.leave(f)
			return Result[V]{}, left(ctx), false
		}
	}
	result = f.result
	if role != leads {
		result.Wait = r.now().Sub(start)
		if result.Origin == Computed {
			result.Origin = JoinedLocal
		}
	}
	return result, f.err, true
}

// leave takes a caller off the flight. The last one abandons it.
func (r *flights[V]) leave(f *flight[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.callers--
	if f.callers == 0 {
		f.abandoned = true
		f.end(ErrAbandoned)
	}
}

// fly runs the flight on its own goroutine, whose owner is flights: close waits for it.
func (r *flights[V]) fly(f *flight[V], req request[V]) {
	returned := false
	defer r.land(f)
	defer func() {
		if returned {
			return
		}
		// Either a panic, or the computation called runtime.Goexit: then recover returns nil, and this goroutine ends after us.
		r.observer.PanicRecovered(f.ctx, recover(), debug.Stack())
		f.result, f.err = Result[V]{}, ErrPanicked
	}()
	f.result, f.err = r.next.get(f.ctx, req)
	returned = true
}

// land makes the result known. The flight is off the map before anyone can see its result, so a call made after that never meets it.
func (r *flights[V]) land(f *flight[V]) {
	r.mu.Lock()
	if r.joined[f.key] == f {
		delete(r.joined, f.key)
	}
	delete(r.flying, f)
	if r.closed && len(r.flying) == 0 {
		close(r.drained)
	}
	r.mu.Unlock()
	close(f.done)
	f.end(nil)
}

func (r *flights[V]) close(ctx context.Context) error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		if len(r.flying) == 0 {
			close(r.drained)
		}
	}
	r.mu.Unlock()

	select {
	case <-r.drained:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for f := range r.flying {
		f.end(ErrClosed)
	}
	if len(r.flying) == 0 {
		return nil
	}
	return fmt.Errorf("cache: close: %d computations still run: %w", len(r.flying), context.Cause(ctx))
}
