package server

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

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
		logAccess(&accessLog{log: log}, t),
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
		c := &call{id: newID(), arrived: time.Now(), caller: callerOf(ctx).name}
		c.requestID = requestID(metadata.ValueFromIncomingContext(ctx, requestIDHeader), c.id)
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
