package telemetry

import (
	"context"
	"errors"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/rediscache"
	"github.com/pointsman-dev/pointsman/probe"
)

// outcome is how a stage ended. It is a label and an error.type: a closed set.
type outcome uint8

// The outcomes.
const (
	outcomeOK outcome = iota
	outcomeOverloaded
	outcomeCircuitOpen
	outcomeTimeout
	outcomeUnavailable
	outcomeProtocol
	outcomeRejected
	outcomeArtifact
	outcomeClosed
	outcomeAbandoned
	outcomeDeadline
	outcomeCanceled
	outcomePanicked
	outcomeFailed // anything else
	outcomeCount
)

// String returns the outcome's name, in lower case.
func (o outcome) String() string {
	return [outcomeCount]string{
		"ok", "overloaded", "circuit_open", "timeout", "unavailable", "protocol", "rejected", "artifact",
		"closed", "abandoned", "deadline", "canceled", "panicked", "failed",
	}[o]
}

// outcomeTable says which outcome an error is. The first entry that the error
// matches holds: a probe's own time-out also is a DeadlineExceeded.
var outcomeTable = []struct {
	err     error
	outcome outcome
}{
	{probe.ErrOverloaded, outcomeOverloaded},
	{probe.ErrCircuitOpen, outcomeCircuitOpen},
	{probe.ErrTimeout, outcomeTimeout},
	{probe.ErrUnavailable, outcomeUnavailable},
	{probe.ErrProtocol, outcomeProtocol},
	{probe.ErrRejected, outcomeRejected},
	{probe.ErrArtifact, outcomeArtifact},
	{probe.ErrClosed, outcomeClosed},
	{rediscache.ErrUnavailable, outcomeCircuitOpen},
	{rediscache.ErrTimeout, outcomeTimeout},
	{rediscache.ErrConnect, outcomeUnavailable},
	{rediscache.ErrTLS, outcomeUnavailable},
	{rediscache.ErrAuth, outcomeRejected},
	{rediscache.ErrReply, outcomeProtocol},
	{cache.ErrWaitTimeout, outcomeTimeout},
	{cache.ErrClosed, outcomeClosed},
	{cache.ErrAbandoned, outcomeAbandoned},
	{cache.ErrPanicked, outcomePanicked},
	{cache.ErrComputeTimeout, outcomeDeadline},
	{context.DeadlineExceeded, outcomeDeadline},
	{context.Canceled, outcomeCanceled},
}

// outcomeOf returns how a stage that ended with err ended.
func outcomeOf(err error) outcome {
	if err == nil {
		return outcomeOK
	}
	for _, row := range outcomeTable {
		if errors.Is(err, row.err) {
			return row.outcome
		}
	}
	return outcomeFailed
}
