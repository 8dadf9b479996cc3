package scorer

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// sharedBytes is the size of the matrix from which vectors share a pass over it
// and a pass is shared by processors. A smaller one is multiplied in some 30 µs,
// from the caches; waiting for others, or waking them, would take as long.
const sharedBytes = 1 << 20

// projector multiplies vectors with the principal components. The matrix of a large
// checkpoint is read from the memory for every pass, 118 MB at 200 x 147,456, and
// that is what takes the time. So there is one pass at a time, on as many
// processors as are idle, and the vectors that arrive meanwhile share the next:
//
//  1. A caller that finds no pass running leads one at once, for itself alone.
//  2. Callers that arrive during a pass queue up and sleep.
//  3. When the pass ends, its leader wakes the first in the queue, which leads the
//     next pass, for up to maxBatch of the queue.
//  4. It wakes the others of its batch, whose results are there, and returns.
//
// No vector waits while the processors are idle, and none for more passes than
// those in front of it in the queue need. There is no goroutine between calls.
type projector struct {
	pass product // the current pass; its leader's alone

	mu      sync.Mutex
	running bool          // a pass is running, or its leader has been chosen
	queue   []*projection // those not yet in a pass
}

// projection is one vector and its place in the queue.
type projection struct {
	x    []float64 // [columns], float32 values
	y    []float32 // [rows], the result
	wake chan verdict
}

// verdict is why a queued caller was woken.
type verdict int

const (
	resultReady   verdict = iota
	leadNext              // it is the first of the next pass
	multiplyAlone         // its leader broke down
)

func newProjection(columns, rows int) projection {
	return projection{x: make([]float64, columns), y: make([]float32, rows), wake: make(chan verdict, 1)}
}

func newProjector(m []float32, columns int) projector {
	return projector{pass: product{m: m, columns: columns}}
}

// project computes the principal components of j.x in j.y.
func (p *projector) project(j *projection) {
	if len(p.pass.m)*bytesPerFloat < sharedBytes {
		matVec(j.y, p.pass.m, j.x)
		return
	}
	p.mu.Lock()
	p.queue = append(p.queue, j)
	if p.running {
		p.mu.Unlock()
		switch <-j.wake {
		case resultReady:
			return
		case multiplyAlone:
			matVec(j.y, p.pass.m, j.x)
			return
		case leadNext:
			p.mu.Lock()
		}
	}
	p.running = true
	batch := p.take()
	p.mu.Unlock()
	p.run(batch)
}

// take takes the next batch off the queue; p.mu is held.
func (p *projector) take() []*projection {
	n := min(len(p.queue), maxBatch)
	batch := slices.Clone(p.queue[:n])
	p.queue = slices.Delete(p.queue, 0, n) // clears what is left over, so that nothing is kept alive
	return batch
}

// run leads a pass for a batch, of which the caller is the first.
func (p *projector) run(batch []*projection) {
	outcome := multiplyAlone // unless the pass ends well
	defer func() {
		p.mu.Lock()
		if len(p.queue) > 0 {
			p.queue[0].wake <- leadNext
		} else {
			p.running = false
		}
		p.mu.Unlock()
		for _, j := range batch[1:] {
			j.wake <- outcome
		}
	}()
	p.pass.vectors = len(batch)
	for v, j := range batch {
		p.pass.x[v], p.pass.y[v] = j.x, j.y
	}
	p.multiply()
	clear(p.pass.x[:])
	clear(p.pass.y[:])
	outcome = resultReady
}

// multiply runs the pass on all processors. Each takes the next block of rows when
// it is done with one, so that a busy one delays nobody.
func (p *projector) multiply() {
	var next atomic.Int64
	work := func() {
		for {
			block := int(next.Add(1)) - 1
			if block >= p.pass.blocks() {
				return
			}
			p.pass.multiply(block)
		}
	}
	var others sync.WaitGroup
	defer others.Wait() // after a panic too: the next leader needs the pass for itself
	for range min(runtime.GOMAXPROCS(0), p.pass.blocks()) - 1 {
		others.Go(work)
	}
	work()
}
