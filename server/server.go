package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/rediscache"
	"github.com/pointsman-dev/pointsman/server/config"
	"github.com/pointsman-dev/pointsman/server/record"
	"github.com/pointsman-dev/pointsman/server/telemetry"
)

// Server is the whole program: built by [New], run by [Server.Serve].
type Server struct {
	// cfg is what the service was started with. What a reload replaces is in now.
	cfg   *config.Config
	now   atomic.Pointer[generation]
	log   *slog.Logger
	level *slog.LevelVar
	// telemetry and record are the first to be made and the last to be closed.
	telemetry *telemetry.Telemetry
	record    *record.Writer    // nil without a decision record
	redis     *rediscache.Cache // nil without a shared cache
	ladder    *cache.Ladder[Scores]
	decider   *Decider
	door      *doorman
	grpc      *grpc.Server
	health    *health.Server
	phase     phaseValue
	// shown are the probes that health speaks of; only showHealth has it.
	shown map[string]*heldProbe

	reloading sync.Mutex // held by the one reload that runs
	retiring  sync.WaitGroup
	// halted ends when probes that are being closed must be cut off.
	halted context.Context
	halt   context.CancelFunc

	mu      sync.Mutex
	open    map[Prober]string // the probes that are not closed yet, by name
	closed  bool
	reloads reloadReport
}

// New builds the object graph, without binding a port. It reads the checkpoints
// and starts the probes' sweepers; [Server.Close] ends what it starts. Its errors
// name everything that is wrong.
//
// The log's level is the configuration's, and then whatever the admin port sets; the
// handler's own must let everything pass.
func New(cfg *config.Config, log *slog.Logger, opts ...Option) (*Server, error) {
	s := &Server{cfg: cfg, level: new(slog.LevelVar), open: map[Prober]string{}}
	s.halted, s.halt = context.WithCancel(context.Background())
	s.level.Set(logLevel(cfg.Log.Level))
	s.log = slog.New(telemetry.NewLogHandler(log.Handler(), s.level))
	if err := s.start(opts); err != nil {
		// Nothing was sent yet, so nothing has to be waited for.
		return nil, errors.Join(err, s.Close(context.Background()))
	}
	return s, nil
}

func (s *Server) start(opts []Option) error {
	if err := s.buildTelemetry(opts); err != nil {
		return err
	}
	first, err := s.build(s.cfg, nil)
	if err != nil {
		return err
	}
	s.now.Store(first)
	s.reloads = reloadReport{Generation: 1, Since: time.Now()}
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
		ladder:      s.ladder,
		keyer:       keyer,
		observer:    &observer{telemetry: s.telemetry, log: s.log, record: s.record},
		maxInFlight: int64(s.cfg.GRPC.MaxInFlight),
		scoring:     make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	s.decider.snapshot.Store(first.snapshot)
	s.door = newDoorman(s.telemetry)
	s.door.use(first.entrance)
	s.buildGRPC(first.entrance.tls != nil)
	return s.telemetry.Watch(s.telemetryState)
}

// Warnings are what is allowed but likely a mistake, for people.
func (s *Server) Warnings() []string { return s.now.Load().warnings }

// Serve answers on the listeners until ctx ends, then drains: readiness is
// withdrawn, calls are accepted for the drain delay, calls under way and sent
// probes get their time, and what is left is cut off. It closes the listeners and
// the server. A listener that fails ends it too.
func (s *Server) Serve(ctx context.Context, grpcListener, adminListener net.Listener) error {
	admin := &http.Server{
		Handler: adminHandler(s),
		// Nobody has a reason to send an operator's port a request slowly.
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 2)
	go func() { failed <- wrapServe("admin", admin.Serve(adminListener)) }()
	go func() {
		failed <- wrapServe("grpc", s.grpc.Serve(limitConnections(grpcListener, s.cfg.GRPC.Connections.Max)))
	}()
	healthy, stopHealth := context.WithCancel(ctx)
	defer stopHealth()
	var health sync.WaitGroup
	s.startHealth(healthy, &health)
	s.log.InfoContext(ctx, "serving",
		"grpc", grpcListener.Addr().String(), "admin", adminListener.Addr().String(), "limits", limits())

	running := 2
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-failed:
		running--
	}
	stopHealth()
	health.Wait()
	err := s.drain(context.WithoutCancel(ctx), admin, failure == nil)
	for range running {
		failure = errors.Join(failure, <-failed)
	}
	return errors.Join(failure, err)
}

// limits are what the process may use, for the log. A memory limit, GOMEMLIMIT, is Go's
// own: the collector works harder near it.
func limits() slog.Value {
	memory := "none"
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 { // -1 asks
		memory = config.ByteSize(limit).String()
	}
	return slog.GroupValue(slog.Int("processors", runtime.GOMAXPROCS(0)), slog.String("memory", memory))
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
	s.phase.set(phaseDraining)
	for _, name := range s.readinessNames() {
		s.health.SetServingStatus(name, healthv1.HealthCheckResponse_NOT_SERVING)
	}
	shutdown := s.now.Load().cfg.Shutdown
	s.log.InfoContext(ctx, "draining", "delay", shutdown.DrainDelay.String())
	if delay {
		time.Sleep(time.Duration(shutdown.DrainDelay))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(shutdown.Timeout))
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
	stop := context.AfterFunc(ctx, s.halt)
	defer stop()
	defer s.halt()
	if s.grpc != nil {
		defer s.grpc.Stop() // it has workers even if it never served
	}
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
