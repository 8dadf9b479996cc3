package telemetry

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// Stage is a part of a decision that is worth a span.
type Stage uint8

// The stages of a decision that happen outside of the cache.
const (
	StageProbe  Stage = iota + 1 // task to features, from the queue to the pooled artifact
	StageScore                   // features to probabilities
	StagePolicy                  // probabilities to a target
)

// Decision is what is shown of a decision. All of it is from the configuration, an
// enumeration or a number.
type Decision struct {
	ID, RequestID string
	Route, Target string
	Tier          pointsmanv1.Tier
	Basis         pointsmanv1.Basis
	Reason        pointsmanv1.FallbackReason
	Origin        pointsmanv1.Origin
	// Shadow is the target that would have been chosen; empty outside of shadow mode.
	Shadow string
	Took   time.Duration
	// TradeOff is the one that was used: a tolerance, or else a quality weight.
	TradeOff    float64
	IsTolerance bool
	// The rest is there if something was learned.
	Learned    bool
	Confidence *float64
	Margin     float64
	Digest     string
	Tokens     int
}

type decisionKey struct {
	route, target string
	tier          pointsmanv1.Tier
	basis         pointsmanv1.Basis
	reason        pointsmanv1.FallbackReason
	origin        pointsmanv1.Origin
}

type (
	headKey   struct{ route, head string }
	shadowKey struct{ route, target, shadow string }
)

// Decided counts a decision and puts it on the call's span. ctx is best that of
// [Telemetry.Measuring].
func (t *Telemetry) Decided(ctx context.Context, d *Decision) {
	key := decisionKey{route: d.Route, target: d.Target, tier: d.Tier, basis: d.Basis, reason: d.Reason, origin: d.Origin}
	labels := t.decisions.Get(key, newDecisionLabels)
	labels.Add(1)
	t.in.decideTime.Record(ctx, d.Took.Seconds(), labels.origin.record...)
	if d.Shadow != "" {
		t.in.shadow.Add(ctx, 1, t.shadows.Get(shadowKey{d.Route, d.Target, d.Shadow}, shadowLabels).add...)
	}
	if d.Learned {
		t.in.margin.Record(ctx, d.Margin, labels.route.record...)
		if d.Confidence != nil {
			t.in.confidence.Record(ctx, *d.Confidence, labels.route.record...)
		}
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(decisionAttributes(d)...)
	}
}

// Predicted records a head's mean probability.
func (t *Telemetry) Predicted(ctx context.Context, route, head string, probability float64) {
	t.in.probability.Record(ctx, probability, t.heads.Get(headKey{route, head}, headLabels).record...)
}

// decisionLabels are the labels of a decision's measurements, and the count of such
// decisions.
type decisionLabels struct {
	tally
	origin, route labels
}

func newDecisionLabels(k decisionKey) *decisionLabels {
	return &decisionLabels{
		tally: tally{labels: newLabels(
			labelRoute, k.route, labelTarget, k.target, labelTier, labelOf(k.tier),
			labelBasis, labelOf(k.basis), labelOrigin, labelOf(k.origin), labelReason, labelOf(k.reason))},
		origin: newLabels(labelRoute, k.route, labelOrigin, labelOf(k.origin)),
		route:  newLabels(labelRoute, k.route),
	}
}

func headLabels(k headKey) labels { return newLabels(labelRoute, k.route, labelHead, k.head) }

func shadowLabels(k shadowKey) labels {
	return newLabels(
		labelRoute, k.route, labelTarget, k.target, labelShadow, k.shadow,
		labelAgrees, strconv.FormatBool(k.target == k.shadow))
}

// decisionAttributes are the span attributes that say what was decided and why.
func decisionAttributes(d *Decision) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attrDecisionID.String(d.ID),
		attrRequestID.String(d.RequestID),
		attrRoute.String(d.Route),
		attrTarget.String(d.Target),
		attrTier.String(labelOf(d.Tier)),
		attrBasis.String(labelOf(d.Basis)),
	}
	if d.Reason != 0 {
		attrs = append(attrs, attrReason.String(EnumName(d.Reason)))
	}
	if d.Shadow != "" {
		attrs = append(attrs, attrShadow.String(d.Shadow))
	}
	if d.IsTolerance {
		attrs = append(attrs, attrTolerance.Float64(d.TradeOff))
	} else {
		attrs = append(attrs, attrWeight.Float64(d.TradeOff))
	}
	if !d.Learned {
		return attrs
	}
	attrs = append(attrs,
		attrOrigin.String(labelOf(d.Origin)),
		attrMargin.Float64(d.Margin),
		attrDigest.String(d.Digest),
		attrTokens.Int(d.Tokens),
	)
	if d.Confidence != nil {
		attrs = append(attrs, attrConfidence.Float64(*d.Confidence))
	}
	return attrs
}

// DecisionStage begins a stage of a decision. What happens within gets the ctx; the
// func ends it.
func (t *Telemetry) DecisionStage(ctx context.Context, stage Stage) (context.Context, func(error)) {
	name := spanPolicy
	switch stage {
	case StageProbe:
		name = spanProbe
	case StageScore:
		name = spanScore
	case StagePolicy:
	}
	ctx, span := t.start(ctx, name, nil)
	if stage == StageScore {
		began := time.Now()
		return ctx, func(err error) {
			how := outcomeOf(err)
			t.in.scoreTime.Record(ctx, time.Since(began).Seconds(), t.scored[how].record...)
			end(span, err, how)
		}
	}
	if span == nil {
		return ctx, nothing
	}
	return ctx, func(err error) { end(span, err, outcomeOf(err)) }
}

// Panicked counts a panic that was survived. where is one of a few constants.
func (t *Telemetry) Panicked(ctx context.Context, where string) {
	t.in.panics.Add(ctx, 1, t.panicked.Get(where, panicLabels).add...)
}

func panicLabels(where string) labels { return newLabels(labelWhere, where) }
