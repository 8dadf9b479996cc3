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

var errTooSlow = errors.New("the calls pile up: the rate is above what the server can do")

// openLoop sends calls at random times (a Poisson process) of the given mean rate for
// d, each on a goroutine of its own. Latencies count from the intended time.
func openLoop(ctx context.Context, do call, rate float64, d time.Duration) (*load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	const seed = 1 // the same arrivals for everything that is compared
	random := rand.New(rand.NewPCG(seed, seed))
	var (
		wg          sync.WaitGroup
		mu          sync.Mutex
		outstanding atomic.Int64
		all         load
		began       = time.Now()
	)
	for due := time.Duration(0); due < d && ctx.Err() == nil; {
		due += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		if early := due - time.Since(began); early > 0 {
			time.Sleep(early)
		}
		all.late.add(time.Since(began) - due)
		if outstanding.Add(1) > maxOutstanding {
			cancel(errTooSlow)
		}
		all.calls++
		i, intended := all.calls, began.Add(due)
		wg.Go(func() {
			defer outstanding.Add(-1)
			if err := callOnce(ctx, do, i); err != nil {
				cancel(err)
				return
			}
			took := time.Since(intended)
			mu.Lock()
			defer mu.Unlock()
			all.latencies.add(took)
		})
	}
	wg.Wait()
	all.took = time.Since(began)
	return &all, context.Cause(ctx)
}

func callOnce(ctx context.Context, do call, i int) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := do(ctx, i); err != nil {
		return fmt.Errorf("call %d: %w", i, err)
	}
	return nil
}
