package probe

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

// health remembers how the last extractions went.
type health struct {
	mu            sync.Mutex
	lastError     error
	lastSuccess   time.Time
	typical       time.Duration
	ejection      Breaker // when, and for how long, a group passes the endpoint over
	failures      int     // in a row, of any kind that is not the task's fault
	ejectedUntil  time.Time
	removalFailed bool // said in the log, and not put right since
}

// typicalWeight is the weight of the newest extraction in the typical time: after ten others, a third of an old value
// is left, so that one slow extraction does not show for long, nor hide the rest.
const typicalWeight = 0.1

// note records a sent extraction. A refusal of one task says nothing about the probe, and being closed neither.
func (h *health) note(took time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.lastError, h.lastSuccess = nil, time.Now()
		h.failures, h.ejectedUntil = 0, time.Time{}
		if h.typical == 0 {
			h.typical = took
		}
		h.typical += time.Duration(typicalWeight * float64(took-h.typical))
	case errors.Is(err, ErrRejected), errors.Is(err, ErrClosed), errors.Is(err, ErrCircuitOpen):
	default:
		h.lastError = err
		h.failures++
		if h.failures >= h.ejection.Failures {
			h.ejectedUntil = time.Now().Add(h.ejection.OpenFor)
		}
	}
}

// ejected says whether the endpoint failed so often in a row that another should be asked. The breaker looks only at
// whether vLLM answers; this also at what it answers, since an endpoint that fails fast has the least work. After its
// time one more failure ejects it again.
func (h *health) ejected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.ejectedUntil.IsZero() && time.Now().Before(h.ejectedUntil)
}

// noteRemoval logs that artifacts cannot be removed, once until it works again: every one that stays holds a prompt.
func (h *health) noteRemoval(log *slog.Logger, err error) {
	h.mu.Lock()
	first := err != nil && !h.removalFailed
	h.removalFailed = err != nil
	h.mu.Unlock()
	if first {
		log.Warn("cannot remove an artifact or its lock; further failures are only counted", "error", err)
	}
}

func (h *health) status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Status{Typical: h.typical, LastSuccess: h.lastSuccess}
	if h.lastError != nil {
		s.State, s.LastError = StateDegraded, h.lastError.Error()
	}
	return s
}
