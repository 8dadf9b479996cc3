package probe

import (
	"context"
	"slices"
	"sync"
)

// workers bounds how many processors pool at the same time, over all requests of a probe, so that many artifacts at
// once do not keep the processors from everything else. The nil *workers is one worker for every request.
type workers struct {
	slots   chan struct{} // holds a value for each worker at work
	scratch scratchPool
}

func newWorkers(n int) *workers { return &workers{slots: make(chan struct{}, n)} }

// take waits for a worker and returns how many the caller got: at most want, and more than one only if they are idle.
func (w *workers) take(ctx context.Context, want int) (n int, err error) {
	if w == nil {
		return 1, nil
	}
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for n = 1; n < want; n++ {
		select {
		case w.slots <- struct{}{}:
		default:
			return n, nil
		}
	}
	return n, nil
}

// give returns n workers.
func (w *workers) give(n int) {
	if w == nil {
		return
	}
	for range n {
		<-w.slots
	}
}

// scratches returns where workers find their memory.
func (w *workers) scratches() *scratchPool {
	if w == nil {
		return new(scratchPool)
	}
	return &w.scratch
}

// scratch is a worker's memory.
type scratch struct {
	buffer  [poolBufferBytes + maxVectorBytes]byte // a kernel may read a little beyond the last row
	nonzero [blockTokens]byte                      // of each token in the block: what is known of its current vector
	sums    []float32                              // of a block; empty until there are several

	unyielded int // bytes read since others last got the processor
}

// sumsFor returns the first n sums, of any value.
func (s *scratch) sumsFor(n int) []float32 {
	s.sums = slices.Grow(s.sums[:0], n)[:n]
	return s.sums
}

// scratchPool keeps the memory of workers that are idle, until the collector needs it.
type scratchPool struct{ pool sync.Pool }

func (p *scratchPool) get() *scratch {
	if s, ok := p.pool.Get().(*scratch); ok {
		return s
	}
	return new(scratch)
}

func (p *scratchPool) put(s *scratch) { p.pool.Put(s) }
