package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// room bounds how many bytes of artifacts may be in the folder, by estimate, since their size is known only once they
// are there. A folder that runs full can stop vLLM's engine.
type room struct {
	slots    *semaphore.Weighted // in bytes; first in, first out
	capacity int64

	mu            sync.Mutex
	tokensPerByte float64 // of the task's text
	bytesPerToken float64 // of the artifact; 0: none was seen yet
}

const (
	// templateTokens is what a chat template adds to a task, generously.
	templateTokens = 64
	// firstTokensPerByte is what is assumed before anything was seen: English takes a quarter, source code a third.
	firstTokensPerByte = 0.5
	// learnFrom is the shortest task that says something of text rather than of the template.
	learnFrom = 256
	// learnWeight lets the estimate rise at once and sink slowly: after fourteen shorter ones it is half way down.
	learnWeight = 0.05
	// widest is the size of a value as long as the artifacts' type is not known.
	widest = 4
)

func newRoom(capacity int64) *room {
	return &room{slots: semaphore.NewWeighted(capacity), capacity: capacity, tokensPerByte: firstTokensPerByte}
}

// estimate returns how many bytes the artifact of a request will have. Without a shape, and before any artifact was
// seen, it knows nothing and returns 0.
func (r *room) estimate(req Request) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	perToken := r.bytesPerToken
	if perToken == 0 {
		perToken = float64(req.Shape.Layers) * float64(req.Shape.HiddenSize) * widest
	}
	return int64((templateTokens + float64(len(req.Task))*r.tokensPerByte) * perToken)
}

// learn takes an artifact into account.
func (r *room) learn(taskBytes int, artifact ArtifactReport) {
	if artifact.Tokens <= 0 || artifact.Bytes <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytesPerToken = float64(artifact.Bytes) / float64(artifact.Tokens)
	if taskBytes >= learnFrom {
		seen := float64(artifact.Tokens) / float64(taskBytes)
		r.tokensPerByte = max(seen, r.tokensPerByte+learnWeight*(seen-r.tokensPerByte))
	}
}

// enter waits, at most for patience, until size bytes are free. The returned function gives them back.
func (r *room) enter(ctx context.Context, size int64, patience time.Duration) (leave func(), err error) {
	if size > r.capacity {
		return nil, fmt.Errorf("%w: the artifact, by estimate, is larger than max_outstanding_bytes", ErrOverloaded)
	}
	if r.slots.TryAcquire(size) {
		return func() { r.slots.Release(size) }, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errQueueTime)
	defer cancel()
	if err := r.slots.Acquire(ctx, size); err != nil {
		cause := context.Cause(ctx)
		if errors.Is(cause, errQueueTime) {
			return nil, fmt.Errorf("%w: no room for the artifact within %w (max_outstanding_bytes)", ErrOverloaded, cause)
		}
		return nil, fmt.Errorf("waiting for room for the artifact: %w", cause)
	}
	return func() { r.slots.Release(size) }, nil
}
