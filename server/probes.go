package server

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/probe/lexical"
	"github.com/pointsman-dev/pointsman/server/config"
)

// buildProbes makes the probes of the configuration, and returns what is wrong with
// some of them.
func (s *Server) buildProbes() []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Probes)) {
		p, err := s.buildProbe(name, s.cfg.Probes[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("probe %q: %w", name, err))
			continue
		}
		s.probes[name] = p
	}
	return errs
}

func (s *Server) buildProbe(name string, cfg config.Probe) (Prober, error) {
	var observer probe.Observer = probe.NopObserver{}
	if cfg.Kind == config.ProbeKindVLLM {
		observer = returnLeases{Observer: s.telemetry.ProbeObserver(probeInfo(name, cfg)), probe: name, ladder: &s.ladder}
	}
	p, warnings, err := newProbe(name, cfg, s.log, observer)
	for _, w := range warnings {
		s.warnings = append(s.warnings, fmt.Sprintf("probe %q: %s", name, w))
	}
	return p, err
}

// newProbe makes a probe of its configuration, and warns of what is likely a
// mistake. observer sees a probe of kind vllm alone.
func newProbe(name string, cfg config.Probe, log *slog.Logger, observer probe.Observer) (Prober, []string, error) {
	if cfg.Kind == config.ProbeKindLexical {
		p, err := lexical.New(cfg.MaxInFlight)
		return p, nil, err
	}
	p, err := probe.New(probeConfig(name, cfg), probe.WithLogger(log), probe.WithObserver(observer))
	if err != nil {
		return nil, nil, err
	}
	return p, p.Warnings(), nil
}

// closeProbe closes a probe that has something to close.
func closeProbe(ctx context.Context, p Prober) error {
	if closer, ok := p.(interface {
		Close(ctx context.Context) error
	}); ok {
		return closer.Close(ctx)
	}
	return nil
}

// closeProbes closes all probes.
func (s *Server) closeProbes(ctx context.Context) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.probes)) {
		closer, ok := s.probes[name].(interface {
			Close(ctx context.Context) error
		})
		if !ok {
			continue
		}
		if err := closer.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing probe %q: %w", name, err))
		}
	}
	return errs
}

// probeConfig is a probe's configuration in the probe's own terms.
func probeConfig(name string, c config.Probe) probe.Config {
	out := probe.Config{
		Name:               name,
		Model:              c.ServedModel,
		ChatTemplateKwargs: c.ChatTemplateKwargs,
		Endpoint:           probe.Endpoint(c.Endpoints[0]),
		APIKey:             c.APIKey.Reveal(),
		MaxInFlight:        c.MaxInFlight,
		MaxQueue:           c.MaxQueue,
		QueueTimeout:       time.Duration(c.QueueTimeout),
		RequestTimeout:     time.Duration(c.RequestTimeout),
		ArtifactTimeout:    time.Duration(c.ArtifactTimeout),
		MaxArtifactBytes:   int64(c.MaxArtifactBytes),
		ZeroVectors:        probe.ZeroRefuse,
		Breaker:            probe.Breaker{Failures: c.Breaker.Failures, OpenFor: time.Duration(c.Breaker.OpenFor)},
		Sweep:              probe.Sweep{Interval: time.Duration(c.Sweep.Interval), MinAge: time.Duration(c.Sweep.MinAge), All: c.Sweep.All},
	}
	if c.ZeroVectors == config.ZeroVectorsAllowSlot0 {
		out.ZeroVectors = probe.ZeroAllowSlot0
	}
	return out
}

// returnLeases gives a probe's leases back when its breaker opens: another process
// may be able to compute what this one cannot.
type returnLeases struct {
	probe.Observer

	probe string
	// ladder is set before the probe is first asked.
	ladder **cache.Ladder[Scores]
}

// Breaker implements [probe.Observer].
func (r returnLeases) Breaker(state probe.State) {
	r.Observer.Breaker(state)
	if state == probe.StateDown {
		(*r.ladder).ReleaseLeases(r.probe)
	}
}
