package lexical

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pointsman-dev/pointsman/probe"
)

// Shape returns the shape of every extraction: one layer.
func Shape() probe.Shape { return probe.Shape{Layers: 1, HiddenSize: Dim} }

// Probe encodes tasks on the CPU, where probe.VLLM asks a server. It is safe for
// concurrent use and needs no closing.
type Probe struct {
	maxInFlight int64
	inFlight    atomic.Int64
	typical     atomic.Int64 // nanoseconds; 0: none yet
	lastSuccess atomic.Int64 // Unix nanoseconds; 0: none yet
}

// New returns a probe that encodes at most maxInFlight tasks at once. One more is
// refused, not queued: the work takes less time than a place in a queue is worth,
// and there is no sense in more of it than processors for long.
func New(maxInFlight int) (*Probe, error) {
	if maxInFlight < 1 {
		return nil, fmt.Errorf("lexical probe: max in flight is %d, want 1 or more", maxInFlight)
	}
	return &Probe{maxInFlight: int64(maxInFlight)}, nil
}

// Extract encodes the task of req; its salt means nothing here. Tokens are pieces,
// and HTTP is the time the encoding took. It fails with the cause of ctx if that
// has ended, with probe.ErrOverloaded when too much is under way, and with
// probe.ErrArtifact when another shape is wanted than the encoder has.
func (p *Probe) Extract(ctx context.Context, req probe.Request) (probe.Extraction, error) {
	if ctx.Err() != nil {
		return probe.Extraction{}, fmt.Errorf("lexical probe: %w", context.Cause(ctx))
	}
	if req.Shape != (probe.Shape{}) && req.Shape != Shape() {
		return probe.Extraction{}, fmt.Errorf("%w: %d layers of %d values are wanted, the encoder has 1 of %d",
			probe.ErrArtifact, req.Shape.Layers, req.Shape.HiddenSize, Dim)
	}
	defer p.inFlight.Add(-1)
	if p.inFlight.Add(1) > p.maxInFlight {
		return probe.Extraction{}, fmt.Errorf("%w: %d tasks are being encoded", probe.ErrOverloaded, p.maxInFlight)
	}
	start := time.Now()
	values, pieces := Encode(req.Task)
	took := max(time.Since(start), 1) // a stage that happened took time, however coarse the clock
	p.note(start.Add(took), took)
	return probe.Extraction{
		Features: probe.Features{Values: values, Shape: Shape(), Tokens: pieces},
		HTTP:     took,
	}, nil
}

// typicalWeight is the part of a new duration in the typical one: about the last
// ten count, as one long text should not change much.
const typicalWeight = 10

func (p *Probe) note(now time.Time, took time.Duration) {
	p.lastSuccess.Store(now.UnixNano())
	// Two at once may lose one of their updates; an average survives that.
	old := p.typical.Load()
	if old == 0 {
		old = int64(took)
	}
	p.typical.Store(old + (int64(took)-old)/typicalWeight)
}

// Status says that the probe is ready, as it always is, and how busy.
func (p *Probe) Status() probe.Status {
	status := probe.Status{
		State:    probe.StateReady,
		InFlight: int(min(p.inFlight.Load(), p.maxInFlight)), // refused ones count for a moment
		Capacity: int(p.maxInFlight),
		Typical:  time.Duration(p.typical.Load()),
	}
	if last := p.lastSuccess.Load(); last != 0 {
		status.LastSuccess = time.Unix(0, last)
	}
	return status
}
