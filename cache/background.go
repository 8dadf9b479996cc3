package cache

import (
	"context"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// backgroundTimeout bounds each exchange no answer waits for. It is longer than that of the others, since being late harms nobody.
	backgroundTimeout = 100 * time.Millisecond

	// backgroundWorkers stores at a time: four, each a fraction of a millisecond, keep up with thousands of computations a second.
	backgroundWorkers = 4

	// backgroundQueue is how many may wait, about a megabyte of values. More means that the shared cache does not keep up; then
	// storing less is the right thing to do.
	backgroundQueue = 1024
)

// background carries out stores and releases in its own few goroutines. What does not fit into its queue is dropped.
type background struct {
	observer Observer
	jobs     chan func(ctx context.Context)
	ctx      context.Context //nolint:containedctx // the workers' own, ended by close
	cancel   context.CancelFunc
	workers  sync.WaitGroup

	mu     sync.RWMutex // held to send, so that jobs is never closed under a sender
	closed bool
}

func newBackground(observer Observer) *background {
	b := &background{observer: observer, jobs: make(chan func(context.Context), backgroundQueue)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	for range backgroundWorkers {
		b.workers.Go(func() {
			for job := range b.jobs {
				b.run(job)
			}
		})
	}
	return b
}

func (b *background) run(job func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(b.ctx, backgroundTimeout)
	defer cancel()
	defer func() { // a codec that panics must not take the process with it
		if v := recover(); v != nil {
			b.observer.PanicRecovered(ctx, v, debug.Stack())
		}
	}()
	job(ctx)
}

// do queues a job and returns true, or returns false at once if there is no room.
func (b *background) do(job func(ctx context.Context)) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return false
	}
	select {
	case b.jobs <- job:
		return true
	default:
		return false
	}
}

// release has a lease released. If there is no room it ends by itself after its TTL.
func (b *background) release(layer SharedLayer, lease Lease) {
	b.do(func(ctx context.Context) { _ = layer.Release(ctx, lease) })
}

// close carries out what is queued. When ctx ends, the rest is given up.
func (b *background) close(ctx context.Context) {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.jobs)
	}
	b.mu.Unlock()
	stop := context.AfterFunc(ctx, b.cancel)
	defer stop()
	b.workers.Wait()
	b.cancel()
}
