package server

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/server/telemetry"
)

// servicePrefix begins the full method of every RPC of ours. Health and reflection
// calls are not logged.
const servicePrefix = "/pointsman."

// interceptors returns what stands around every unary call, outermost first.
func interceptors(log *slog.Logger, t *telemetry.Telemetry, margin DeadlineMargin) []grpc.UnaryServerInterceptor {
	return []grpc.UnaryServerInterceptor{
		recoverPanic(log, t), // of the interceptors themselves
		identify(t),
		logAccess(log, t),
		recoverPanic(log, t), // of the handler, so that its call is logged and measured
		keepDeadline(margin),
	}
}

// recoverPanic answers INTERNAL for a panic. What panics while it learns does not come
// here: it falls back by itself.
func recoverPanic(log *slog.Logger, t *telemetry.Telemetry) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		defer func() {
			if value := recover(); value != nil {
				t.Panicked(ctx, "call")
				// The value is not logged: it may quote the request.
				log.ErrorContext(ctx, "a call panicked", "method", info.FullMethod, "stack", string(debug.Stack()))
				resp, err = nil, &callError{
					reason:  pointsmanv1.ErrorReason_ERROR_REASON_INTERNAL,
					message: "internal error; the server's log has it",
				}
			}
		}()
		return handler(ctx, req)
	}
}

// identify begins the call: its id, its time of arrival, its caller's trace. What is
// known of it at its end goes back in the trailers, also if it panics.
func identify(t *telemetry.Telemetry) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !strings.HasPrefix(info.FullMethod, servicePrefix) {
			return handler(ctx, req)
		}
		c := &call{
			requestID: requestID(metadata.ValueFromIncomingContext(ctx, requestIDHeader)),
			arrived:   time.Now(),
			caller:    callerOf(ctx).name,
		}
		// Once for all of them: gRPC copies what was set before each time. It fails only
		// where there is no stream to answer on, as in a test.
		defer func() { _ = grpc.SetTrailer(ctx, c.trailers()) }()
		return handler(withCall(t.Continue(ctx), c), req)
	}
}

// keepDeadline notes when the answer must leave to reach the caller in time.
func keepDeadline(margin DeadlineMargin) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if deadline, ok := ctx.Deadline(); ok {
			c := callOf(ctx)
			c.answerBy = margin.answerBy(c.arrived, deadline)
		}
		return handler(ctx, req)
	}
}

// logAccess writes one line an RPC, and measures it.
func logAccess(log *slog.Logger, t *telemetry.Telemetry) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !strings.HasPrefix(info.FullMethod, servicePrefix) {
			return handler(ctx, req)
		}
		resp, err := handler(ctx, req)
		c := callOf(ctx)
		now, code := time.Now(), status.Code(err)
		took := now.Sub(c.arrived)
		t.RPCDone(ctx, info.FullMethod, code, took)
		if level := accessLevel(code); log.Enabled(ctx, level) {
			// Made by hand, since the log would look up a source line for it that nobody
			// wants. A log that cannot be written has nowhere to say so.
			record := slog.NewRecord(now, level, "rpc", 0)
			addAccess(&record, info.FullMethod, c, code, took)
			_ = log.Handler().Handle(ctx, record)
		}
		return resp, err
	}
}

// accessLevel is the level of a call's line. An expected fallback is no warning: it is
// counted, not shouted.
func accessLevel(code codes.Code) slog.Level {
	if code == codes.Internal || code == codes.Unknown {
		return slog.LevelError
	}
	return slog.LevelInfo
}

// addAccess adds what the access log says of a call.
func addAccess(record *slog.Record, method string, c *call, code codes.Code, took time.Duration) {
	const most = 17 // attributes of a decision
	var room [most]slog.Attr
	attrs := append(room[:0],
		slog.String("method", method),
		slog.String("code", code.String()),
		slog.String("request_id", c.requestID),
		slog.Duration("duration", took),
	)
	if c.caller != "" {
		attrs = append(attrs, slog.String("caller", c.caller))
	}
	if dec := c.decision; dec != nil {
		attrs = append(attrs,
			slog.String("decision_id", dec.ID),
			slog.String("route", dec.Route.Name),
			slog.String("target", dec.Target.Name),
			slog.String("basis", enumName(dec.Basis)),
		)
		if dec.Reason != reasonNone {
			attrs = append(attrs, slog.String("reason", enumName(dec.Reason)))
		}
		if dec.Learned != nil {
			attrs = append(attrs, slog.String("origin", enumName(originToProto(dec.Learned.Origin))))
		}
		attrs = appendStage(attrs, "queue", dec.Timing.Queue)
		attrs = appendStage(attrs, "wait", dec.Timing.Wait)
		attrs = appendStage(attrs, "probe", dec.Timing.Probe)
		attrs = appendStage(attrs, "artifact", dec.Timing.Artifact)
		attrs = appendStage(attrs, "score", dec.Timing.Score)
	}
	record.AddAttrs(attrs...)
}

// appendStage adds a stage's time, if the stage happened.
func appendStage(attrs []slog.Attr, name string, took *time.Duration) []slog.Attr {
	if took == nil {
		return attrs
	}
	return append(attrs, slog.Duration(name, *took))
}
