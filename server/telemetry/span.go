package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// nothing ends a stage that nobody looks at.
func nothing(error) {}

// Measuring returns the ctx to hand to several measurements of one call. Instruments
// look for the call's span, to keep it as an exemplar; a call's ctx is deep, and
// looking through all of it for nothing would cost more than the measurement.
func (t *Telemetry) Measuring(ctx context.Context) context.Context {
	if t.tracing && trace.SpanFromContext(ctx).IsRecording() {
		return ctx
	}
	return context.Background()
}

// start begins a span if it would be recorded, and returns nil otherwise: what is not
// sampled costs one look into the ctx. Every span has a parent, the call's.
func (t *Telemetry) start(ctx context.Context, name string, opts []trace.SpanStartOption) (context.Context, trace.Span) {
	if !t.tracing || !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, nil
	}
	return t.tracer.Start(ctx, name, opts...) //nolint:spancheck // whoever asked ends it
}

// end ends a span with how its stage ended.
func end(span trace.Span, err error, o outcome) {
	if span == nil {
		return
	}
	if err != nil {
		span.SetAttributes(attrErrorType.String(o.String()))
		// Our errors hold no text of a task; see the packages that make them.
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// spanOptions are the options of a span, made once for all of its kind.
func spanOptions(kind trace.SpanKind, attrs ...attribute.KeyValue) []trace.SpanStartOption {
	return []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(attrs...)}
}
