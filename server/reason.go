package server

import (
	"context"
	"errors"

	"github.com/pointsman-dev/pointsman/cache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe"
)

// Short names for the reasons of a fallback.
const (
	reasonNone             = pointsmanv1.FallbackReason_FALLBACK_REASON_UNSPECIFIED
	reasonNoTaskText       = pointsmanv1.FallbackReason_FALLBACK_REASON_NO_TASK_TEXT
	reasonTaskTooLarge     = pointsmanv1.FallbackReason_FALLBACK_REASON_TASK_TOO_LARGE
	reasonDeadline         = pointsmanv1.FallbackReason_FALLBACK_REASON_DEADLINE
	reasonOverloaded       = pointsmanv1.FallbackReason_FALLBACK_REASON_OVERLOADED
	reasonCircuitOpen      = pointsmanv1.FallbackReason_FALLBACK_REASON_CIRCUIT_OPEN
	reasonNotCached        = pointsmanv1.FallbackReason_FALLBACK_REASON_NOT_CACHED
	reasonProbeTimeout     = pointsmanv1.FallbackReason_FALLBACK_REASON_PROBE_TIMEOUT
	reasonProbeUnavailable = pointsmanv1.FallbackReason_FALLBACK_REASON_PROBE_UNAVAILABLE
	reasonProbeProtocol    = pointsmanv1.FallbackReason_FALLBACK_REASON_PROBE_PROTOCOL
	reasonProbeRejected    = pointsmanv1.FallbackReason_FALLBACK_REASON_PROBE_REJECTED
	reasonProbeArtifact    = pointsmanv1.FallbackReason_FALLBACK_REASON_PROBE_ARTIFACT
	reasonScoringFailed    = pointsmanv1.FallbackReason_FALLBACK_REASON_SCORING_FAILED
)

// reasonTable says which reason a failure becomes. The first entry that the
// error matches holds: a probe's own time-out also is a DeadlineExceeded.
var reasonTable = []struct {
	err    error
	reason pointsmanv1.FallbackReason
}{
	{probe.ErrOverloaded, reasonOverloaded},
	{probe.ErrCircuitOpen, reasonCircuitOpen},
	{probe.ErrTimeout, reasonProbeTimeout},
	{probe.ErrUnavailable, reasonProbeUnavailable},
	{probe.ErrProtocol, reasonProbeProtocol},
	{probe.ErrRejected, reasonProbeRejected},
	{probe.ErrArtifact, reasonProbeArtifact},
	{probe.ErrClosed, reasonProbeUnavailable},
	{cache.ErrNotCached, reasonNotCached},
	// Only a deadline ever keeps the ladder from starting a computation.
	{cache.ErrNotStarted, reasonDeadline},
	{cache.ErrWaitTimeout, reasonDeadline},
	{cache.ErrComputeTimeout, reasonDeadline},
	{context.DeadlineExceeded, reasonDeadline},
}

// reasonOf returns the reason a failure becomes. What no entry names is a
// failure to score.
func reasonOf(err error) pointsmanv1.FallbackReason {
	for _, row := range reasonTable {
		if errors.Is(err, row.err) {
			return row.reason
		}
	}
	return reasonScoringFailed
}
