package server

import (
	"context"
	"log/slog"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/server/record"
	"github.com/pointsman-dev/pointsman/server/telemetry"
)

// Stage is a part of a decision that is worth a span.
type Stage = telemetry.Stage

// The stages of a decision that happen outside of the cache.
const (
	StageProbe  = telemetry.StageProbe
	StageScore  = telemetry.StageScore
	StagePolicy = telemetry.StagePolicy
)

// DecisionObserver is told of what happens in and to a decision.
type DecisionObserver interface {
	// Stage begins a stage. It returns the ctx for what happens within, and a
	// func that ends it.
	Stage(ctx context.Context, stage Stage) (context.Context, func(error))
	// Panicked is told where a decision panicked. The stack names code, never a
	// value, so that no task leaks.
	Panicked(ctx context.Context, route string, stack []byte)
	// FellBack is told of a failure on the way to a learned answer.
	FellBack(ctx context.Context, route string, reason pointsmanv1.FallbackReason, err error)
	// Decided is told of every decision that is answered. task is what it was about,
	// empty if that was not looked at; it must not be kept.
	Decided(ctx context.Context, dec *Decision, task string)
}

// observer shows decisions in traces, metrics, the log and the decision record.
type observer struct {
	telemetry *telemetry.Telemetry
	log       *slog.Logger
	// record is nil without a decision record.
	record *record.Writer
}

// Stage implements [DecisionObserver].
func (o *observer) Stage(ctx context.Context, stage Stage) (context.Context, func(error)) {
	return o.telemetry.DecisionStage(ctx, stage)
}

// Panicked implements [DecisionObserver].
func (o *observer) Panicked(ctx context.Context, route string, stack []byte) {
	o.telemetry.Panicked(ctx, "decision")
	o.log.ErrorContext(ctx, "a decision panicked", "route", route, "stack", string(stack))
}

// FellBack implements [DecisionObserver]. Only what an operator can mend is a warning;
// a caller's short deadline, a cold cache or a full gate is a metric.
func (o *observer) FellBack(ctx context.Context, route string, reason pointsmanv1.FallbackReason, err error) {
	level := slog.LevelWarn
	switch reason {
	case reasonDeadline, reasonNotCached, reasonOverloaded, reasonProbeRejected:
		level = slog.LevelDebug
	default:
	}
	o.log.LogAttrs(ctx, level, "a decision fell back",
		slog.String("route", route), slog.String("reason", enumName(reason)), slog.String("error", err.Error()))
}

// Decided implements [DecisionObserver].
func (o *observer) Decided(ctx context.Context, dec *Decision, task string) {
	shown := telemetry.Decision{
		ID:        dec.ID,
		RequestID: callOf(ctx).requestID,
		Route:     dec.Route.Name,
		Target:    dec.Target.Name,
		Tier:      dec.Target.Tier,
		Basis:     dec.Basis,
		Reason:    dec.Reason,
		Took:      dec.Timing.Total,
	}
	ctx = o.telemetry.Measuring(ctx)
	if dec.Shadow != nil {
		shown.Shadow = dec.Shadow.Name
	}
	if w, ok := dec.TradeOff.QualityWeight(); ok {
		shown.TradeOff = w
	} else if t, ok := dec.TradeOff.Tolerance(); ok {
		shown.TradeOff, shown.IsTolerance = t, true
	}
	if l := dec.Learned; l != nil {
		shown.Learned = true
		shown.Origin = originToProto(l.Origin)
		shown.Confidence, shown.Margin = l.Choice.Confidence, l.Choice.Margin
		shown.Digest, shown.Tokens = l.Scores.Digest, l.Scores.Tokens
		if dec.Basis != pointsmanv1.Basis_BASIS_BACKUP { // another checkpoint's would pass for drift of the route's own
			for i, target := range l.Targets {
				o.telemetry.Predicted(ctx, shown.Route, target.Head, l.Choice.Scores[i].Probability)
			}
			dec.Route.live.add(l)
		}
	}
	o.telemetry.Decided(ctx, &shown)
	if o.record != nil {
		o.record.Put(recordEntry(dec, shown.RequestID, o.record.Digest(task)))
	}
}
