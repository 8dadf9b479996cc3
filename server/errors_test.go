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

// TestEveryEnumValueHasAShortName keeps the prefixes in step with the contract.
func TestEveryEnumValueHasAShortName(t *testing.T) {
	enums := pointsmanv1.File_pointsman_v1_decision_proto.Enums()
	for i := range enums.Len() {
		e := enums.Get(i)
		prefix, ok := enumPrefixes[e.Name()]
		if !ok {
			continue // never written by its short name
		}
		for j := range e.Values().Len() {
			if name := string(e.Values().Get(j).Name()); !strings.HasPrefix(name, prefix) {
				t.Errorf("%s does not begin with %s", name, prefix)
			}
		}
	}
}
