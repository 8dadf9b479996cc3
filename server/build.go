package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/rediscache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/probe/lexical"
	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/server/config"
)

// buildSnapshot loads the checkpoints and makes the routes of a configuration. It
// reports everything that is wrong, and warns of what is allowed but likely a
// mistake. A checkpoint that several routes use is loaded once, and one that did not
// change since previous is kept. A probe that is missing has been reported already.
func buildSnapshot(cfg *config.Config, probes map[string]*heldProbe, previous *generation) (*Snapshot, []string, error) {
	var (
		errs     []error
		warnings []string
		snapshot = &Snapshot{
			routes: map[string]*Route{}, defaultRoute: cfg.DefaultRoute,
			overrides: overridesAllowed(cfg.GRPC.Overrides),
		}
		b = builder{cfg: cfg, probes: probes, checkpoints: map[string]*scorer.Checkpoint{}, previous: previous}
	)
	for _, name := range slices.Sorted(maps.Keys(cfg.Routes)) {
		route, err := b.route(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("route %q: %w", name, err))
			continue
		}
		warnings = append(warnings, warnOfTradeOff(route)...)
		route.live, route.unwatched = watchScores(route, cfg.Routes[name].Checkpoint, previous.route(name))
		if err := route.unwatched; err != nil && !errors.Is(err, os.ErrNotExist) {
			warnings = append(warnings, warnUnwatched(route)...)
		}
		snapshot.routes[name] = route
	}
	return snapshot, warnings, errors.Join(errs...)
}

// builder makes routes.
type builder struct {
	cfg    *config.Config
	probes map[string]*heldProbe
	// checkpoints are those that have been loaded, by folder.
	checkpoints map[string]*scorer.Checkpoint
	// previous is what is in use; nil at the start.
	previous *generation
}

// route makes a route of its configuration and its checkpoints.
func (b *builder) route(name string) (*Route, error) {
	routeCfg := b.cfg.Routes[name]
	most := b.cfg.GRPC.MaxTaskBytes
	if p := b.cfg.Probes[routeCfg.Probe]; p.Kind == config.ProbeKindVLLM {
		most = min(most, p.MaxPromptBytes)
	}
	r := &Route{
		Name:     name,
		TradeOff: tradeOff(routeCfg.Policy),
		Mode:     pointsmanv1.RouteMode_ROUTE_MODE_SERVE,
		Task: TaskRules{
			From:     FirstUser,
			Terminus: routeCfg.TaskEnvelope == config.TaskEnvelopeTerminus,
			MaxBytes: int(most),
		},
		Timeout: time.Duration(routeCfg.DecideTimeout),
	}
	if routeCfg.Mode == config.ModeShadow {
		r.Mode = pointsmanv1.RouteMode_ROUTE_MODE_SHADOW
	}
	if routeCfg.TaskFrom == config.TaskFromLatestUser {
		r.Task.From = LatestUser
	}
	for _, t := range routeCfg.Targets {
		target := &Target{Name: t.Name, Model: t.Model, Tier: tier(t.Tier), Head: t.Head, Cost: t.Cost}
		r.Targets = append(r.Targets, target)
		if t.Name == routeCfg.Fallback {
			r.Fallback = target
		}
	}
	source, err := b.source(routeCfg.Probe, routeCfg.Checkpoint, r.Targets)
	if err != nil {
		return nil, err
	}
	r.Source = *source
	if routeCfg.Backup != nil {
		if r.Backup, err = b.source(routeCfg.Backup.Probe, routeCfg.Backup.Checkpoint, r.Targets); err != nil {
			return nil, fmt.Errorf("backup: %w", err)
		}
	}
	return r, nil
}

// source makes a source whose checkpoint has a head for each of the targets.
func (b *builder) source(probeName, dir string, targets []*Target) (*Source, error) {
	checkpoint, ok := b.checkpoints[dir]
	if !ok {
		var err error
		if checkpoint, err = scorer.Load(dir); err != nil {
			return nil, fmt.Errorf("checkpoint: %w", err)
		}
		checkpoint = b.previous.sameCheckpoint(checkpoint)
		b.checkpoints[dir] = checkpoint
	}
	probeCfg := b.cfg.Probes[probeName]
	manifest := checkpoint.Manifest()
	if manifest.Encoder != probeCfg.Encoder {
		return nil, fmt.Errorf("probe %q has the encoder %q, but the checkpoint in %s was made for %q",
			probeName, probeCfg.Encoder, dir, manifest.Encoder)
	}
	shape := probe.Shape{Layers: manifest.Layers, HiddenSize: manifest.HiddenSize}
	if probeCfg.Kind == config.ProbeKindLexical && shape != lexical.Shape() {
		return nil, fmt.Errorf("the checkpoint in %s reads %d layers of %d values, but %s has %d of %d; train it on features of this probe",
			dir, shape.Layers, shape.HiddenSize, lexical.Encoder, lexical.Shape().Layers, lexical.Shape().HiddenSize)
	}
	chatTemplate, err := json.Marshal(probeCfg.ChatTemplateKwargs) // sorted by key
	if err != nil {
		return nil, fmt.Errorf("probe %q: chat_template_kwargs: %w", probeName, err)
	}
	s := &Source{
		Checkpoint:     checkpoint,
		probeName:      probeName,
		computeTimeout: computeTimeout(probeCfg),
		shape:          shape,
		key: cache.KeyFields{
			Encoder:          probeCfg.Encoder,
			Revision:         probeCfg.Revision,
			ChatTemplate:     chatTemplate,
			CheckpointDigest: checkpoint.Digest(),
		},
	}
	if p := b.probes[probeName]; p != nil { // a nil *heldProbe in the interface would not be nil
		s.Probe = p
	}
	heads := checkpoint.Heads()
	for _, t := range targets {
		head := slices.Index(heads, t.Head)
		if head < 0 {
			return nil, fmt.Errorf("target %q: the checkpoint in %s has no head %q; it has %s",
				t.Name, dir, t.Head, strings.Join(heads, ", "))
		}
		s.candidates = append(s.candidates, scorer.Candidate{Head: head, Cost: t.Cost})
	}
	return s, nil
}

// warnOfTradeOff warns of a trade-off that can never choose the dearest target.
func warnOfTradeOff(r *Route) []string {
	costs := make([]float64, len(r.Targets))
	for i, t := range r.Targets {
		costs[i] = t.Cost
	}
	if !r.TradeOff.NeverChoosesDearer(costs) {
		return nil
	}
	return []string{fmt.Sprintf(
		"route %q: the policy %v can never choose the dearest target, whatever the checkpoint predicts; "+
			"use a quality_weight above 0.5, or a tolerance below 1", r.Name, r.TradeOff)}
}

// warnUnwatched warns of a route whose scores are compared with nothing.
func warnUnwatched(r *Route) []string {
	return []string{fmt.Sprintf("route %q: drift of its scores is not measured: %v", r.Name, r.unwatched)}
}

func tradeOff(p config.Policy) scorer.TradeOff {
	if p.QualityWeight != nil {
		return scorer.QualityWeight(*p.QualityWeight)
	}
	return scorer.Tolerance(*p.Tolerance)
}

func tier(t config.Tier) pointsmanv1.Tier {
	switch t {
	case config.TierStrong:
		return pointsmanv1.Tier_TIER_STRONG
	case config.TierWeak:
		return pointsmanv1.Tier_TIER_WEAK
	default:
		return pointsmanv1.Tier_TIER_UNSPECIFIED
	}
}

// computeMargin is what a computation may take beside its probe: scoring, and
// waiting for a processor.
const computeMargin = 5 * time.Second

// computeTimeout is how long a computation with a probe may take: as long as the
// probe's own limits allow.
func computeTimeout(p config.Probe) time.Duration {
	if p.Kind == config.ProbeKindLexical {
		return computeMargin // its time is the margin's
	}
	attempt := time.Duration(p.QueueTimeout + p.RequestTimeout + p.ArtifactTimeout)
	if len(p.Endpoints) > 1 {
		attempt *= 2 // a transient failure is tried once more
	}
	return attempt + computeMargin
}

// cacheConfig is the cache's configuration in the cache's own terms. How long a
// computation may take is said with each call: a reload changes it.
func cacheConfig(c *config.Config) cache.Config {
	out := cache.DefaultConfig()
	out.TTL = time.Duration(c.Cache.TTL)
	out.MaxEntries = c.Cache.Local.MaxEntries
	return out
}

// redisConfig is the shared cache's configuration in its own terms.
func redisConfig(c *config.Config) rediscache.Config {
	r := c.Cache.Redis
	out := rediscache.DefaultConfig()
	out.URL = r.URL
	out.Username, out.Password = r.Username, r.Password.Reveal()
	out.SentinelUsername, out.SentinelPassword = r.SentinelUsername, r.SentinelPassword.Reveal()
	out.Secret = []byte(c.Cache.Secret.Reveal())
	out.OpTimeout = time.Duration(r.OpTimeout)
	if r.TLS != nil {
		out.TLS = rediscache.TLS(*r.TLS)
	}
	return out
}
