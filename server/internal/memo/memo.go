// Package memo remembers what was made of keys that come again and again.
package memo

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Memo remembers what was made of a key. Reading takes no lock and allocates nothing;
// every new key copies the map, which is why it is only for keys of closed sets. The
// zero value is empty.
type Memo[K comparable, V any] struct {
	known atomic.Pointer[map[K]V]
	mu    sync.Mutex
}

// Get returns the key's value, which create makes the first time.
func (m *Memo[K, V]) Get(key K, create func(K) V) V {
	if v, ok := m.All()[key]; ok {
		return v
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.All()[key]; ok {
		return v
	}
	next := maps.Clone(m.All())
	if next == nil {
		next = map[K]V{}
	}
	v := create(key)
	next[key] = v
	m.known.Store(&next)
	return v
}

// All returns everything that is remembered. It must not be changed.
func (m *Memo[K, V]) All() map[K]V {
	if known := m.known.Load(); known != nil {
		return *known
	}
	return nil
}
