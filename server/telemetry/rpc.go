package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
)

// traceparent is the W3C header that carries a trace in gRPC metadata.
const traceparent = "traceparent"

type rpcKey struct {
	method string
	code   codes.Code
}

// RPCHandler returns what gives every call of the named methods a server span, or nil
// when nothing is traced. Others get none: health checks and reflection are noise, and
// what is no method at all is a name that a client made up.
func (t *Telemetry) RPCHandler(methods map[string]bool) stats.Handler {
	if !t.tracing {
		return nil
	}
	return otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.tracers),
		otelgrpc.WithPropagators(propagator()),
		// RPCDone measures; it costs less, and also when nothing is traced.
		otelgrpc.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool { return methods[info.FullMethodName] }),
	)
}

// Continue takes up the caller's trace where [Telemetry.RPCHandler] does not: nothing
// is recorded here, but the log and vLLM learn of it.
func (t *Telemetry) Continue(ctx context.Context) context.Context {
	if t.tracing || len(metadata.ValueFromIncomingContext(ctx, traceparent)) == 0 {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, incoming{ctx})
}

// incoming reads a call's metadata.
type incoming struct{ ctx context.Context } //nolint:containedctx // lives for one call of Extract

// Get implements [propagation.TextMapCarrier].
func (c incoming) Get(key string) string {
	if values := metadata.ValueFromIncomingContext(c.ctx, key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set implements [propagation.TextMapCarrier]; metadata that came in is not changed.
func (incoming) Set(string, string) {}

// Keys implements [propagation.TextMapCarrier]; W3C trace context asks for none.
func (incoming) Keys() []string { return nil }

// RPCDone measures a call that ended. method is one of ours.
func (t *Telemetry) RPCDone(ctx context.Context, method string, code codes.Code, took time.Duration) {
	t.in.rpcDuration.Record(t.Measuring(ctx), took.Seconds(), t.rpcs.Get(rpcKey{method, code}, rpcLabels).record...)
}

// rpcLabels names a method without its leading slash, as the conventions have it.
func rpcLabels(k rpcKey) labels {
	return newLabels(labelRPCMethod, k.method[1:], labelStatusCode, k.code.String())
}
