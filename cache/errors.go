package cache

import "errors"

var (
	// ErrNotCached answers [OnlyIfCached] when no cache holds an acceptable value.
	ErrNotCached = errors.New("cache: not cached")

	// ErrNotStarted answers a caller whose [Reach] forbids what it would have taken to get the value.
	ErrNotStarted = errors.New("cache: not started, the caller's reach forbids it")

	// ErrAbandoned is the cause (context.Cause) of a computation's context once all its callers have left. A computation that has
	// not yet committed itself to anything should return; one that has should go on, and its value is kept.
	ErrAbandoned = errors.New("cache: abandoned by all callers")

	// ErrPanicked answers every caller of a computation that panicked or ended its goroutine.
	ErrPanicked = errors.New("cache: computation panicked")

	// ErrComputeTimeout is the cause of a computation's context when its ComputeTimeout is over.
	ErrComputeTimeout = errors.New("cache: compute timeout is over")

	// ErrWaitTimeout answers when another process held the lease on computing the value for longer than any may.
	ErrWaitTimeout = errors.New("cache: waited too long for another process")

	// ErrClosed answers every Get after Close.
	ErrClosed = errors.New("cache: closed")
)
