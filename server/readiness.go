package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pointsman-dev/pointsman/cache/rediscache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe"
)

// Names of gRPC health, beside the overall one (empty) and the service's own.
const (
	healthLiveness  = "liveness"  // the process works
	healthReadiness = "readiness" // calls should be sent here
	healthProbe     = "probe/"    // and a probe's name: it is READY, neither DEGRADED nor DOWN
)

// phase is where in its life a server is.
type phase int32

const (
	phaseStarting phase = iota // calls are answered, but should not be sent yet
	phaseServing
	phaseDraining
)

// String implements [fmt.Stringer].
func (p phase) String() string {
	return [...]string{phaseStarting: "starting", phaseServing: "serving", phaseDraining: "draining"}[p]
}

// phaseValue is a phase that several goroutines see.
type phaseValue struct{ value atomic.Int32 }

func (v *phaseValue) get() phase  { return phase(v.value.Load()) }
func (v *phaseValue) set(p phase) { v.value.Store(int32(p)) }

// begin goes from starting to serving, unless draining has begun meanwhile.
func (v *phaseValue) begin() { v.value.CompareAndSwap(int32(phaseStarting), int32(phaseServing)) }

// unready says why calls should not be sent here, or "".
func (s *Server) unready() string {
	switch s.phase.get() {
	case phaseStarting:
		return "starting"
	case phaseDraining:
		return "draining"
	default:
	}
	now := s.now.Load()
	if !now.cfg.Readiness.RequireProbe {
		return ""
	}
	// A replica whose probe is gone answers fast, and a balancer that looks at the
	// work under way would send it everything.
	for _, name := range slices.Sorted(maps.Keys(now.snapshot.routes)) {
		if r := now.snapshot.routes[name]; r.Probe.Status().State == probe.StateDown {
			return "probe " + r.probeName + " is down"
		}
	}
	return ""
}

const (
	// readinessInterval is how soon health follows what it says: far below the interval
	// of any prober.
	readinessInterval = 250 * time.Millisecond
	// canaryInterval is how long a canary that was not answered waits for the next.
	canaryInterval = time.Second
)

// startHealth makes gRPC health say what readiness is and how the probes are, until ctx
// ends; the caller then waits for running. With readiness.canary the service is ready
// only once each probe has answered.
func (s *Server) startHealth(ctx context.Context, running *sync.WaitGroup) {
	if s.cfg.Readiness.Canary {
		running.Go(func() {
			s.awaitCanaries(ctx)
			s.phase.begin()
		})
	} else {
		s.phase.begin()
	}
	ready := s.showHealth(ctx, false)
	running.Go(func() {
		ticker := time.NewTicker(readinessInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				ready = s.showHealth(ctx, ready)
			}
		}
	})
}

// showHealth sets what gRPC health says, and returns whether that is ready. was is
// what it said before.
func (s *Server) showHealth(ctx context.Context, was bool) bool {
	reason := s.unready()
	for _, name := range s.readinessNames() {
		s.health.SetServingStatus(name, servingStatus(reason == ""))
	}
	probes := s.now.Load().probes
	for name, p := range probes {
		s.health.SetServingStatus(healthProbe+name, servingStatus(p.Status().State == probe.StateReady))
	}
	for name := range s.shown { // a reload took it out
		if probes[name] == nil {
			s.health.SetServingStatus(healthProbe+name, healthv1.HealthCheckResponse_SERVICE_UNKNOWN)
		}
	}
	s.shown = probes
	if ready := reason == ""; ready != was {
		s.log.InfoContext(ctx, "readiness changed", "ready", ready, "reason", reason)
	}
	return reason == ""
}

func servingStatus(ok bool) healthv1.HealthCheckResponse_ServingStatus {
	if ok {
		return healthv1.HealthCheckResponse_SERVING
	}
	return healthv1.HealthCheckResponse_NOT_SERVING
}

// readinessNames are the health names that follow readiness.
func (s *Server) readinessNames() []string {
	return []string{"", healthReadiness, pointsmanv1.DecisionService_ServiceDesc.ServiceName}
}

// awaitCanaries sends a prompt through each probe until all have answered, or ctx
// ends.
func (s *Server) awaitCanaries(ctx context.Context) {
	var all sync.WaitGroup
	for name := range s.now.Load().probes {
		all.Go(func() {
			ticker := time.NewTicker(canaryInterval)
			defer ticker.Stop()
			for tries := 1; ; tries++ {
				p, ok := s.now.Load().probes[name] // a reload may have replaced it, or taken it out
				if !ok {
					return
				}
				_, err := p.Extract(ctx, probe.Request{Task: canaryPrompt})
				if err == nil {
					s.log.InfoContext(ctx, "canary answered", "probe", name, "tries", tries)
					return
				}
				if tries == 1 {
					s.log.WarnContext(ctx, "canary not answered; the service is not ready until it is", "probe", name, "error", err)
				}
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		})
	}
	all.Wait()
}

// readinessReport is the body of /readyz.
type readinessReport struct {
	// Ready is whether calls should be sent here. Without readiness.require_probe a
	// failing probe does not take it away: decisions are then answered from the caches
	// and by fallback.
	Ready bool `json:"ready"`
	// Reason says why not.
	Reason string `json:"reason,omitempty"`
	// Phase is starting, serving or draining.
	Phase  string                 `json:"phase"`
	Routes map[string]routeReport `json:"routes"`
	Probes map[string]probeReport `json:"probes"`
	Reload reloadReport           `json:"reload"`
	// SharedCache is absent without one.
	SharedCache *sharedCacheReport `json:"shared_cache,omitempty"`
}

type sharedCacheReport struct {
	// State is READY, or DEGRADED while decisions do without it.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	Error string    `json:"error,omitempty"`
}

type routeReport struct {
	Probe            string `json:"probe"`
	Mode             string `json:"mode"`
	CheckpointDigest string `json:"checkpoint_digest"`
	// Backup is absent without one.
	Backup *backupReport `json:"backup,omitempty"`
}

type backupReport struct {
	Probe            string `json:"probe"`
	CheckpointDigest string `json:"checkpoint_digest"`
}

type probeReport struct {
	State       string     `json:"state"`
	InFlight    int        `json:"in_flight"`
	Queued      int        `json:"queued"`
	LastError   string     `json:"last_error,omitempty"`
	LastSuccess *time.Time `json:"last_success,omitempty"`
	// Endpoints are listed where there are several.
	Endpoints []probeReport `json:"endpoints,omitempty"`
}

// readiness says how the server and its parts are doing.
func (s *Server) readiness() readinessReport {
	reason := s.unready()
	report := readinessReport{
		Ready:  reason == "",
		Reason: reason,
		Phase:  s.phase.get().String(),
		Routes: map[string]routeReport{},
		Probes: map[string]probeReport{},
	}
	s.mu.Lock()
	report.Reload = s.reloads
	s.mu.Unlock()
	for name, r := range s.decider.snapshot.Load().routes {
		route := routeReport{
			Probe: r.probeName, Mode: enumName(r.Mode), CheckpointDigest: r.Checkpoint.Digest(),
		}
		if b := r.Backup; b != nil {
			route.Backup = &backupReport{Probe: b.probeName, CheckpointDigest: b.Checkpoint.Digest()}
		}
		report.Routes[name] = route
	}
	for name, p := range s.now.Load().probes {
		found := reportProbe(p.Status())
		if several := endpointsOf(p); len(several) > 1 {
			for _, e := range several {
				found.Endpoints = append(found.Endpoints, reportProbe(e.Status()))
			}
		}
		report.Probes[name] = found
	}
	if s.redis != nil {
		report.SharedCache = reportSharedCache(s.redis.Status())
	}
	return report
}

func reportSharedCache(status rediscache.Status) *sharedCacheReport {
	report := &sharedCacheReport{State: "READY", Since: status.Since}
	if !status.Ready {
		report.State = "DEGRADED"
		if status.Err != nil {
			report.Error = status.Err.Error()
		}
	}
	return report
}

func reportProbe(status probe.Status) probeReport {
	report := probeReport{
		State:     enumName(probeStateToProto(status.State)),
		InFlight:  status.InFlight,
		Queued:    status.Queued,
		LastError: status.LastError,
	}
	if !status.LastSuccess.IsZero() {
		report.LastSuccess = &status.LastSuccess
	}
	return report
}
