package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/probe/lexical"
	"github.com/pointsman-dev/pointsman/server/config"
)

// newProbe makes a probe of its configuration. observer sees a probe of kind vllm
// alone.
func newProbe(name string, cfg config.Probe, log *slog.Logger, observer probe.Observer) (Prober, error) {
	if cfg.Kind == config.ProbeKindLexical {
		return lexical.New(cfg.MaxInFlight)
	}
	return probe.NewGroup(probeConfig(name, cfg), endpoints(cfg), probe.WithLogger(log), probe.WithObserver(observer))
}

// probeWarnings are what is likely a mistake about a probe's endpoints.
func probeWarnings(p Prober) []string {
	var all []string
	endpoints := endpointsOf(p)
	for i, e := range endpoints {
		for _, w := range e.Warnings() {
			all = append(all, warnOfEndpoint(i, len(endpoints), w))
		}
	}
	return all
}

// warnOfEndpoint says which of n endpoints a warning is of.
func warnOfEndpoint(i, n int, warning string) string {
	if n == 1 {
		return warning
	}
	return fmt.Sprintf("endpoint %d: %s", i, warning)
}

// endpointsOf are the servers that a probe asks; none for one that asks nobody.
func endpointsOf(p Prober) []*probe.VLLM {
	if held, ok := p.(*heldProbe); ok {
		p = held.Prober
	}
	if group, ok := p.(*probe.Group); ok {
		return group.Endpoints()
	}
	return nil
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

// probeConfig is a probe's configuration in the probe's own terms.
func probeConfig(name string, c config.Probe) probe.Config {
	out := probe.Config{
		Name:               name,
		Model:              c.ServedModel,
		ChatTemplateKwargs: c.ChatTemplateKwargs,
		APIKey:             c.APIKey.Reveal(),
		MaxInFlight:        c.MaxInFlight,
		MaxQueue:           c.MaxQueue,
		QueueTimeout:       time.Duration(c.QueueTimeout),
		RequestTimeout:     time.Duration(c.RequestTimeout),
		ArtifactTimeout:    time.Duration(c.ArtifactTimeout),
		MaxArtifactBytes:   int64(c.MaxArtifactBytes),
		HealthInterval:     time.Duration(c.HealthInterval),
		ZeroVectors:        probe.ZeroRefuse,
		Breaker:            probe.Breaker{Failures: c.Breaker.Failures, OpenFor: time.Duration(c.Breaker.OpenFor)},
		Sweep:              probe.Sweep{Interval: time.Duration(c.Sweep.Interval), MinAge: time.Duration(c.Sweep.MinAge), All: c.Sweep.All},
	}
	if c.MaxOutstanding != nil { // else the probe looks at the folder
		out.MaxOutstandingBytes = int64(*c.MaxOutstanding)
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
