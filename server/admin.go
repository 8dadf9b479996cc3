package server

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
	"time"

	"github.com/pointsman-dev/pointsman/cache/rediscache"
	"github.com/pointsman-dev/pointsman/probe"
)

// adminHandler serves the port for operators.
func adminHandler(s *Server) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "alive"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		report := s.readiness()
		code := http.StatusOK
		if !report.Ready {
			code = http.StatusServiceUnavailable
		}
		writeJSON(w, code, report)
	})
	mux.HandleFunc("GET /configz", func(w http.ResponseWriter, _ *http.Request) {
		text, err := s.cfg.Redacted()
		if err != nil {
			http.Error(w, "the configuration cannot be shown", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(text) // the reader has left if it fails
	})
	mux.Handle("GET /metrics", s.telemetry.MetricsHandler())
	mux.HandleFunc("GET /loglevel", s.showLogLevel)
	mux.HandleFunc("PUT /loglevel", s.setLogLevel)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// readinessReport is the body of /readyz.
type readinessReport struct {
	// Ready is whether calls should be sent here. A failing probe does not take it
	// away: decisions are then answered from the caches and by fallback.
	Ready bool `json:"ready"`
	// Phase is serving or draining.
	Phase  string                 `json:"phase"`
	Routes map[string]routeReport `json:"routes"`
	Probes map[string]probeReport `json:"probes"`
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
}

// readiness says how the server and its parts are doing.
func (s *Server) readiness() readinessReport {
	report := readinessReport{
		Ready:  !s.draining.Load(),
		Phase:  "serving",
		Routes: map[string]routeReport{},
		Probes: map[string]probeReport{},
	}
	if s.draining.Load() {
		report.Phase = "draining"
	}
	for name, r := range s.decider.snapshot.Load().routes {
		route := routeReport{
			Probe: r.probeName, Mode: enumName(r.Mode), CheckpointDigest: r.Checkpoint.Digest(),
		}
		if b := r.Backup; b != nil {
			route.Backup = &backupReport{Probe: b.probeName, CheckpointDigest: b.Checkpoint.Digest()}
		}
		report.Routes[name] = route
	}
	for _, name := range slices.Sorted(maps.Keys(s.probes)) {
		report.Probes[name] = reportProbe(s.probes[name].Status())
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

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(body) //nolint:errchkjson // the bodies are plain data; the reader has left if it fails
}
