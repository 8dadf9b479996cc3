package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pointsman-dev/pointsman/cache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe"
)

func TestEveryErrorReasonHasACode(t *testing.T) {
	for number, name := range pointsmanv1.ErrorReason_name {
		reason := pointsmanv1.ErrorReason(number)
		code, ok := codeTable[reason]
		if wanted := reason != pointsmanv1.ErrorReason_ERROR_REASON_UNSPECIFIED; ok != wanted {
			t.Errorf("%s: in the table is %v, want %v", name, ok, wanted)
		}
		if ok && code == codes.OK {
			t.Errorf("%s is OK", name)
		}
	}
}

func TestWhatIsNotKnownIsNotTold(t *testing.T) {
	st := status.Convert(asCallError(errors.New("open /secret/place: no such file")))
	if st.Code() != codes.Internal || strings.Contains(st.Message(), "secret") {
		t.Errorf("%v", st)
	}
}

func TestReasonsOfFailures(t *testing.T) {
	for _, c := range []struct {
		err  error
		want pointsmanv1.FallbackReason
	}{
		{probe.ErrOverloaded, reasonOverloaded},
		{probe.ErrCircuitOpen, reasonCircuitOpen},
		{fmt.Errorf("%w: %w", probe.ErrTimeout, context.DeadlineExceeded), reasonProbeTimeout},
		{probe.ErrUnavailable, reasonProbeUnavailable},
		{probe.ErrProtocol, reasonProbeProtocol},
		{probe.ErrRejected, reasonProbeRejected},
		{probe.ErrArtifact, reasonProbeArtifact},
		{probe.ErrClosed, reasonProbeUnavailable},
		{cache.ErrNotCached, reasonNotCached},
		{cache.ErrNotStarted, reasonDeadline},
		{cache.ErrWaitTimeout, reasonDeadline},
		{cache.ErrComputeTimeout, reasonDeadline},
		{context.DeadlineExceeded, reasonDeadline},
		{cache.ErrPanicked, reasonScoringFailed},
		{errors.New("anything else"), reasonScoringFailed},
	} {
		if got := reasonOf(fmt.Errorf("probing: %w", c.err)); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
