package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/scorer"
)

// ErrRouteNotFound says that no route has the wanted name.
var ErrRouteNotFound = errors.New("no such route")

// ErrTargetUnknown says that a route has no target of the wanted name.
var ErrTargetUnknown = errors.New("no such target")

// Prober turns a task into the features of its hidden states.
type Prober interface {
	// Extract probes one task. ctx bounds only its wait for a free slot: a probe
	// that was sent goes on without its callers.
	Extract(ctx context.Context, req probe.Request) (probe.Extraction, error)
	// Status says how the probe is doing.
	Status() probe.Status
}

// Snapshot is one immutable state of all routes. A decision uses the one it
// started with, so that a reload never mixes two.
type Snapshot struct {
	routes       map[string]*Route
	defaultRoute string
	// overrides are what anybody at all may ask for.
	overrides permission
	// life has the decisions that use the snapshot; nil: it is never replaced.
	life *lifetime
}

// begin gives the snapshot a lifetime, after which end is called.
func (s *Snapshot) begin(end func()) {
	s.life = newLifetime(end)
	for source := range s.sources() {
		source.life = s.life
	}
}

// sources are those of all routes, the backups included.
func (s *Snapshot) sources() iter.Seq[*Source] {
	return func(yield func(*Source) bool) {
		for _, r := range s.routes {
			if !yield(&r.Source) || (r.Backup != nil && !yield(r.Backup)) {
				return
			}
		}
	}
}

// route returns the route of a name, or the default for an empty one.
func (s *Snapshot) route(name string) (*Route, error) {
	if name == "" {
		name = s.defaultRoute
	}
	if r, ok := s.routes[name]; ok {
		return r, nil
	}
	if name == "" {
		return nil, fmt.Errorf("%w: the request names none and there is no default_route", ErrRouteNotFound)
	}
	return nil, fmt.Errorf("%w: %q", ErrRouteNotFound, clip(name))
}

// Route is one way of deciding. It is immutable, but for the scores it has counted.
type Route struct {
	Name    string
	Targets []*Target
	// Fallback is answered when nothing learned can be.
	Fallback *Target
	TradeOff scorer.TradeOff
	Mode     pointsmanv1.RouteMode
	Task     TaskRules
	// Timeout bounds a decision, whatever the caller's deadline.
	Timeout time.Duration
	// Source is asked first, Backup when that fails; Backup may be nil.
	Source
	Backup *Source
	// live are its decisions' scores so far, the only thing that changes. It is empty if
	// unwatched says why.
	live      liveScores
	unwatched error
}

// Source is where scores come from: a probe, and the checkpoint that reads its
// features. It is immutable.
type Source struct {
	Probe      Prober
	Checkpoint *scorer.Checkpoint

	// life is that of the snapshot.
	life *lifetime
	// probeName is the probe's name in the configuration.
	probeName string
	// shape is what the checkpoint expects of the probe.
	shape probe.Shape
	// key holds what all cache keys of the source have in common.
	key cache.KeyFields
	// computeTimeout bounds the computation of one task's scores, whoever waits for it.
	computeTimeout time.Duration
	// candidates stands beside the route's Targets.
	candidates []scorer.Candidate
}

// Target is one model a route can choose.
type Target struct {
	Name, Model string
	Tier        pointsmanv1.Tier
	// Head is the checkpoint's head that predicts this target.
	Head string
	Cost float64
}

// choice is what a request lets a route choose between: targets and candidates
// stand side by side.
type choice struct {
	targets    []*Target
	candidates []scorer.Candidate
	// backup are the candidates for the route's backup; empty without one.
	backup []scorer.Candidate
	// fallback is the route's, or the first allowed target if that is not allowed.
	fallback *Target
}

// allow restricts the route to the named targets; none named means all.
func (r *Route) allow(names []string) (choice, error) {
	var backup []scorer.Candidate
	if r.Backup != nil {
		backup = r.Backup.candidates
	}
	if len(names) == 0 {
		return choice{targets: r.Targets, candidates: r.candidates, backup: backup, fallback: r.Fallback}, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(r.Targets, func(t *Target) bool { return t.Name == name }) {
			return choice{}, fmt.Errorf("%w: route %q has none named %q", ErrTargetUnknown, r.Name, clip(name))
		}
	}
	var c choice
	for i, t := range r.Targets {
		if slices.Contains(names, t.Name) {
			c.targets = append(c.targets, t)
			c.candidates = append(c.candidates, r.candidates[i])
			if backup != nil {
				c.backup = append(c.backup, backup[i])
			}
		}
	}
	c.fallback = c.targets[0]
	if slices.Contains(c.targets, r.Fallback) {
		c.fallback = r.Fallback
	}
	return c, nil
}

// backs reports whether the route's backup is asked after a failure: not when the
// caller wanted nothing computed, and not in shadow mode, which answers the fallback
// target anyway and is there to show what the first source would do.
func (r *Route) backs(reason pointsmanv1.FallbackReason) bool {
	return r.Backup != nil && reason != reasonNotCached && r.Mode != pointsmanv1.RouteMode_ROUTE_MODE_SHADOW
}

// backupSlack is what a backup takes beside its probe: multiplying the checkpoint's
// matrices, and waiting for a processor.
const backupSlack = 5 * time.Millisecond

// backupTime is the part of the time left that the first source must not use up, so
// that the backup can still answer: what that usually takes, and at most a quarter.
func (r *Route) backupTime(left time.Duration) time.Duration {
	if !r.backs(reasonDeadline) {
		return 0
	}
	return max(0, min(r.Backup.Probe.Status().Typical+backupSlack, left/4))
}

// clip shortens a name that came from outside to what an error may repeat.
func clip(name string) string {
	const longest = 64 // enough to recognise a name by
	if len(name) <= longest {
		return name
	}
	return name[:longest] + "…"
}
