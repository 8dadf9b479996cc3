package cache

import (
	"context"
	"fmt"
	"time"
)

// compute is the bottom rung: it computes the value, or refuses to when the call may not.
type compute[V any] struct {
	now      func() time.Time
	observer Observer
}

func (r *compute[V]) get(ctx context.Context, req request[V]) (Result[V], error) {
	if !req.mayCompute() {
		if ctx.Err() != nil {
			return Result[V]{}, left(ctx)
		}
		return Result[V]{}, req.refusal()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, req.opts.ComputeTimeout, ErrComputeTimeout)
	defer cancel()
	ctx, end := r.observer.Stage(ctx, StageCompute)
	// Deferred, so that the stage also ends when the computation panics.
	err := ErrPanicked
	defer func() { end(err) }()

	var value V
	value, err = req.compute(ctx)
	if err != nil {
		return Result[V]{}, causeOf(ctx, err)
	}
	// A value counts even if the context ended meanwhile: success beats cancellation.
	return Result[V]{Entry: Entry[V]{Value: value, Computed: r.now()}, Origin: Computed}, nil
}

// causeOf keeps an internal cancellation from surfacing as the caller's own: when ctx is over and err says no more than that, the
// cause is put in its place.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() == nil || err != ctx.Err() { //nolint:errorlint // a wrapped error says more than that, and is kept
		return err
	}
	return fmt.Errorf("compute: %w", context.Cause(ctx))
}
