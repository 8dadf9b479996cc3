package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"

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

// memo remembers what was made of a key. Reading takes no lock and allocates nothing;
// every new key copies the map, which is why it is only for keys of closed sets.
type memo[K comparable, V any] struct {
	known atomic.Pointer[map[K]V]
	mu    sync.Mutex
}

// get returns the key's value, which create makes the first time.
func (m *memo[K, V]) get(key K, create func(K) V) V {
	if known := m.known.Load(); known != nil {
		if v, ok := (*known)[key]; ok {
			return v
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next := map[K]V{}
	if known := m.known.Load(); known != nil {
		if v, ok := (*known)[key]; ok {
			return v
		}
		maps.Copy(next, *known)
	}
	v := create(key)
	next[key] = v
	m.known.Store(&next)
	return v
}
