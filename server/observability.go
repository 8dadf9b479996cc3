package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/server/config"
	"github.com/pointsman-dev/pointsman/server/record"
	"github.com/pointsman-dev/pointsman/server/telemetry"
)

// Option changes how a server is built.
type Option func(*options)

type options struct {
	telemetry telemetry.Config
}

// WithVersion tells metrics and traces what version this is.
func WithVersion(version string) Option {
	return func(o *options) { o.telemetry.Version = version }
}

// WithSpanExporter exports every span to e too, as it ends.
func WithSpanExporter(e sdktrace.SpanExporter) Option {
	return func(o *options) { o.telemetry.SpanExporter = e }
}

// WithMetricReader lets r read all metrics too.
func WithMetricReader(r sdkmetric.Reader) Option {
	return func(o *options) { o.telemetry.MetricReader = r }
}

// Offline exports nothing and records no decisions, whatever environment and
// configuration say.
func Offline() Option {
	return func(o *options) { o.telemetry.Offline = true }
}

// buildTelemetry makes what everything else is observed by.
func (s *Server) buildTelemetry(opts []Option) error {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	o.telemetry.Log = s.log
	var err error
	if s.telemetry, err = telemetry.New(context.Background(), o.telemetry); err != nil {
		return err
	}
	if s.cfg.Record == nil || o.telemetry.Offline {
		return nil
	}
	s.record, err = record.New(recordConfig(s.cfg), record.Deps{Log: s.log, Count: s.countRecorded})
	return err
}

// closeTelemetry writes and exports what is left. An export that fails at the end is
// told and is no failure: a collector that is down must not turn a clean stop into one.
func (s *Server) closeTelemetry(ctx context.Context) error {
	var errs []error
	if s.record != nil {
		errs = append(errs, s.record.Close(ctx))
	}
	if s.telemetry != nil {
		if err := s.telemetry.Shutdown(ctx); err != nil {
			s.log.WarnContext(ctx, "telemetry", "error", err)
		}
	}
	return errors.Join(errs...)
}

// recordConfig is the decision record's configuration in its own terms.
func recordConfig(c *config.Config) record.Config {
	secret := c.Record.Secret.Reveal()
	if secret == "" {
		secret = c.Cache.Secret.Reveal()
	}
	return record.Config{
		File:     c.Record.File,
		MaxBytes: int64(c.Record.MaxBytes),
		MaxFiles: c.Record.MaxFiles,
		Queue:    c.Record.Queue,
		Secret:   []byte(secret),
	}
}

func (s *Server) countRecorded(fate record.Fate, entries int) {
	s.telemetry.Recorded(map[record.Fate]telemetry.RecordFate{
		record.Written: telemetry.RecordWritten,
		record.Dropped: telemetry.RecordDropped,
		record.Failed:  telemetry.RecordFailed,
	}[fate], entries)
}

// probeInfo is what is shown of a probe.
func probeInfo(name string, c config.Probe) telemetry.ProbeInfo {
	return telemetry.ProbeInfo{Name: name, Model: c.ServedModel, BaseURL: c.Endpoints[0].BaseURL}
}

// telemetryState is what metrics read when they are collected.
func (s *Server) telemetryState() telemetry.State {
	state := telemetry.State{Probes: map[string]probe.Status{}}
	for name, p := range s.now.Load().probes {
		state.Probes[name] = p.Status()
	}
	if s.redis != nil {
		state.RedisUp = new(s.redis.Status().Ready)
	}
	for name, r := range s.decider.snapshot.Load().routes {
		state.Routes = append(state.Routes, telemetry.RouteState{
			Route: name, Digest: r.Checkpoint.Digest(), Encoder: r.Checkpoint.Manifest().Encoder, Shifts: r.live.shifts(),
		})
	}
	return state
}

// tracedMethods are the full names of our own methods.
func tracedMethods() map[string]bool {
	methods := map[string]bool{}
	service := pointsmanv1.DecisionService_ServiceDesc
	for _, m := range service.Methods {
		methods["/"+service.ServiceName+"/"+m.MethodName] = true
	}
	return methods
}

// maxLevelBytes is more than the longest name of a level.
const maxLevelBytes = 16

// showLogLevel serves GET /loglevel.
func (s *Server) showLogLevel(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"level": s.level.Level().String()})
}

// setLogLevel serves PUT /loglevel, whose body is debug, info, warn or error.
func (s *Server) setLogLevel(w http.ResponseWriter, r *http.Request) {
	var level slog.Level
	text, err := io.ReadAll(io.LimitReader(r.Body, maxLevelBytes))
	if err == nil {
		err = level.UnmarshalText(text)
	}
	if err != nil {
		http.Error(w, "the body must be debug, info, warn or error", http.StatusBadRequest)
		return
	}
	s.level.Set(level)
	s.log.LogAttrs(r.Context(), slog.LevelInfo, "log level set", slog.String("to", level.String()))
	s.showLogLevel(w, r)
}
