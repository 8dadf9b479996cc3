package telemetry

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
)

// tally counts what happens on the path of every cached answer, and is read when
// metrics are collected: a tenth of what a counter costs.
type tally struct {
	labels

	n atomic.Int64
}

// Add counts n more.
func (t *tally) Add(n int64) { t.n.Add(n) }

// report reports the count, if there is one.
func (t *tally) report(o metric.Observer, counter metric.Int64Observable) {
	if n := t.n.Load(); n > 0 {
		o.ObserveInt64(counter, n, t.observe...)
	}
}

// reportTallies has all tallies reported whenever metrics are collected.
func (t *Telemetry) reportTallies() error {
	_, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, d := range t.decisions.All() {
			d.report(o, t.in.decisions)
		}
		for layer := range t.lookups {
			for found := range t.lookups[layer] {
				t.lookups[layer][found].report(o, t.in.cacheLookups)
			}
		}
		return nil
	}, t.in.decisions, t.in.cacheLookups)
	return err
}
