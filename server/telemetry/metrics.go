package telemetry

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// The bounds of histograms. A decision from the local cache takes some 0.1 ms, one
// that waits for a long prompt's prefill seconds.
var (
	secondsBounds = []float64{
		0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
	}
	// rpcBounds are those of OpenTelemetry's conventions for RPC.
	rpcBounds = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	// shortBounds are for work on the processor and near Redis: 10 microseconds to 0.1 s.
	shortBounds = []float64{0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1}
	// shareBounds divide a probability evenly.
	shareBounds = []float64{0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95}
	// confidenceBounds begin at 0.5, below which a confidence never is.
	confidenceBounds = []float64{0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 0.999}
	marginBounds     = []float64{0, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1}
	// bytesBounds are 64 KiB to 8 GiB, the default of max_artifact_bytes.
	bytesBounds  = []float64{1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 29, 1 << 30, 1 << 31, 1 << 32, 1 << 33}
	tokensBounds = []float64{16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}
)

// instruments are what measurements are written to. What is read when it is scraped is
// in tally.go and gauges.go.
type instruments struct {
	rpcDuration metric.Float64Histogram
	refused     metric.Int64Counter
	reloads     metric.Int64Counter

	decisions   metric.Int64ObservableCounter
	decideTime  metric.Float64Histogram
	confidence  metric.Float64Histogram
	margin      metric.Float64Histogram
	probability metric.Float64Histogram
	shadow      metric.Int64Counter
	scoreTime   metric.Float64Histogram
	panics      metric.Int64Counter

	cacheLookups metric.Int64ObservableCounter
	cacheTime    metric.Float64Histogram
	cacheEvents  metric.Int64Counter
	redisTime    metric.Float64Histogram

	probeTime    metric.Float64Histogram
	probeShed    metric.Int64Counter
	breaker      metric.Int64Counter
	artifacts    metric.Int64Counter
	artifactSize metric.Int64Histogram
	tokens       metric.Int64Histogram
	sweeps       metric.Int64Counter
	sweepTime    metric.Float64Histogram
	swept        metric.Int64Counter
	sweepLeft    metric.Int64Gauge

	record metric.Int64Counter
}

// newInstruments makes them all.
func newInstruments(meter metric.Meter) (*instruments, error) {
	m := maker{meter: meter}
	in := &instruments{
		rpcDuration: m.seconds(metricRPCDuration, "How long calls took, by method and status code.", rpcBounds),
		refused:     m.counter(metricRefused, "{call}", "Calls that were refused for want of a valid token."),
		reloads:     m.counter(metricReloads, "{reload}", "Reloads of the configuration, by whether it was taken over."),

		decisions:   m.tally(metricDecisions, "{decision}", "Decisions, by what was decided and why."),
		decideTime:  m.seconds(metricDecideTime, "How long decisions took, by where their scores came from.", secondsBounds),
		confidence:  m.values(metricConfidence, "How stable choices were over the ensemble, 0.5 to 1.", confidenceBounds),
		margin:      m.values(metricMargin, "How far choices were from tipping, in the policy's unit.", marginBounds),
		probability: m.values(metricProbability, "The predicted probability that a head's model answers well.", shareBounds),
		shadow:      m.counter(metricShadow, "{decision}", "Decisions of routes in shadow mode: the target answered and the one that would have been chosen."),
		scoreTime:   m.seconds(metricScoreTime, "How long features took to become probabilities.", shortBounds),
		panics:      m.counter(metricPanics, "{panic}", "Panics that were survived, by where."),

		cacheLookups: m.tally(metricCacheLookups, "{lookup}", "Looks into the caches, by layer and what was found."),
		cacheTime:    m.seconds(metricCacheTime, "How long calls waited for a computation, or computations took.", secondsBounds),
		cacheEvents:  m.counter(metricCacheEvents, "{event}", "What happened to leases, stores and joiners."),
		redisTime:    m.seconds(metricRedisTime, "How long exchanges with Redis took, by operation and outcome.", shortBounds),

		probeTime:    m.seconds(metricProbeTime, "How long stages of probes took, by outcome.", secondsBounds),
		probeShed:    m.counter(metricProbeShed, "{probe}", "Probes that were turned away before they were sent."),
		breaker:      m.counter(metricBreaker, "{change}", "Changes of the circuit breaker: down when it opens, degraded when it tries again, ready when it closes."),
		artifacts:    m.counter(metricArtifacts, "{artifact}", "Artifacts that were looked for, by number format, lock, and whether something was left."),
		artifactSize: m.sizes(metricArtifactSize, unitBytes, "The size of artifacts.", bytesBounds),
		tokens:       m.sizes(metricTokens, "{token}", "The tokens of probed tasks.", tokensBounds),
		sweeps:       m.counter(metricSweeps, "{sweep}", "Sweeps of the hidden-states folder, by outcome."),
		sweepTime:    m.seconds(metricSweepTime, "How long sweeps took.", secondsBounds),
		swept:        m.counter(metricSwept, "{file}", "Files that sweeps removed."),
		sweepLeft:    m.gauge(metricSweepLeft, "{file}", "Files that the last sweep left, by why: held locks, or not ours."),

		record: m.counter(metricRecord, "{decision}", "Decisions for the decision record, by what became of them."),
	}
	return in, errors.Join(m.errs...)
}

// maker makes instruments and keeps what went wrong.
type maker struct {
	meter metric.Meter
	errs  []error
}

func (m *maker) keep(err error) {
	if err != nil {
		m.errs = append(m.errs, err)
	}
}

func (m *maker) counter(name, unit, description string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.keep(err)
	return c
}

// tally makes a counter that is read when metrics are collected.
func (m *maker) tally(name, unit, description string) metric.Int64ObservableCounter {
	c, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.keep(err)
	return c
}

func (m *maker) gauge(name, unit, description string) metric.Int64Gauge {
	g, err := m.meter.Int64Gauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.keep(err)
	return g
}

func (m *maker) seconds(name, description string, bounds []float64) metric.Float64Histogram {
	return m.histogram(name, unitSeconds, description, bounds)
}

func (m *maker) values(name, description string, bounds []float64) metric.Float64Histogram {
	return m.histogram(name, unitOne, description, bounds)
}

func (m *maker) histogram(name, unit, description string, bounds []float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(bounds...))
	m.keep(err)
	return h
}

func (m *maker) sizes(name, unit, description string, bounds []float64) metric.Int64Histogram {
	h, err := m.meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(bounds...))
	m.keep(err)
	return h
}
