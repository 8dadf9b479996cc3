package probe

import (
	"context"
	"net/http"
	"time"
)

// Stage is one stretch of an extraction.
type Stage int

// The stages of an extraction, in their order.
const (
	StageQueue    Stage = iota // waiting for a slot
	StageHTTP                  // asking vLLM
	StageArtifact              // waiting for a free lock and a whole file
	StagePool                  // reading and pooling the file
)

// String returns the stage's name in lower case.
func (s Stage) String() string {
	names := [...]string{"queue", "http", "artifact", "pool"}
	if s < 0 || int(s) >= len(names) {
		return "unknown"
	}
	return names[s]
}

// Observer sees what happens inside a probe. Its methods are called on the request's path and must not block.
// Embed [NopObserver] to implement only some of them.
type Observer interface {
	// Stage is called when a stage begins; the returned function is called once, with the stage's error, when it
	// ends. Whatever the stage does runs under the returned context, so that spans nest.
	Stage(ctx context.Context, stage Stage) (context.Context, func(error))
	// Inject may add headers to the HTTP request, such as traceparent.
	Inject(ctx context.Context, header http.Header)
	// Artifact is called once for each artifact that was looked for, after its clean-up.
	Artifact(ctx context.Context, report ArtifactReport)
	// Breaker is called when the circuit breaker opens (StateDown), tries again (StateDegraded) or closes (StateReady).
	// It must not call the probe, which waits for it.
	Breaker(state State)
	// Swept is called after every background sweep.
	Swept(report SweepReport)
}

// ArtifactReport is what became of one artifact.
type ArtifactReport struct {
	Bytes  int64  // size of the file; 0: none was found
	DType  string // of the hidden states: BF16, F16 or F32; empty: not known
	Tokens int
	Locked bool // vLLM made a lock file
	Left   bool // artifact or lock could not be removed, or were left because the lock never came free
}

// SweepReport is what one background sweep did.
type SweepReport struct {
	Removed int           // files removed: artifacts and locks
	Held    int           // stale artifacts and locks left because their lock is held
	Foreign int           // artifacts and locks that no Pointsman asked for, and that were left
	Errors  int           // files, or the folder, that could not be looked at or removed
	Took    time.Duration // how long the sweep took
}

// NopObserver observes nothing.
type NopObserver struct{}

// Stage implements [Observer].
func (NopObserver) Stage(ctx context.Context, _ Stage) (context.Context, func(error)) {
	return ctx, func(error) {}
}

// Inject implements [Observer].
func (NopObserver) Inject(context.Context, http.Header) {}

// Artifact implements [Observer].
func (NopObserver) Artifact(context.Context, ArtifactReport) {}

// Breaker implements [Observer].
func (NopObserver) Breaker(State) {}

// Swept implements [Observer].
func (NopObserver) Swept(SweepReport) {}
