package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/pointsman-dev/pointsman/probe"
)

// State is what is read when metrics are collected.
type State struct {
	Probes map[string]probe.Status
	Routes []RouteState
	// RedisUp is nil without a shared cache.
	RedisUp *bool
}

// RouteState is a route's checkpoint.
type RouteState struct {
	Route, Digest, Encoder string
	// Shifts are those of the heads that have enough scores.
	Shifts []HeadShift
}

// HeadShift is how far a head's scores of late are from those its checkpoint was made
// with: the population stability index.
type HeadShift struct {
	Head string
	PSI  float64
}

// Watch lets metrics read the state whenever they are collected. It is called once.
func (t *Telemetry) Watch(read func() State) error {
	m := gauges{meter: t.meter}
	var (
		inFlight   = m.make(metricProbeInFlight, "{probe}", "Probes that hold a slot.")
		queued     = m.make(metricProbeQueued, "{probe}", "Probes that wait for a slot.")
		capacity   = m.make(metricProbeCapacity, "{probe}", "Slots.")
		state      = m.make(metricProbeState, "", "1 for the state the probe is in; down means that the circuit breaker is open.")
		redisUp    = m.make(metricRedisUp, "", "1 while the shared cache is in use, 0 while it is done without.")
		checkpoint = m.make(metricCheckpoint, "", "1 for every checkpoint in use.")
		build      = m.make(metricBuild, "", "1, labelled with what this is.")
	)
	psi, err := t.meter.Float64ObservableGauge(metricPSI, metric.WithDescription(
		"The population stability index of the scores of late against the training record's; above 0.25 they have shifted."))
	if err := errors.Join(append(m.errs, err)...); err != nil {
		return err
	}
	buildLabels := newLabels(labelVersion, t.build.version, labelCommit, t.build.commit, labelGoVersion, t.build.goVersion).observe
	_, err = t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(build, 1, buildLabels...)
		s := read()
		for name, status := range s.Probes {
			l := newLabels(labelProbe, name).observe
			o.ObserveInt64(inFlight, int64(status.InFlight), l...)
			o.ObserveInt64(queued, int64(status.Queued), l...)
			o.ObserveInt64(capacity, int64(status.Capacity), l...)
			for _, candidate := range []probe.State{probe.StateReady, probe.StateDegraded, probe.StateDown} {
				o.ObserveInt64(state, oneIf(candidate == status.State), newLabels(labelProbe, name, labelState, candidate.String()).observe...)
			}
		}
		if s.RedisUp != nil {
			o.ObserveInt64(redisUp, oneIf(*s.RedisUp))
		}
		for _, r := range s.Routes {
			o.ObserveInt64(checkpoint, 1, newLabels(labelRoute, r.Route, labelDigest, r.Digest, labelEncoder, r.Encoder).observe...)
			for _, h := range r.Shifts {
				o.ObserveFloat64(psi, h.PSI, t.heads.Get(headKey{r.Route, h.Head}, headLabels).observe...)
			}
		}
		return nil
	}, append(m.made, psi)...)
	return err
}

// oneIf is 1 for true.
func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// gauges makes gauges that are read when they are collected.
type gauges struct {
	meter metric.Meter
	made  []metric.Observable
	errs  []error
}

func (g *gauges) make(name, unit, description string) metric.Int64ObservableGauge {
	gauge, err := g.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		g.errs = append(g.errs, err)
	}
	g.made = append(g.made, gauge)
	return gauge
}
