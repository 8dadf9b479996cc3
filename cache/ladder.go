package cache

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Ladder finds values. V is handed to many callers at once and kept: nobody may change what it refers to.
type Ladder[V any] struct {
	top        *readLocal[V]
	flights    *flights[V]
	leases     *leases     // nil without a shared layer
	background *background // nil without a shared layer
	now        func() time.Time
	closed     atomic.Bool
	// computeTimeout is for calls that do not say.
	computeTimeout time.Duration
}

// Deps are a ladder's collaborators. All are optional.
type Deps[V any] struct {
	Shared   SharedLayer // not closed by the ladder; needs Codec
	Codec    Codec[V]
	Observer Observer         // default: none
	Now      func() time.Time // default: time.Now; called from many goroutines
}

// rung is one step of the ladder: it answers with what it has, or asks the next rung down.
type rung[V any] interface {
	get(ctx context.Context, req request[V]) (Result[V], error)
}

// request is one call on its way down.
type request[V any] struct {
	key     Key
	opts    Options
	oldest  time.Time // a value computed before is a miss; zero accepts any
	compute func(ctx context.Context) (V, error)
}

func (r request[V]) mayCompute() bool {
	return r.opts.Policy.computes() && r.opts.Reach == ReachCompute
}

// refusal is the answer to a call that may go no further.
func (r request[V]) refusal() error {
	if r.opts.Policy == OnlyIfCached {
		return ErrNotCached
	}
	return ErrNotStarted
}

// New builds a ladder. The caller closes it.
func New[V any](cfg Config, deps Deps[V]) (*Ladder[V], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Shared != nil && deps.Codec == nil {
		return nil, errors.New("cache: a shared layer needs a codec")
	}
	if deps.Observer == nil {
		deps.Observer = NopObserver{}
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	store, err := newLocalStore[V](cfg, deps.Now)
	if err != nil {
		return nil, err
	}

	l := &Ladder[V]{now: deps.Now, computeTimeout: cfg.ComputeTimeout}
	// From the bottom up. Above the flights a rung runs on the caller's goroutine and context; below them on the flight's, which
	// outlive the caller.
	var below rung[V] = &compute[V]{now: deps.Now, observer: deps.Observer}
	if deps.Shared != nil {
		l.background = newBackground(deps.Observer)
		l.leases = newLeases(deps.Shared, deps.Observer, l.background)
		below = &sharing[V]{
			layer: deps.Shared, codec: deps.Codec, cfg: cfg, now: deps.Now, observer: deps.Observer,
			background: l.background, leases: l.leases, next: below,
		}
	}
	below = &keepLocal[V]{store: store, next: below}
	l.flights = newFlights(below, deps.Observer, deps.Now)
	l.top = &readLocal[V]{store: store, observer: deps.Observer, next: l.flights}
	return l, nil
}

// Get returns the value of key, from the first rung that has it. compute is called at most once, and only if nothing above it
// could answer; it runs on a context of its own, which carries ctx's values but not its end, and whose cause is ErrAbandoned once
// every caller has left. ctx bounds only how long this caller waits: when it ends, Get returns its cause, wrapped. A failed
// computation's error goes to all that waited for it.
func (l *Ladder[V]) Get(ctx context.Context, key Key, opts Options, compute func(ctx context.Context) (V, error)) (Result[V], error) {
	if l.closed.Load() {
		return Result[V]{}, ErrClosed
	}
	if opts.ComputeTimeout <= 0 {
		opts.ComputeTimeout = l.computeTimeout
	}
	return l.top.get(ctx, request[V]{key: key, opts: opts, oldest: l.oldest(opts), compute: compute})
}

// Local returns the value of key if the local cache has one that Get would answer with. It is for callers who then spare themselves
// what only Get needs: a context of their own, a computation. A miss is not reported to the observer, since the Get that follows looks
// again.
func (l *Ladder[V]) Local(ctx context.Context, key Key, opts Options) (Result[V], bool) {
	if l.closed.Load() {
		return Result[V]{}, false
	}
	return l.top.look(ctx, request[V]{key: key, opts: opts, oldest: l.oldest(opts)}, false)
}

// oldest is when a value must have been computed to be young enough; zero accepts any.
func (l *Ladder[V]) oldest(opts Options) time.Time {
	if opts.MaxAge == nil {
		return time.Time{}
	}
	return l.now().Add(-max(*opts.MaxAge, 0))
}

// ReleaseLeases gives back the leases held for computations of source (Options.Source), so that another process may try while this
// one cannot. The computations go on, and calls made later take leases again.
func (l *Ladder[V]) ReleaseLeases(source string) {
	if l.leases != nil {
		l.leases.giveBack(source)
	}
}

// Close refuses new calls, waits for the running computations, also for those whose callers have left, and then for what is queued to
// be stored. When ctx ends first, the computations' contexts are ended with the cause ErrClosed, and Close returns without waiting
// longer. Close may be called again.
func (l *Ladder[V]) Close(ctx context.Context) error {
	l.closed.Store(true)
	err := l.flights.close(ctx)
	if l.background != nil {
		l.background.close(ctx)
	}
	if err == nil && l.leases != nil {
		l.leases.renewal.Wait() // each ended with its computation, or ends with its last exchange
	}
	return err
}

// left is the error of a caller whose context ended while it waited.
func left(ctx context.Context) error {
	return fmt.Errorf("cache: gave up waiting: %w", context.Cause(ctx))
}
