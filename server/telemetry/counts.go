package telemetry

import (
	"context"
	"time"
)

// RecordFate is what became of a decision that was to be recorded.
type RecordFate string

// The fates.
const (
	RecordWritten RecordFate = "written"
	RecordDropped RecordFate = "dropped" // the queue was full
	RecordFailed  RecordFate = "failed"  // the file could not be written
)

// Recorded counts decisions of the decision record.
func (t *Telemetry) Recorded(fate RecordFate, decisions int) {
	t.in.record.Add(context.Background(), int64(decisions), t.records.get(string(fate), recordLabels).add...)
}

func recordLabels(fate string) labels { return newLabels(labelOutcome, fate) }

type redisKey struct {
	operation string
	outcome   outcome
}

// RedisDone measures an exchange with Redis. operation is one of a few constants.
func (t *Telemetry) RedisDone(ctx context.Context, operation string, took time.Duration, err error) {
	t.in.redisTime.Record(ctx, took.Seconds(), t.redis.get(redisKey{operation, outcomeOf(err)}, redisLabels).record...)
}

func redisLabels(k redisKey) labels {
	return newLabels(labelOperation, k.operation, labelOutcome, k.outcome.String())
}
