package cache

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	mathrand "math/rand/v2"
	"sync"
	"time"
)

// How often a waiter asks. It learns of a value at most a quarter of the waited time late, and never more than about 100 ms; a wait of
// a second costs some twenty questions, and ten more for every further second.
const (
	minPause = 5 * time.Millisecond
	maxPause = 100 * time.Millisecond
)

// claim takes the value from the shared cache, or waits for the process that computes it, or computes it under the lease. A flight has
// one goroutine and a process one flight a key, so a process has one waiter a key, and takes over at most once.
//
// The interleavings that matter:
//
//   - the holder stores and releases in one step: no waiter ever sees the lease gone and the value not there;
//   - the holder fails, dies or gives up: the lease ends without a value, and of those who ask next exactly one wins it;
//   - the lease is evicted: somebody else wins it and computes a second time. Both store, and the values are equally good;
//   - Redis answers too late: the lease may be ours without our knowing. We compute as if it were not, and our store ends it;
//   - all callers leave while a claim is under way: the claim is not cut off, for then nobody would know whether to release.
func (r *sharing[V]) claim(ctx context.Context, req request[V]) (Result[V], error) {
	lease := Lease{Key: req.key, Token: newToken(), TTL: r.cfg.LeaseTTL}
	found, err := r.ask(ctx, lease, nil, req)
	r.observer.Lookup(ctx, LayerShared, found.outcome)
	switch {
	case err != nil:
		return r.lead(ctx, lease, false, req)
	case found.outcome == Hit:
		return Result[V]{Entry: found.entry, Origin: Shared}, nil
	case found.won:
		return r.lead(ctx, lease, true, req)
	}
	return r.await(ctx, lease, found.unfit, req)
}

// answer is what a claim came to: a value (Hit), the lease (won), or another's lease.
type answer[V any] struct {
	entry   Entry[V]
	outcome Outcome
	won     bool
	unfit   []byte // bytes rejected on the way; not worth looking at again
}

// ask claims. What is stored and will not do is rejected, and the claim repeated with that said.
func (r *sharing[V]) ask(ctx context.Context, lease Lease, unfit []byte, req request[V]) (answer[V], error) {
	got := answer[V]{outcome: Miss, unfit: unfit}
	for range 2 { // once more if the first thing found was rejected; should that be replaced just then, the caller asks again later
		claim, err := r.layer.Claim(context.WithoutCancel(ctx), lease, got.unfit)
		if err != nil {
			got.outcome = Failed
			return got, err
		}
		if claim.Raw == nil {
			got.won = claim.Won
			return got, nil
		}
		if got.entry, got.outcome = r.open(claim.Stored, req); got.outcome == Hit {
			return got, nil
		}
		got.unfit = claim.Raw
	}
	return got, nil
}

// await waits until the value appears, the lease is ours, or there is no use in waiting longer.
func (r *sharing[V]) await(ctx context.Context, lease Lease, unfit []byte, req request[V]) (result Result[V], err error) {
	begin := r.now()
	// A holder renews for no longer than its compute timeout, and a lease it no longer renews ends after its TTL. A holder
	// whose configuration lets it take longer than ours may be given up on too early.
	waitCtx, cancel := context.WithTimeoutCause(ctx, req.opts.ComputeTimeout+r.cfg.LeaseTTL, ErrWaitTimeout)
	defer cancel()
	waiting, end := r.observer.Stage(ctx, StageLease)
	// Seeded by the token, so that waiters of different processes do not ask in step.
	seed := [2]uint64{binary.NativeEndian.Uint64(lease.Token[:8]), binary.NativeEndian.Uint64(lease.Token[8:])}
	random := mathrand.New(mathrand.NewPCG(seed[0], seed[1]))
	pause := time.NewTimer(pauseAfter(0, random))
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-waitCtx.Done():
			err := left(waitCtx)
			end(err)
			return Result[V]{}, err
		}
		found, err := r.ask(waiting, lease, unfit, req)
		waited := r.now().Sub(begin)
		switch {
		case err == nil && found.outcome == Hit:
			end(nil)
			return Result[V]{Entry: found.entry, Origin: JoinedShared, Wait: waited}, nil
		case err != nil || found.won:
			end(err)
			if found.won {
				r.observer.Count(ctx, TakenOver)
			} else {
				r.observer.Lookup(ctx, LayerShared, Failed)
			}
			result, err := r.lead(ctx, lease, found.won, req)
			result.Wait = waited
			return result, err
		}
		unfit = found.unfit
		pause.Reset(pauseAfter(waited, random))
	}
}

func pauseAfter(waited time.Duration, random *mathrand.Rand) time.Duration {
	pause := min(max(waited/4, minPause), maxPause)
	return time.Duration(float64(pause) * (0.75 + random.Float64()/2))
}

// lead computes and stores. The lease is ended in every case: by the store, or by a release if there is nothing to store. It is held
// for certain or, when the claim's answer never came, perhaps; then it is not renewed.
func (r *sharing[V]) lead(ctx context.Context, lease Lease, certain bool, req request[V]) (Result[V], error) {
	if certain {
		stop := r.leases.keep(ctx, lease, req.opts)
		defer stop()
	}
	ended := false
	defer func() { // deferred, so that a panic or Goexit releases too
		if !ended {
			r.background.release(r.layer, lease)
		}
	}()
	if ctx.Err() != nil { // all callers left during the claim
		return Result[V]{}, left(ctx)
	}
	result, err := r.next.get(ctx, req)
	if err != nil {
		return Result[V]{}, err
	}
	ended = r.store(ctx, lease, req, result.Entry)
	return result, nil
}

func newToken() Token {
	var t Token
	_, _ = rand.Read(t[:]) // never fails
	return t
}

// leases keeps the leases of this process alive while it computes.
type leases struct {
	layer      SharedLayer
	observer   Observer
	background *background

	mu      sync.Mutex
	held    map[*held]struct{}
	renewal sync.WaitGroup // of the renewing goroutines; nothing but Close waits for them
}

func newLeases(layer SharedLayer, observer Observer, background *background) *leases {
	return &leases{layer: layer, observer: observer, background: background, held: make(map[*held]struct{})}
}

type held struct {
	lease  Lease
	source string
	stop   context.CancelFunc
}

// keep renews the lease until the returned function is called, it is given back, it is lost, or the compute timeout is over.
func (l *leases) keep(ctx context.Context, lease Lease, opts Options) (stop func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opts.ComputeTimeout)
	h := &held{lease: lease, source: opts.Source, stop: cancel}
	l.mu.Lock()
	l.held[h] = struct{}{}
	l.mu.Unlock()
	l.renewal.Go(func() { l.renew(ctx, lease) })
	return func() {
		l.mu.Lock()
		delete(l.held, h)
		l.mu.Unlock()
		cancel()
	}
}

// renew renews every third of the TTL, so that two renewals may fail before the lease is lost.
func (l *leases) renew(ctx context.Context, lease Lease) {
	tick := time.NewTicker(lease.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// Not cut off when the computation ends meanwhile: a renewal of a lease that was released is without effect.
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), backgroundTimeout)
		stillHeld, err := l.layer.Renew(limit, lease)
		cancel()
		if err == nil && !stillHeld {
			l.observer.Count(ctx, LeaseLost)
			return
		}
	}
}

// giveBack releases the leases of a source and stops renewing them. What is being computed under them goes on.
func (l *leases) giveBack(source string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := range l.held {
		if h.source == source {
			delete(l.held, h)
			h.stop()
			l.background.release(l.layer, h.lease)
		}
	}
}
