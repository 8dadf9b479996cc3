package server

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/pointsman-dev/pointsman/server/config"
)

// reloadReport is what /readyz says of reloads.
type reloadReport struct {
	// Generation counts the configurations that were taken over; the first is 1.
	Generation int       `json:"generation"`
	Since      time.Time `json:"since"`
	// Error is why the newest configuration was refused; empty if it was not. The
	// service goes on with the one before.
	Error    string     `json:"error,omitempty"`
	FailedAt *time.Time `json:"failed_at,omitempty"`
	// NeedRestart are the sections that changed and that only a restart takes over.
	NeedRestart []string `json:"need_restart,omitempty"`
}

// Reload takes over a configuration: routes, probes, checkpoints, tokens and
// certificates. All of it is checked before any of it is used; when something is
// wrong, everything stays as it is, and the log and /readyz say so. Decisions under
// way finish with what they started with. Reloads wait for each other.
func (s *Server) Reload(ctx context.Context, cfg *config.Config) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	old := s.now.Load()
	err := sameTransport(s.cfg, cfg)
	var next *generation
	if err == nil {
		next, err = s.build(cfg, old)
	}
	if err != nil {
		s.ReloadFailed(ctx, err)
		return err
	}
	needRestart := needRestart(s.cfg, cfg)
	s.now.Store(next)
	s.decider.snapshot.Store(next.snapshot)
	s.door.use(next.entrance)
	old.snapshot.life.leave()
	if level := cfg.Log.Level; level != old.cfg.Log.Level {
		s.level.Set(logLevel(level)) // else what the admin port set stays
	}

	s.mu.Lock()
	s.reloads = reloadReport{Generation: s.reloads.Generation + 1, Since: time.Now(), NeedRestart: needRestart}
	generation := s.reloads.Generation
	s.mu.Unlock()
	s.telemetry.Reloaded(ctx, nil)
	s.log.InfoContext(ctx, "reloaded", "generation", generation)
	for _, w := range next.warnings {
		s.log.WarnContext(ctx, "configuration", "warning", w)
	}
	if needRestart != nil {
		s.log.WarnContext(ctx, "some of the new configuration needs a restart", "sections", needRestart)
	}
	return nil
}

// ReloadFailed notes that the newest configuration could not be taken over.
func (s *Server) ReloadFailed(ctx context.Context, err error) {
	s.mu.Lock()
	s.reloads.Error, s.reloads.FailedAt = err.Error(), new(time.Now())
	s.mu.Unlock()
	s.telemetry.Reloaded(ctx, err)
	s.log.ErrorContext(ctx, "the new configuration is not taken over; the service goes on with the old one", "error", err)
}

// sameTransport refuses what would change how the open port speaks.
func sameTransport(started, next *config.Config) error {
	if (started.GRPC.TLS == nil) != (next.GRPC.TLS == nil) {
		return errors.New("grpc.tls: cannot be switched on or off while the service runs: restart it")
	}
	return nil
}

// needRestart names the sections in which next differs from what the service was
// started with, as far as a reload does not take them over.
func needRestart(started, next *config.Config) []string {
	was, is := *started, *next
	// These are taken over.
	was.GRPC.TLS, was.GRPC.Overrides = is.GRPC.TLS, is.GRPC.Overrides
	if (was.GRPC.Auth == nil) == (is.GRPC.Auth == nil) { // else the connections' visitors come or go at a start
		was.GRPC.Auth = is.GRPC.Auth
	}
	was.GRPC.MaxTaskBytes, was.Log.Level = is.GRPC.MaxTaskBytes, is.Log.Level
	var sections []string
	for _, s := range []struct {
		name    string
		was, is any
	}{
		{"grpc", was.GRPC, is.GRPC},
		{"admin", was.Admin, is.Admin},
		{"cache", was.Cache, is.Cache},
		{"log", was.Log, is.Log},
		{"record", was.Record, is.Record},
		{"reload", was.Reload, is.Reload},
	} {
		if !reflect.DeepEqual(s.was, s.is) {
			sections = append(sections, s.name)
		}
	}
	return sections
}
