package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/rediscache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/server/config"
	"github.com/pointsman-dev/pointsman/server/record"
	"github.com/pointsman-dev/pointsman/server/telemetry"
)

// Names of gRPC health, beside the overall one (empty) and the service's own.
const (
	healthLiveness  = "liveness"  // the process works
	healthReadiness = "readiness" // calls should be sent here
)

// Server is the whole program: built by [New], run by [Server.Serve].
type Server struct {
	cfg   *config.Config
	log   *slog.Logger
	level *slog.LevelVar
	// telemetry and record are the first to be made and the last to be closed.
	telemetry *telemetry.Telemetry
	record    *record.Writer // nil without a decision record
	probes    map[string]Prober
	redis     *rediscache.Cache // nil without a shared cache
	ladder    *cache.Ladder[Scores]
	decider   *Decider
	grpc      *grpc.Server
	health    *health.Server
	warnings  []string
	draining  atomic.Bool
}

// New builds the object graph, without binding a port. It reads the checkpoints
// and starts the probes' sweepers; [Server.Close] ends what it starts. Its errors
// name everything that is wrong.
//
// The log's level is the configuration's, and then whatever the admin port sets; the
// handler's own must let everything pass.
func New(cfg *config.Config, log *slog.Logger, opts ...Option) (*Server, error) {
	s := &Server{cfg: cfg, level: new(slog.LevelVar), probes: map[string]Prober{}}
	s.level.Set(logLevel(cfg.Log.Level))
	s.log = slog.New(telemetry.NewLogHandler(log.Handler(), s.level))
	if err := s.build(opts); err != nil {
		// Nothing was sent yet, so nothing has to be waited for.
		return nil, errors.Join(err, s.Close(context.Background()))
	}
	return s, nil
}

func (s *Server) build(opts []Option) error {
	var errs []error
	if err := s.buildTelemetry(opts); err != nil {
		errs = append(errs, err)
		return errors.Join(errs...)
	}
	// Never plaintext, or open to all, by accident.
	if s.cfg.GRPC.TLS != nil {
		errs = append(errs, errors.New("grpc.tls: this version cannot serve TLS yet; remove it, and keep the port on loopback or behind a proxy"))
	}
	if s.cfg.GRPC.Auth != nil {
		errs = append(errs, errors.New("grpc.auth: this version cannot check tokens yet; remove it, and keep the port on loopback or behind a proxy"))
	}
	errs = append(errs, s.buildProbes()...)
	snapshot, warnings, err := buildSnapshot(s.cfg, s.probes)
	s.warnings = append(s.warnings, warnings...)
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	keyer, err := cache.NewKeyer([]byte(s.cfg.Cache.Secret.Reveal()))
	if err != nil {
		return err
	}
	deps := cache.Deps[Scores]{Codec: scoresCodec{}, Observer: s.telemetry.CacheObserver()}
	if s.cfg.Cache.Redis != nil {
		if s.redis, err = rediscache.New(redisConfig(s.cfg), rediscache.WithObserver(s.telemetry.RedisObserver())); err != nil {
			return fmt.Errorf("cache.redis: %w", err)
		}
		deps.Shared = s.telemetry.SharedLayer(s.redis)
	}
	if s.ladder, err = cache.New(cacheConfig(s.cfg), deps); err != nil {
		return err
	}
	s.decider = &Decider{
		ladder:   s.ladder,
		keyer:    keyer,
		observer: &observer{telemetry: s.telemetry, log: s.log, record: s.record},
	}
	s.decider.snapshot.Store(snapshot)
	s.buildGRPC()
	return s.telemetry.Watch(s.telemetryState)
}

// Limits of the gRPC transport.
const (
	// maxConcurrentStreams bounds what one connection may have under way: above any
	// sane gateway's, below what would let one connection take all memory.
	maxConcurrentStreams = 1024
	// writeBufferSize and readBufferSize are grpc-go's own defaults, kept by name
	// since the memory of idle connections depends on them.
	writeBufferSize = 32 << 10
	readBufferSize  = 32 << 10
	// streamWorkers is how many goroutines wait for calls. A goroutine made for one call
	// spends a tenth of a cached answer's time on growing its stack. While all are busy,
	// as with calls that wait for their probe, further calls get goroutines of their own.
	streamWorkers = 128
)

func (s *Server) buildGRPC() {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(int(s.cfg.GRPC.MaxMessageBytes)),
		grpc.MaxConcurrentStreams(maxConcurrentStreams),
		grpc.WriteBufferSize(writeBufferSize),
		grpc.ReadBufferSize(readBufferSize),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ChainUnaryInterceptor(interceptors(s.log, s.telemetry, DeadlineMargin(s.cfg.GRPC.DeadlineMargin))...),
	}
	if handler := s.telemetry.RPCHandler(tracedMethods()); handler != nil {
		options = append(options, grpc.StatsHandler(handler))
	}
	s.grpc = grpc.NewServer(options...)
	pointsmanv1.RegisterDecisionServiceServer(s.grpc, &service{decider: s.decider})
	s.health = health.NewServer()
	healthv1.RegisterHealthServer(s.grpc, s.health)
	for _, name := range s.readinessNames() {
		s.health.SetServingStatus(name, healthv1.HealthCheckResponse_NOT_SERVING)
	}
	s.health.SetServingStatus(healthLiveness, healthv1.HealthCheckResponse_SERVING)
	if s.cfg.GRPC.Reflection {
		reflection.Register(s.grpc)
	}
}

// readinessNames are the health names that follow readiness.
func (s *Server) readinessNames() []string {
	return []string{"", healthReadiness, pointsmanv1.DecisionService_ServiceDesc.ServiceName}
}

// Warnings are what is allowed but likely a mistake, for people.
func (s *Server) Warnings() []string { return s.warnings }

// Serve answers on the listeners until ctx ends, then drains: readiness is
// withdrawn, calls are accepted for the drain delay, calls under way and sent
// probes get their time, and what is left is cut off. It closes the listeners and
// the server. A listener that fails ends it too.
func (s *Server) Serve(ctx context.Context, grpcListener, adminListener net.Listener) error {
	admin := &http.Server{
		Handler: adminHandler(s),
		// Nobody has a reason to send an operator's port a request slowly.
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 2)
	go func() { failed <- wrapServe("admin", admin.Serve(adminListener)) }()
	go func() { failed <- wrapServe("grpc", s.grpc.Serve(grpcListener)) }()
	for _, name := range s.readinessNames() {
		s.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	s.log.InfoContext(ctx, "serving",
		"grpc", grpcListener.Addr().String(), "admin", adminListener.Addr().String())

	running := 2
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-failed:
		running--
	}
	err := s.drain(context.WithoutCancel(ctx), admin, failure == nil)
	for range running {
		failure = errors.Join(failure, <-failed)
	}
	return errors.Join(failure, err)
}

// wrapServe names the listener whose serving ended, or returns nil if it was
// asked to.
func wrapServe(name string, err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("serving %s: %w", name, err)
}

// drain stops the server. Where a listener has failed there is nobody to wait
// for, so it does not delay.
func (s *Server) drain(ctx context.Context, admin *http.Server, delay bool) error {
	s.draining.Store(true)
	for _, name := range s.readinessNames() {
		s.health.SetServingStatus(name, healthv1.HealthCheckResponse_NOT_SERVING)
	}
	s.log.InfoContext(ctx, "draining", "delay", s.cfg.Shutdown.DrainDelay.String())
	if delay {
		time.Sleep(time.Duration(s.cfg.Shutdown.DrainDelay))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.cfg.Shutdown.Timeout))
	defer cancel()
	// The shared work ends by itself or by ctx; then nothing keeps a call waiting.
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.grpc.GracefulStop() }()
	select {
	case <-stopped:
	case <-ctx.Done():
		s.grpc.Stop()
		<-stopped
	}
	err := s.Close(ctx)
	if shutdownErr := admin.Shutdown(ctx); shutdownErr != nil {
		err = errors.Join(err, admin.Close())
	}
	s.log.InfoContext(ctx, "stopped")
	return err
}

// Close ends what New started: probes that were sent get until ctx ends. Serve
// calls it; a server that never served needs it called.
func (s *Server) Close(ctx context.Context) error {
	// First the probes: the ladder's computations end with them.
	errs := s.closeProbes(ctx)
	if s.ladder != nil {
		if err := s.ladder.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing the cache: %w", err))
		}
	}
	if s.redis != nil { // after the ladder, which stores to the last
		if err := s.redis.Close(); err != nil {
			errs = append(errs, fmt.Errorf("closing the shared cache: %w", err))
		}
	}
	return errors.Join(append(errs, s.closeTelemetry(ctx))...)
}
