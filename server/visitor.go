package server

import (
	"context"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// maxRefused is how many calls of a connection may be refused before it is closed, if
// none was ever let in. It bounds what refused calls hold, a KiB each, to 64 MiB for
// the 1024 connections that are allowed by default.
const maxRefused = 64

// visitor is a connection as the doorman knows it.
type visitor struct {
	conn net.Conn // nil: not known
	// leave gives back what the connection's calls hold.
	leave   context.CancelFunc
	known   atomic.Bool // one of its calls was let in
	refused atomic.Int32
}

type visitorKey struct{}

// visitorOf returns whose call it is; nil without a [visitors].
func visitorOf(ctx context.Context) *visitor {
	v, _ := ctx.Value(visitorKey{}).(*visitor)
	return v
}

// letIn notes that a call was let in.
func (v *visitor) letIn() {
	if v != nil && !v.known.Load() {
		v.known.Store(true)
	}
}

// refuse notes that a call was not, and closes the connection of somebody who goes on
// asking. One that others share with him, behind a proxy, is left.
func (v *visitor) refuse() {
	if v != nil && v.refused.Add(1) >= maxRefused && !v.known.Load() && v.conn != nil {
		_ = v.conn.Close() // it may be gone already
	}
}

// visitors gives each connection a ctx of its own, which ends with it. grpc-go does not
// cancel the ctx of a call that its tap refused, so that a stranger who sends a
// grpc-timeout of years leaves a timer of as many years with each call. With the
// connection's ctx those end too. It implements [stats.Handler], which sees every call
// and costs each some microseconds, so it is used only where calls are refused.
type visitors struct{}

// TagConn implements [stats.Handler].
func (visitors) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	v := &visitor{leave: cancel}
	if addr, ok := info.RemoteAddr.(callerAddr); ok {
		v.conn = addr.conn
	}
	return context.WithValue(ctx, visitorKey{}, v)
}

// HandleConn implements [stats.Handler].
func (visitors) HandleConn(ctx context.Context, event stats.ConnStats) {
	if _, over := event.(*stats.ConnEnd); over {
		visitorOf(ctx).leave()
	}
}

// TagRPC implements [stats.Handler].
func (visitors) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements [stats.Handler].
func (visitors) HandleRPC(context.Context, stats.RPCStats) {}

// callerAddr is a caller's address that leads back to the connection: grpc-go hands on
// nothing else of it.
type callerAddr struct {
	net.Addr

	conn net.Conn
}
