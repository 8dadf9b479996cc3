package server

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/pointsman-dev/pointsman/probe"
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
	*probe.Group

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
		for _, w := range p.Warnings() {
			next.warnings = append(next.warnings, fmt.Sprintf("probe %q: %s", name, w))
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
	group, err := probe.NewGroup(probeConfig(name, cfg), endpoints(cfg), s.probeOptions(name, cfg)...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(errors.New("the service is closing"), group.Close(s.halted))
	}
	s.open[group] = name
	return &heldProbe{Group: group, cfg: cfg, life: newLifetime(func() { s.retire(group) })}, nil
}

// retire closes a probe that no generation has any more. Nothing is under way in it.
func (s *Server) retire(group *probe.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return // Close has it
	}
	s.retiring.Go(func() {
		if err := group.Close(s.halted); err != nil {
			s.log.Warn("a probe that is no longer configured was cut off", "error", err)
		}
		s.mu.Lock()
		delete(s.open, group)
		s.mu.Unlock()
	})
}
