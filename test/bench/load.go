package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// call makes the i-th call and waits for its answer.
type call func(ctx context.Context, i int) error

// callTimeout ends a call that hangs; far above anything that is measured.
const callTimeout = 20 * time.Second

// load is what one stretch of calls showed.
type load struct {
	calls     int
	took      time.Duration
	latencies histogram
	// late is how much after its time each call was sent (open loop): the load
	// generator's own share in the latencies.
	late histogram
}

// perSecond returns the throughput.
func (l *load) perSecond() float64 { return float64(l.calls) / l.took.Seconds() }

// closedLoop has each of the callers make one call after another for d.
func closedLoop(ctx context.Context, do call, callers int, d time.Duration) (*load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		next   atomic.Int64
		wg     sync.WaitGroup
		shares = make([]load, callers)
		began  = time.Now()
	)
	for c := range callers {
		wg.Go(func() {
			share := &shares[c]
			for sent := time.Now(); sent.Sub(began) < d && ctx.Err() == nil; {
				if err := callOnce(ctx, do, int(next.Add(1))); err != nil {
					cancel(err)
					return
				}
				now := time.Now()
				share.latencies.add(now.Sub(sent))
				share.calls++
				sent = now
			}
		})
	}
	wg.Wait()
	all := &load{took: time.Since(began)}
	for i := range shares {
		all.calls += shares[i].calls
		all.latencies.merge(&shares[i].latencies)
	}
	return all, context.Cause(ctx)
}

// maxOutstanding is when an open loop gives up: the server is far too slow for the rate.
const maxOutstanding = 20_000

// sender sends the calls of an open loop.
type sender interface {
	// send sends the i-th call, at the latest with the next flush, and does not wait for
	// its answer.
	send(i int, due time.Time) error
	flush() error
	// wait waits for the answers that are still out, and returns how long after its due
	// time each call was answered.
	wait(ctx context.Context) (*histogram, error)
}

// openLoop sends calls at random times (a Poisson process) of the given mean rate for
// d. Latencies count from the intended time, so that a stall shows in every call that it
// delays. A call that is late is sent together with those due since.
func openLoop(ctx context.Context, s sender, sleep func(time.Duration), rate float64, d time.Duration) (*load, error) {
	const seed = 1 // the same arrivals for everything that is compared
	random := rand.New(rand.NewPCG(seed, seed))
	all, began := &load{}, time.Now()
	for due := time.Duration(0); due < d; {
		due += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		if due > time.Since(began) {
			if err := s.flush(); err != nil {
				return nil, err
			}
		}
		for early := due - time.Since(began); early > 0; early = due - time.Since(began) {
			sleep(early)
		}
		all.late.add(time.Since(began) - due)
		all.calls++
		if err := errors.Join(context.Cause(ctx), s.send(all.calls, began.Add(due))); err != nil {
			return nil, err
		}
	}
	if err := s.flush(); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	latencies, err := s.wait(waiting)
	if err != nil {
		return nil, err
	}
	all.latencies, all.took = *latencies, time.Since(began)
	return all, nil
}

func callOnce(ctx context.Context, do call, i int) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := do(ctx, i); err != nil {
		return fmt.Errorf("call %d: %w", i, err)
	}
	return nil
}
