package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pointsman-dev/pointsman/cache"
)

// Sizes of the cache's enumerations.
const (
	cacheLayers   = int(cache.LayerShared) + 1
	cacheOutcomes = int(cache.Failed) + 1
	cacheStages   = int(cache.StageCompute) + 1
	cacheEvents   = int(cache.StoreDropped) + 1
)

// eventJoined is counted for every call that waits for another's computation.
const eventJoined = "joined"

// cacheObserver shows what happens inside the ladder.
type cacheObserver struct {
	t *Telemetry
	// seen are the events of lookups, made once.
	seen   [cacheLayers][cacheOutcomes][]trace.EventOption
	stages [cacheStages][outcomeCount]labels
	spans  [cacheStages]string
	events [cacheEvents]labels
	joined labels
}

// CacheObserver returns the observer of a cache ladder.
func (t *Telemetry) CacheObserver() cache.Observer {
	o := &cacheObserver{
		t:      t,
		joined: newLabels(labelEvent, eventJoined),
		spans: [cacheStages]string{
			cache.StageWait: spanCacheWait, cache.StageLease: spanCacheLease, cache.StageCompute: spanCacheCompute,
		},
	}
	for layer := range cacheLayers {
		for found := range cacheOutcomes {
			layerName, foundName := cache.Layer(layer).String(), cache.Outcome(found).String()
			o.seen[layer][found] = []trace.EventOption{trace.WithAttributes(
				attrCacheLayer.String(layerName), attrCacheOutcome.String(foundName))}
		}
	}
	for stage := range cacheStages {
		for how := range outcomeCount {
			o.stages[stage][how] = newLabels(labelStage, cache.Stage(stage).String(), labelOutcome, how.String())
		}
	}
	for event := range cacheEvents {
		o.events[event] = newLabels(labelEvent, cache.Event(event).String())
	}
	return o
}

// Lookup implements [cache.Observer]. A look takes no span, since most take less than
// a span would; it is an event of the span it happened in.
func (o *cacheObserver) Lookup(ctx context.Context, layer cache.Layer, found cache.Outcome) {
	o.t.lookups[layer][found].Add(1)
	if !o.t.tracing {
		return
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent(eventLookup, o.seen[layer][found]...)
	}
}

// Stage implements [cache.Observer].
func (o *cacheObserver) Stage(ctx context.Context, stage cache.Stage) (context.Context, func(error)) {
	began := time.Now()
	ctx, span := o.t.start(ctx, o.spans[stage], nil)
	if stage == cache.StageLease && span != nil {
		ctx = context.WithValue(ctx, waitingKey{}, true)
	}
	return ctx, func(err error) {
		how := outcomeOf(err)
		o.t.in.cacheTime.Record(ctx, time.Since(began).Seconds(), o.stages[stage][how].record...)
		end(span, err, how)
	}
}

// Joined implements [cache.Observer]: the waiting call's span links to the one whose
// computation it waits for, which may belong to another trace.
func (o *cacheObserver) Joined(ctx, computing context.Context) {
	o.t.in.cacheEvents.Add(ctx, 1, o.joined.add...)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		if other := trace.SpanContextFromContext(computing); other.IsValid() {
			span.AddLink(trace.Link{SpanContext: other})
		}
	}
}

// PanicRecovered implements [cache.Observer]. The value may quote a task, so only the
// stack is told.
func (o *cacheObserver) PanicRecovered(ctx context.Context, _ any, stack []byte) {
	o.t.Panicked(ctx, "cache")
	o.t.log.ErrorContext(ctx, "a computation panicked", "stack", string(stack))
}

// Count implements [cache.Observer].
func (o *cacheObserver) Count(ctx context.Context, event cache.Event) {
	o.t.in.cacheEvents.Add(ctx, 1, o.events[event].add...)
}
