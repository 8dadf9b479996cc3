package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/rediscache"
)

// redisObserver measures exchanges with Redis and tells when it comes and goes.
type redisObserver struct{ t *Telemetry }

// RedisObserver returns the observer of the shared cache's Redis.
func (t *Telemetry) RedisObserver() rediscache.Observer { return redisObserver{t} }

type redisKey struct {
	operation string
	outcome   outcome
}

// Exchange implements [rediscache.Observer].
func (o redisObserver) Exchange(op string, took time.Duration, err error) {
	l := o.t.redis.Get(redisKey{op, outcomeOf(err)}, redisLabels)
	o.t.in.redisTime.Record(context.Background(), took.Seconds(), l.record...)
}

func redisLabels(k redisKey) labels {
	return newLabels(labelOperation, k.operation, labelOutcome, k.outcome.String())
}

// StateChanged implements [rediscache.Observer].
func (o redisObserver) StateChanged(status rediscache.Status) {
	if status.Ready {
		o.t.log.Info("the shared cache is in use")
		return
	}
	o.t.log.Warn("the shared cache is not in use", "error", status.Err)
}

// tracedLayer gives the exchanges that an answer waits for spans of their own. What is
// stored or released in the background has none.
type tracedLayer struct {
	cache.SharedLayer

	t *Telemetry
}

// SharedLayer returns a layer whose exchanges are seen in traces.
func (t *Telemetry) SharedLayer(next cache.SharedLayer) cache.SharedLayer {
	if !t.tracing {
		return next
	}
	return tracedLayer{SharedLayer: next, t: t}
}

// redisSpan are the options of the spans of exchanges.
var redisSpan = spanOptions(trace.SpanKindClient, attrDBSystem.String("redis"))

// Read implements [cache.SharedLayer].
func (l tracedLayer) Read(ctx context.Context, key cache.Key) (cache.Stored, error) {
	ctx, span := l.t.start(ctx, spanRedisRead, redisSpan)
	stored, err := l.SharedLayer.Read(ctx, key)
	end(span, err, outcomeOf(err))
	return stored, err
}

// Claim implements [cache.SharedLayer]. One who waits for another's lease claims again
// and again; the span of the waiting stands for all of these.
func (l tracedLayer) Claim(ctx context.Context, lease cache.Lease, unfit []byte) (cache.Claim, error) {
	if ctx.Value(waitingKey{}) != nil {
		return l.SharedLayer.Claim(ctx, lease, unfit)
	}
	ctx, span := l.t.start(ctx, spanRedisClaim, redisSpan)
	claim, err := l.SharedLayer.Claim(ctx, lease, unfit)
	end(span, err, outcomeOf(err))
	return claim, err
}

// waitingKey marks the ctx of those who wait for a lease.
type waitingKey struct{}
