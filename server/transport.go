package server

import (
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// Limits of the gRPC transport that nobody has a reason to change.
const (
	// maxHeaderBytes holds a token, a trace and baggage; grpc-go's own limit is 16 MB.
	maxHeaderBytes = 64 << 10
	// bufferBytes is what an idle connection keeps for reading. Most messages fit.
	bufferBytes = 8 << 10
	// deadPeerAfter and deadPeerWait find callers that vanished without a word.
	deadPeerAfter = time.Minute
	deadPeerWait  = 20 * time.Second
	// ageGrace is what calls under way get when their connection has grown too old.
	ageGrace = time.Minute
	// streamWorkers is how many goroutines wait for calls. A goroutine made for one call
	// spends a tenth of a cached answer's time on growing its stack. While all are busy,
	// as with calls that wait for their probe, further calls get goroutines of their own.
	streamWorkers = 128
)

// buildGRPC makes the gRPC server and registers what it serves.
func (s *Server) buildGRPC(secure bool) {
	c := s.cfg.GRPC
	opts := []grpc.ServerOption{
		grpc.InTapHandle(s.door.enter),
		grpc.ForceServerCodecV2(newTolerantCodec()),
		grpc.ConnectionTimeout(time.Duration(c.Connections.Handshake)),
		grpc.MaxRecvMsgSize(int(c.MaxMessageBytes)),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(uint32(c.Connections.MaxStreams)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: time.Duration(c.Connections.MinPing),
			// Gateways keep a connection warm while they wait for work.
			PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle:     time.Duration(c.Connections.MaxIdle),
			MaxConnectionAge:      time.Duration(c.Connections.MaxAge),
			MaxConnectionAgeGrace: ageGrace,
			Time:                  deadPeerAfter,
			Timeout:               deadPeerWait,
		}),
		grpc.ReadBufferSize(bufferBytes),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ChainUnaryInterceptor(interceptors(s.log, s.telemetry, DeadlineMargin(c.DeadlineMargin))...),
	}
	if c.Auth != nil {
		opts = append(opts, grpc.StatsHandler(visitors{}))
	}
	if handler := s.telemetry.RPCHandler(tracedMethods()); handler != nil {
		opts = append(opts, grpc.StatsHandler(handler))
	}
	if secure {
		opts = append(opts, grpc.Creds(s.door.certificates.credentials()))
	}
	s.grpc = grpc.NewServer(opts...)
	s.grpc.RegisterService(
		refusingMalformed(pointsmanv1.DecisionService_ServiceDesc),
		&service{decider: s.decider},
	)
	s.health = health.NewServer()
	if c.Health {
		healthv1.RegisterHealthServer(s.grpc, s.health)
	}
	for _, name := range s.readinessNames() {
		s.health.SetServingStatus(name, healthv1.HealthCheckResponse_NOT_SERVING)
	}
	s.health.SetServingStatus(healthLiveness, healthv1.HealthCheckResponse_SERVING)
	if c.Reflection {
		reflection.Register(s.grpc)
	}
}

// limitConnections closes the connections beyond the limit at once: a caller learns
// it without waiting, and a flood costs no memory.
func limitConnections(l net.Listener, limit int) net.Listener {
	return &limitedListener{Listener: l, limit: int64(limit)}
}

type limitedListener struct {
	net.Listener

	limit int64
	held  atomic.Int64
}

// Accept implements [net.Listener].
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.held.Add(1) <= l.limit {
			return &limitedConn{Conn: conn, held: &l.held}, nil
		}
		l.held.Add(-1)
		_ = conn.Close() // nothing was read, nothing is owed
	}
}

type limitedConn struct {
	net.Conn

	held   *atomic.Int64
	closed atomic.Bool
}

// RemoteAddr implements [net.Conn].
func (c *limitedConn) RemoteAddr() net.Addr { return callerAddr{Addr: c.Conn.RemoteAddr(), conn: c} }

// Close implements [net.Conn].
func (c *limitedConn) Close() error {
	if !c.closed.Swap(true) {
		c.held.Add(-1)
	}
	return c.Conn.Close()
}
