package server

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/server/internal/memo"
	"github.com/pointsman-dev/pointsman/server/telemetry"
)

// logAccess writes one line an RPC, and measures it.
func logAccess(access *accessLog, t *telemetry.Telemetry) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !strings.HasPrefix(info.FullMethod, servicePrefix) {
			return handler(ctx, req)
		}
		resp, err := handler(ctx, req)
		c := callOf(ctx)
		now, code := time.Now(), status.Code(err)
		took := now.Sub(c.arrived)
		t.RPCDone(ctx, info.FullMethod, code, took)
		access.write(ctx, now, info.FullMethod, c, code, took)
		return resp, err
	}
}

// accessLog writes the line of a call. What many calls have in common is put into JSON
// or text once and kept: it is most of the line.
type accessLog struct {
	log   *slog.Logger
	lines memo.Memo[line, slog.Handler]
}

// line is what many calls have in common. Its values come from the configuration, the
// tokens file and enumerations.
type line struct {
	method, caller, route, target string
	code                          codes.Code
	basis                         pointsmanv1.Basis
	reason                        pointsmanv1.FallbackReason
	origin                        pointsmanv1.Origin
}

func (a *accessLog) write(ctx context.Context, now time.Time, method string, c *call, code codes.Code, took time.Duration) {
	level := accessLevel(code)
	if !a.log.Enabled(ctx, level) {
		return
	}
	common := line{method: method, caller: c.caller, code: code}
	dec := c.decision
	if dec != nil {
		common.route, common.target = dec.Route.Name, dec.Target.Name
		common.basis, common.reason = dec.Basis, dec.Reason
		if dec.Learned != nil {
			common.origin = originToProto(dec.Learned.Origin)
		}
	}
	// Made by hand, since the log would look up a source line for it that nobody wants.
	record := slog.NewRecord(now, level, "rpc", 0)
	const most = 8
	var room [most]slog.Attr
	attrs := append(room[:0], slog.String("request_id", c.requestID), slog.Duration("duration", took))
	if dec != nil {
		attrs = append(attrs, slog.String("decision_id", dec.ID))
		attrs = appendStage(attrs, "queue", dec.Timing.Queue)
		attrs = appendStage(attrs, "wait", dec.Timing.Wait)
		attrs = appendStage(attrs, "probe", dec.Timing.Probe)
		attrs = appendStage(attrs, "artifact", dec.Timing.Artifact)
		attrs = appendStage(attrs, "score", dec.Timing.Score)
	}
	record.AddAttrs(attrs...)
	// A log that cannot be written has nowhere to say so.
	_ = a.lines.Get(common, a.begin).Handle(ctx, record)
}

// begin puts what many calls have in common before the rest.
func (a *accessLog) begin(common line) slog.Handler {
	attrs := []slog.Attr{slog.String("method", common.method), slog.String("code", common.code.String())}
	add := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	add("caller", common.caller)
	add("route", common.route)
	add("target", common.target)
	if common.basis != pointsmanv1.Basis_BASIS_UNSPECIFIED {
		add("basis", enumName(common.basis))
	}
	if common.reason != reasonNone {
		add("reason", enumName(common.reason))
	}
	if common.origin != pointsmanv1.Origin_ORIGIN_UNSPECIFIED {
		add("origin", enumName(common.origin))
	}
	return a.log.Handler().WithAttrs(attrs)
}

// accessLevel is the level of a call's line. An expected fallback is no warning: it is
// counted, not shouted.
func accessLevel(code codes.Code) slog.Level {
	if code == codes.Internal || code == codes.Unknown {
		return slog.LevelError
	}
	return slog.LevelInfo
}

// appendStage adds a stage's time, if the stage happened.
func appendStage(attrs []slog.Attr, name string, took *time.Duration) []slog.Attr {
	if took == nil {
		return attrs
	}
	return append(attrs, slog.Duration(name, *took))
}
