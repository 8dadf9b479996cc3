package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/rediscache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/server/config"
)

// buildSnapshot loads the checkpoints and makes the routes of a configuration. It
// reports everything that is wrong, and warns of what is allowed but likely a
// mistake. A checkpoint that several routes use is loaded once, and one that did not
// change is kept. A probe that is missing has been reported already.
func buildSnapshot(cfg *config.Config, probes map[string]*heldProbe, previous *generation) (*Snapshot, []string, error) {
	var (
		errs        []error
		warnings    []string
		checkpoints = map[string]*scorer.Checkpoint{}
		snapshot    = &Snapshot{
			routes: map[string]*Route{}, defaultRoute: cfg.DefaultRoute,
			overrides: overridesAllowed(cfg.GRPC.Overrides),
		}
	)
	for _, name := range slices.Sorted(maps.Keys(cfg.Routes)) {
		routeCfg := cfg.Routes[name]
		checkpoint, ok := checkpoints[routeCfg.Checkpoint]
		if !ok {
			var err error
			if checkpoint, err = scorer.Load(routeCfg.Checkpoint); err != nil {
				errs = append(errs, fmt.Errorf("route %q: checkpoint: %w", name, err))
				continue
			}
			checkpoint = previous.sameCheckpoint(checkpoint)
			checkpoints[routeCfg.Checkpoint] = checkpoint
		}
		route, err := buildRoute(cfg, name, checkpoint)
		if err != nil {
			errs = append(errs, fmt.Errorf("route %q: %w", name, err))
			continue
		}
		if p := probes[routeCfg.Probe]; p != nil {
			route.Probe = p
		}
		warnings = append(warnings, warnOfTradeOff(route)...)
		snapshot.routes[name] = route
	}
	return snapshot, warnings, errors.Join(errs...)
}

// sameCheckpoint returns the generation's own checkpoint of the same content, if it
// has one, so that a reload of the rest does not keep two in memory.
func (g *generation) sameCheckpoint(c *scorer.Checkpoint) *scorer.Checkpoint {
	if g == nil {
		return c
	}
	for _, r := range g.snapshot.routes {
		if r.Checkpoint.Digest() == c.Digest() {
			return r.Checkpoint
		}
	}
	return c
}

// buildRoute makes a route of its configuration and its checkpoint.
func buildRoute(cfg *config.Config, name string, checkpoint *scorer.Checkpoint) (*Route, error) {
	routeCfg := cfg.Routes[name]
	probeCfg := cfg.Probes[routeCfg.Probe]
	manifest := checkpoint.Manifest()
	if manifest.Encoder != probeCfg.Encoder {
		return nil, fmt.Errorf("probe %q has the encoder %q, but the checkpoint in %s was made for %q",
			routeCfg.Probe, probeCfg.Encoder, routeCfg.Checkpoint, manifest.Encoder)
	}
	chatTemplate, err := json.Marshal(probeCfg.ChatTemplateKwargs) // sorted by key
	if err != nil {
		return nil, fmt.Errorf("probe %q: chat_template_kwargs: %w", routeCfg.Probe, err)
	}
	r := &Route{
		Name:     name,
		TradeOff: tradeOff(routeCfg.Policy),
		Mode:     pointsmanv1.RouteMode_ROUTE_MODE_SERVE,
		Task: TaskRules{
			From:     FirstUser,
			Terminus: routeCfg.TaskEnvelope == config.TaskEnvelopeTerminus,
			MaxBytes: int(min(cfg.GRPC.MaxTaskBytes, probeCfg.MaxPromptBytes)),
		},
		Timeout:    time.Duration(routeCfg.DecideTimeout),
		Checkpoint: checkpoint,
		probeName:  routeCfg.Probe,
		shape:      probe.Shape{Layers: manifest.Layers, HiddenSize: manifest.HiddenSize},
		key: cache.KeyFields{
			Encoder:          probeCfg.Encoder,
			Revision:         probeCfg.Revision,
			ChatTemplate:     chatTemplate,
			CheckpointDigest: checkpoint.Digest(),
		},
	}
	if routeCfg.Mode == config.ModeShadow {
		r.Mode = pointsmanv1.RouteMode_ROUTE_MODE_SHADOW
	}
	if routeCfg.TaskFrom == config.TaskFromLatestUser {
		r.Task.From = LatestUser
	}
	heads := checkpoint.Heads()
	for _, t := range routeCfg.Targets {
		head := slices.Index(heads, t.Head)
		if head < 0 {
			return nil, fmt.Errorf("target %q: the checkpoint in %s has no head %q; it has %s",
				t.Name, routeCfg.Checkpoint, t.Head, strings.Join(heads, ", "))
		}
		target := &Target{Name: t.Name, Model: t.Model, Tier: tier(t.Tier), Head: t.Head, Cost: t.Cost}
		r.Targets = append(r.Targets, target)
		r.candidates = append(r.candidates, scorer.Candidate{Head: head, Cost: t.Cost})
		if t.Name == routeCfg.Fallback {
			r.Fallback = target
		}
	}
	return r, nil
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

// probeConfig is a probe's configuration in the probe's own terms.
func probeConfig(name string, c config.Probe) probe.Config {
	out := probe.Config{
		Name:                name,
		Model:               c.ServedModel,
		ChatTemplateKwargs:  c.ChatTemplateKwargs,
		APIKey:              c.APIKey.Reveal(),
		MaxInFlight:         c.MaxInFlight,
		MaxQueue:            c.MaxQueue,
		QueueTimeout:        time.Duration(c.QueueTimeout),
		RequestTimeout:      time.Duration(c.RequestTimeout),
		ArtifactTimeout:     time.Duration(c.ArtifactTimeout),
		MaxArtifactBytes:    int64(c.MaxArtifactBytes),
		MaxOutstandingBytes: int64(c.MaxOutstanding),
		HealthInterval:      time.Duration(c.HealthInterval),
		ZeroVectors:         probe.ZeroRefuse,
		Breaker:             probe.Breaker{Failures: c.Breaker.Failures, OpenFor: time.Duration(c.Breaker.OpenFor)},
		Sweep:               probe.Sweep{Interval: time.Duration(c.Sweep.Interval), MinAge: time.Duration(c.Sweep.MinAge), All: c.Sweep.All},
	}
	if c.ZeroVectors == config.ZeroVectorsAllowSlot0 {
		out.ZeroVectors = probe.ZeroAllowSlot0
	}
	return out
}

// endpoints are a probe's servers in the probe's own terms.
func endpoints(c config.Probe) []probe.Endpoint {
	out := make([]probe.Endpoint, len(c.Endpoints))
	for i, e := range c.Endpoints {
		out[i] = probe.Endpoint(e)
	}
	return out
}

// computeMargin is what a computation may take beside its probe: scoring, and
// waiting for a processor.
const computeMargin = 5 * time.Second

// cacheConfig is the cache's configuration in the cache's own terms. A computation
// may take as long as the slowest probe's own limits allow.
func cacheConfig(c *config.Config) cache.Config {
	var budget time.Duration
	for _, p := range c.Probes {
		attempt := time.Duration(p.QueueTimeout + p.RequestTimeout + p.ArtifactTimeout)
		if len(p.Endpoints) > 1 {
			attempt *= 2 // a transient failure is tried once more
		}
		budget = max(budget, attempt)
	}
	out := cache.DefaultConfig()
	out.TTL = time.Duration(c.Cache.TTL)
	out.MaxEntries = c.Cache.Local.MaxEntries
	out.ComputeTimeout = budget + computeMargin
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
