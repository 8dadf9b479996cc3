package cache

import "context"

// Observer is told what happens inside the ladder, for metrics, spans and logs. Its methods are called from many goroutines, some on
// the path of an answer, and must not block. Embed [NopObserver] to implement only some of them.
type Observer interface {
	// Lookup reports one look into a layer.
	Lookup(ctx context.Context, layer Layer, outcome Outcome)
	// Stage is called when a stage begins. What runs inside gets the returned context; the returned function is called at the end.
	Stage(ctx context.Context, stage Stage) (context.Context, func(error))
	// Joined reports that the call of ctx, which is that of the wait's stage, waits for a computation. computing is the computation's
	// context, which carries the values of the call that started it, such as its span: it is for linking, not for waiting.
	Joined(ctx, computing context.Context)
	// PanicRecovered reports a computation that panicked, or ended its goroutine (value nil). value may quote anything the
	// computation held, a task included; stack does not.
	PanicRecovered(ctx context.Context, value any, stack []byte)
	// Count reports something worth counting.
	Count(ctx context.Context, event Event)
}

// Layer is a cache of the ladder.
type Layer uint8

// The layers.
const (
	LayerLocal Layer = iota
	LayerShared
)

// String returns a short lower-case name, fit for a label.
func (l Layer) String() string { return [...]string{"local", "shared"}[l] }

// Outcome is what a look into a layer found.
type Outcome uint8

// The outcomes. All but Hit are misses to the call.
const (
	Hit    Outcome = iota
	Miss           // nothing there
	Old            // a value older than the call accepts
	Unfit          // something that is not a value of this key: foreign, damaged, forged
	Failed         // the layer did not answer
)

// String returns a short lower-case name, fit for a label.
func (o Outcome) String() string { return [...]string{"hit", "miss", "old", "unfit", "failed"}[o] }

// Stage is a part of a call that takes time.
type Stage uint8

// The stages.
const (
	StageWait    Stage = iota // waiting for a computation of this process that another call started
	StageLease                // waiting for a computation of another process
	StageCompute              // computing
)

// String returns a short lower-case name, fit for a span or a label.
func (s Stage) String() string { return [...]string{"wait", "lease", "compute"}[s] }

// Event is something worth counting.
type Event uint8

// The events.
const (
	TakenOver    Event = iota // another process's lease ended without a value, and this one took it
	LeaseLost                 // a lease ended while this process was computing under it
	StoreFailed               // a value was not stored
	StoreDropped              // a value was not stored because too many were waiting to be
)

// String returns a short lower-case name, fit for a label.
func (e Event) String() string {
	return [...]string{"taken_over", "lease_lost", "store_failed", "store_dropped"}[e]
}

// NopObserver observes nothing.
type NopObserver struct{}

// Lookup does nothing.
func (NopObserver) Lookup(context.Context, Layer, Outcome) {}

// Stage returns ctx and a function that does nothing.
func (NopObserver) Stage(ctx context.Context, _ Stage) (context.Context, func(error)) {
	return ctx, func(error) {}
}

// Joined does nothing.
func (NopObserver) Joined(context.Context, context.Context) {}

// PanicRecovered does nothing.
func (NopObserver) PanicRecovered(context.Context, any, []byte) {}

// Count does nothing.
func (NopObserver) Count(context.Context, Event) {}
