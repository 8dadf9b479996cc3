package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/rediscache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/server/config"
)

// Names of gRPC health, beside the overall one (empty) and the service's own.
const (
	healthLiveness  = "liveness"  // the process works
	healthReadiness = "readiness" // calls should be sent here
)

// Server is the whole program: built by [New], run by [Server.Serve].
type Server struct {
	cfg      *config.Config
	log      *slog.Logger
	probes   map[string]*probe.Group
	redis    *rediscache.Cache // nil without a shared cache
	ladder   *cache.Ladder[Scores]
	decider  *Decider
	door     *doorman
	grpc     *grpc.Server
	health   *health.Server
	warnings []string
	draining atomic.Bool
}

// New builds the object graph, without binding a port. It reads the checkpoints
// and starts the probes' sweepers; [Server.Close] ends what it starts. Its errors
// name everything that is wrong.
func New(cfg *config.Config, log *slog.Logger) (*Server, error) {
	s := &Server{cfg: cfg, log: log, probes: map[string]*probe.Group{}}
	if err := s.build(); err != nil {
		// Nothing was sent yet, so nothing has to be waited for.
		return nil, errors.Join(err, s.Close(context.Background()))
	}
	return s, nil
}

func (s *Server) build() error {
	var errs []error
	entrance, err := loadEntrance(s.cfg.GRPC, time.Now())
	errs = append(errs, err)
	s.warnings = append(s.warnings, entrance.warnings...)
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Probes)) {
		p, err := probe.NewGroup(probeConfig(name, s.cfg.Probes[name]), endpoints(s.cfg.Probes[name]), probe.WithLogger(s.log),
			probe.WithObserver(returnLeases{Observer: probe.NopObserver{}, probe: name, ladder: &s.ladder}))
		if err != nil {
			errs = append(errs, fmt.Errorf("probe %q: %w", name, err))
			continue
		}
		s.probes[name] = p
		for _, w := range p.Warnings() {
			s.warnings = append(s.warnings, fmt.Sprintf("probe %q: %s", name, w))
		}
	}
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
	deps := cache.Deps[Scores]{Codec: scoresCodec{}}
	if s.cfg.Cache.Redis != nil {
		if s.redis, err = rediscache.New(redisConfig(s.cfg)); err != nil {
			return fmt.Errorf("cache.redis: %w", err)
		}
		deps.Shared = s.redis
	}
	if s.ladder, err = cache.New(cacheConfig(s.cfg), deps); err != nil {
		return err
	}
	s.decider = &Decider{
		ladder:   s.ladder,
		keyer:    keyer,
		observer: logObserver{s.log},
	}
	s.decider.snapshot.Store(snapshot)
	s.door = newDoorman(s.cfg.GRPC, nopDoorObserver{})
	s.door.use(entrance)
	s.buildGRPC(entrance.tls != nil)
	return nil
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
	go func() {
		failed <- wrapServe("grpc", s.grpc.Serve(limitConnections(grpcListener, s.cfg.GRPC.Connections.Max)))
	}()
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
	var errs []error
	// First the probes: the ladder's computations end with them.
	for _, name := range slices.Sorted(maps.Keys(s.probes)) {
		if err := s.probes[name].Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing probe %q: %w", name, err))
		}
	}
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
	return errors.Join(errs...)
}
