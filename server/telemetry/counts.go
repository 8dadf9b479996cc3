package telemetry

import "context"

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
	t.in.record.Add(context.Background(), int64(decisions), t.records.Get(string(fate), recordLabels).add...)
}

func recordLabels(fate string) labels { return newLabels(labelOutcome, fate) }
