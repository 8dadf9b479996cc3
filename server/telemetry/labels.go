package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// labels is one set of labels, ready to be handed to an instrument: a measurement on
// the path of an answer allocates nothing.
type labels struct {
	add    []metric.AddOption
	record []metric.RecordOption
	// observe is for instruments that are read when they are scraped.
	observe []metric.ObserveOption
}

// newLabels makes a set of name and value pairs.
func newLabels(pairs ...string) labels {
	attrs := make([]attribute.KeyValue, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		attrs = append(attrs, attribute.String(pairs[i], pairs[i+1]))
	}
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return labels{
		add:     []metric.AddOption{set},
		record:  []metric.RecordOption{set},
		observe: []metric.ObserveOption{set},
	}
}
