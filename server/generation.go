package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/server/config"
)

// generation is what one configuration became: all that a reload replaces, at once.
type generation struct {
	cfg      *config.Config
	snapshot *Snapshot
	probes   map[string]*heldProbe
	entrance entrance
	warnings []string
}

// heldProbe is a probe with its users: the generations that have it.
type heldProbe struct {
	Prober

	cfg  config.Probe
	life *lifetime
}

// build makes a generation. A probe whose configuration is that of previous is taken
// over as it is, with its breaker, its queue and what it has learned; previous is nil
// at the start. With an error, which names everything that is wrong, nothing is left
// behind.
func (s *Server) build(cfg *config.Config, previous *generation) (*generation, error) {
	next := &generation{cfg: cfg, probes: map[string]*heldProbe{}}
	var (
		errs []error
		err  error
	)
	next.entrance, err = loadEntrance(cfg.GRPC, time.Now())
	errs = append(errs, err)
	next.warnings = append(next.warnings, next.entrance.warnings...)
	for _, name := range slices.Sorted(maps.Keys(cfg.Probes)) {
		p, err := s.buildProbe(name, cfg.Probes[name], previous)
		if err != nil {
			errs = append(errs, fmt.Errorf("probe %q: %w", name, err))
			continue
		}
		next.probes[name] = p
		for _, w := range probeWarnings(p.Prober) {
			next.warnings = append(next.warnings, warnOfProbe(name, w))
		}
	}
	var warnings []string
	next.snapshot, warnings, err = buildSnapshot(cfg, next.probes, previous)
	errs = append(errs, err)
	next.warnings = append(next.warnings, warnings...)
	if err := errors.Join(errs...); err != nil {
		next.release()
		return nil, err
	}
	next.snapshot.begin(next.release)
	return next, nil
}

// warnOfProbe says which probe a warning is of.
func warnOfProbe(name, warning string) string { return fmt.Sprintf("probe %q: %s", name, warning) }

// release gives the probes back: whoever has no other generation is closed.
func (g *generation) release() {
	for _, p := range g.probes {
		p.life.leave()
	}
}

// buildProbe takes a probe over from the previous generation, or makes one.
func (s *Server) buildProbe(name string, cfg config.Probe, previous *generation) (*heldProbe, error) {
	if previous != nil {
		// Its users cannot all be gone: the previous generation is still in use.
		if p := previous.probes[name]; p != nil && reflect.DeepEqual(p.cfg, cfg) && p.life.use() {
			return p, nil
		}
	}
	var observer probe.Observer = probe.NopObserver{}
	if cfg.Kind == config.ProbeKindVLLM {
		observer = returnLeases{Observer: s.telemetry.ProbeObserver(probeInfo(name, cfg)), probe: name, ladder: &s.ladder}
	}
	p, err := newProbe(name, cfg, s.log, observer)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(errors.New("the service is closing"), closeProbe(s.halted, p))
	}
	s.open[p] = name
	return &heldProbe{Prober: p, cfg: cfg, life: newLifetime(func() { s.retire(p) })}, nil
}

// retire closes a probe that no generation has any more. Nothing is under way in it.
func (s *Server) retire(p Prober) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return // Close has it
	}
	s.retiring.Go(func() {
		if err := closeProbe(s.halted, p); err != nil {
			s.log.Warn("a probe that is no longer configured was cut off", "error", err)
		}
		s.mu.Lock()
		delete(s.open, p)
		s.mu.Unlock()
	})
}

// closeProbes closes all probes, at the same time, and admits no further ones.
func (s *Server) closeProbes(ctx context.Context) []error {
	s.mu.Lock()
	s.closed = true
	open := maps.Clone(s.open)
	s.mu.Unlock()
	var (
		closing sync.WaitGroup
		failed  = make(chan error, len(open))
	)
	for p, name := range open {
		closing.Go(func() {
			if err := closeProbe(ctx, p); err != nil {
				failed <- fmt.Errorf("closing probe %q: %w", name, err)
			}
		})
	}
	closing.Wait()
	close(failed)
	var errs []error
	for err := range failed {
		errs = append(errs, err)
	}
	s.retiring.Wait()
	return errs
}

// route returns the generation's own route of a name, or nil.
func (g *generation) route(name string) *Route {
	if g == nil {
		return nil
	}
	return g.snapshot.routes[name]
}

// sameCheckpoint returns the generation's own checkpoint of the same content, if it
// has one, so that a reload of the rest does not keep two in memory.
func (g *generation) sameCheckpoint(c *scorer.Checkpoint) *scorer.Checkpoint {
	if g == nil {
		return c
	}
	for source := range g.snapshot.sources() {
		if source.Checkpoint.Digest() == c.Digest() {
			return source.Checkpoint
		}
	}
	return c
}
