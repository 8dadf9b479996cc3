package cache

import (
	"context"
	"fmt"
	"time"

	"github.com/maypok86/otter/v2"
)

// localStore is this process's own cache: bounded, and read without a lock. An entry expires when its value is a TTL old, which for one
// that came from the shared cache is sooner than a TTL after it was put here.
type localStore[V any] struct {
	entries *otter.Cache[Key, Entry[V]]
}

func newLocalStore[V any](cfg Config, now func() time.Time) (*localStore[V], error) {
	entries, err := otter.New(&otter.Options[Key, Entry[V]]{
		MaximumSize: cfg.MaxEntries,
		Clock:       storeClock(now),
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[Key, Entry[V]]) time.Duration {
			return max(e.Value.Computed.Add(cfg.TTL).Sub(now()), 1) // what is too old already goes at once
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("cache: build the local cache: %w", err)
	}
	return &localStore[V]{entries}, nil
}

// get returns the entry of key and what the look found.
func (s *localStore[V]) get(key Key, oldest time.Time) (Entry[V], Outcome) {
	entry, ok := s.entries.GetIfPresent(key)
	switch {
	case !ok:
		return Entry[V]{}, Miss
	case entry.Computed.Before(oldest):
		return Entry[V]{}, Old
	}
	return entry, Hit
}

func (s *localStore[V]) set(key Key, entry Entry[V]) { s.entries.Set(key, entry) }

// storeClock lets the store live by the ladder's clock.
type storeClock func() time.Time

func (c storeClock) NowNano() int64 { return c().UnixNano() }

// Tick returns no ticks, so the store keeps no goroutine for cleaning up: MaximumSize bounds what expired entries may occupy, and
// every write removes some.
func (c storeClock) Tick(time.Duration) <-chan time.Time { return nil }

// readLocal is the top rung: it answers from the local store, and is where a call that may go no further stops.
type readLocal[V any] struct {
	store    *localStore[V]
	observer Observer
	next     rung[V]
}

func (r *readLocal[V]) get(ctx context.Context, req request[V]) (Result[V], error) {
	if result, ok := r.look(ctx, req, true); ok {
		return result, nil
	}
	if req.opts.Reach == ReachLocal {
		return Result[V]{}, req.refusal()
	}
	return r.next.get(ctx, req)
}

// look answers from the local store if that has what the call wants. A hit is always reported.
func (r *readLocal[V]) look(ctx context.Context, req request[V], reportMiss bool) (Result[V], bool) {
	if !req.opts.Policy.reads() {
		return Result[V]{}, false
	}
	entry, outcome := r.store.get(req.key, req.oldest)
	if outcome == Hit || reportMiss {
		r.observer.Lookup(ctx, LayerLocal, outcome)
	}
	if outcome != Hit {
		return Result[V]{}, false
	}
	return Result[V]{Entry: entry, Origin: Local}, true
}

// keepLocal stands below the flights and puts what comes from further down into the local store, whether or not a caller is still
// there. It looks into the store once more first: between a call's look at the top and the start of its flight, an earlier flight
// may have landed, and what that one brought must not be computed again.
type keepLocal[V any] struct {
	store *localStore[V]
	next  rung[V]
}

func (r *keepLocal[V]) get(ctx context.Context, req request[V]) (Result[V], error) {
	if req.opts.Policy.reads() {
		if entry, outcome := r.store.get(req.key, req.oldest); outcome == Hit {
			return Result[V]{Entry: entry, Origin: Local}, nil
		}
	}
	result, err := r.next.get(ctx, req)
	if err == nil && req.opts.Policy.writes() {
		r.store.set(req.key, result.Entry)
	}
	return result, err
}
