package probe

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// errQueueTime is the cause of a wait in the queue that took too long.
var errQueueTime = errors.New("queue_timeout")

// gate bounds how many extractions run and how many wait to. Slots are given in the order of arrival.
type gate struct {
	slots    *semaphore.Weighted // first in, first out; nobody overtakes the queue
	maxQueue int64
	patience time.Duration

	queued   atomic.Int64
	inFlight atomic.Int64
}

func newGate(slots, queue int, patience time.Duration) *gate {
	return &gate{slots: semaphore.NewWeighted(int64(slots)), maxQueue: int64(queue), patience: patience}
}

// enter waits for a slot. The returned function gives it back. When ctx ends first, its cause is returned, wrapped.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("waiting for a probe slot: %w", context.Cause(ctx))
	}
	if !g.slots.TryAcquire(1) {
		if err := g.wait(ctx); err != nil {
			return nil, err
		}
	}
	g.inFlight.Add(1)
	return func() {
		g.inFlight.Add(-1)
		g.slots.Release(1)
	}, nil
}

// wait takes a slot after those who wait already.
func (g *gate) wait(ctx context.Context) error {
	defer g.queued.Add(-1)
	if g.queued.Add(1) > g.maxQueue {
		return fmt.Errorf("%w: queue is full (max_queue %d)", ErrOverloaded, g.maxQueue)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.patience, errQueueTime)
	defer cancel()
	if err := g.slots.Acquire(ctx, 1); err != nil {
		cause := context.Cause(ctx)
		if errors.Is(cause, errQueueTime) {
			return fmt.Errorf("%w: no slot came free within %w %v", ErrOverloaded, cause, g.patience)
		}
		return fmt.Errorf("waiting for a probe slot: %w", cause)
	}
	return nil
}
