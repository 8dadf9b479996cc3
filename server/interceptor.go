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
)

// requestIDHeader carries the request id in both directions.
const requestIDHeader = "x-request-id"

// servicePrefix begins the full method of every RPC of ours. Health and reflection
// calls are not logged.
const servicePrefix = "/pointsman."

// interceptors returns what stands around every unary call, outermost first.
func interceptors(log *slog.Logger, margin DeadlineMargin) []grpc.UnaryServerInterceptor {
	return []grpc.UnaryServerInterceptor{
		recoverPanic(log),
		identify(),
		logAccess(log),
		keepDeadline(margin),
	}
}

// recoverPanic answers INTERNAL for a panic. Decisions do not come here: they fall
// back by themselves.
func recoverPanic(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		defer func() {
			if value := recover(); value != nil {
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

// identify begins the call: its id, its time of arrival. The id goes back in the
// trailer.
func identify() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !strings.HasPrefix(info.FullMethod, servicePrefix) {
			return handler(ctx, req)
		}
		c := &call{
			requestID: requestID(metadata.ValueFromIncomingContext(ctx, requestIDHeader)),
			arrived:   time.Now(),
			caller:    callerOf(ctx).name,
		}
		// It fails only where there is no stream to answer on, as in a test.
		_ = grpc.SetTrailer(ctx, metadata.Pairs(requestIDHeader, c.requestID))
		return handler(withCall(ctx, c), req)
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

// logAccess writes one line an RPC.
func logAccess(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !strings.HasPrefix(info.FullMethod, servicePrefix) {
			return handler(ctx, req)
		}
		resp, err := handler(ctx, req)
		c := callOf(ctx)
		level, attrs := accessRecord(info.FullMethod, c, err)
		log.LogAttrs(ctx, level, "rpc", attrs...)
		return resp, err
	}
}

// accessRecord is what the access log says of a call. An expected fallback is no
// warning: it is counted, not shouted.
func accessRecord(method string, c *call, err error) (slog.Level, []slog.Attr) {
	code := status.Code(err)
	level := slog.LevelInfo
	if code == codes.Internal || code == codes.Unknown {
		level = slog.LevelError
	}
	const most = 17 // attributes of a decision
	attrs := make([]slog.Attr, 0, most)
	attrs = append(attrs,
		slog.String("method", method),
		slog.String("code", code.String()),
		slog.String("request_id", c.requestID),
		slog.Duration("duration", time.Since(c.arrived)),
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
		for _, stage := range []struct {
			name string
			took *time.Duration
		}{
			{"queue", dec.Timing.Queue},
			{"wait", dec.Timing.Wait},
			{"probe", dec.Timing.Probe},
			{"artifact", dec.Timing.Artifact},
			{"score", dec.Timing.Score},
		} {
			if stage.took != nil {
				attrs = append(attrs, slog.Duration(stage.name, *stage.took))
			}
		}
	}
	return level, attrs
}
