// Package cachetest has what tests of the cache need: a shared layer in memory, and the two suites that every shared layer and every
// ladder must pass.
package cachetest

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
)

// Memory is a [cache.SharedLayer] in this process's memory. It plays Redis for several ladders at once, lives by the clock of the
// synctest bubble it is used in, and can be put into trouble. It is safe for concurrent use.
type Memory struct {
	mu     sync.Mutex
	values map[cache.Key]stored
	leases map[cache.Key]lease
	calls  map[string]int
	fail   func(op string) error
	delay  func(op string) time.Duration
}

type stored struct {
	value []byte
	until time.Time
}

type lease struct {
	token cache.Token
	until time.Time
}

// NewMemory returns an empty layer.
func NewMemory() *Memory {
	return &Memory{values: make(map[cache.Key]stored), leases: make(map[cache.Key]lease), calls: make(map[string]int)}
}

// Fail makes each operation ("read", "claim", "renew", "release", "store") answer with what f returns for it, unless that is nil. A nil
// f ends the trouble. An operation that fails has no effect.
func (m *Memory) Fail(f func(op string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = f
}

// Delay makes each operation take as long as f says. Its effect comes at the end, also for a caller that did not wait for it.
func (m *Memory) Delay(f func(op string) time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delay = f
}

// Calls returns how often the operation was called.
func (m *Memory) Calls(op string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[op]
}

// Leases returns how many leases are held.
func (m *Memory) Leases() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, l := range m.leases {
		if time.Now().Before(l.until) {
			n++
		}
	}
	return n
}

// Put stores bytes as somebody else might.
func (m *Memory) Put(key cache.Key, value []byte, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[key] = stored{value, time.Now().Add(ttl)}
}

// Raw returns the bytes stored under key.
func (m *Memory) Raw(key cache.Key) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.value(key)
}

// Hold takes a lease on key as another process would.
func (m *Memory) Hold(key cache.Key, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leases[key] = lease{cache.Token{1}, time.Now().Add(ttl)}
}

// Evict drops the lease and the value of key, as a full store may.
func (m *Memory) Evict(key cache.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.leases, key)
	delete(m.values, key)
}

// Read implements [cache.SharedLayer].
func (m *Memory) Read(ctx context.Context, key cache.Key) (cache.Stored, error) {
	var got cache.Stored
	if err := m.do(ctx, "read", func() {
		v := m.value(key)
		got = cache.Stored{Raw: v, Value: v}
	}); err != nil {
		return cache.Stored{}, err
	}
	return got, nil
}

// Claim implements [cache.SharedLayer].
func (m *Memory) Claim(ctx context.Context, l cache.Lease, unfit []byte) (cache.Claim, error) {
	var got cache.Claim
	if err := m.do(ctx, "claim", func() {
		if v := m.value(l.Key); v != nil && !bytes.Equal(v, unfit) {
			got.Stored = cache.Stored{Raw: v, Value: v}
		} else if h, ok := m.leases[l.Key]; !ok || !time.Now().Before(h.until) {
			m.leases[l.Key] = lease{l.Token, time.Now().Add(l.TTL)}
			got.Won = true
		}
	}); err != nil {
		return cache.Claim{}, err
	}
	return got, nil
}

// Renew implements [cache.SharedLayer].
func (m *Memory) Renew(ctx context.Context, l cache.Lease) (bool, error) {
	held := false
	if err := m.do(ctx, "renew", func() {
		if held = m.holds(l); held {
			m.leases[l.Key] = lease{l.Token, time.Now().Add(l.TTL)}
		}
	}); err != nil {
		return false, err
	}
	return held, nil
}

// Release implements [cache.SharedLayer].
func (m *Memory) Release(ctx context.Context, l cache.Lease) error {
	return m.do(ctx, "release", func() {
		if m.holds(l) {
			delete(m.leases, l.Key)
		}
	})
}

// Store implements [cache.SharedLayer].
func (m *Memory) Store(ctx context.Context, l cache.Lease, value []byte, ttl time.Duration) error {
	value = slices.Clone(value)
	return m.do(ctx, "store", func() {
		m.values[l.Key] = stored{value, time.Now().Add(ttl)}
		if m.holds(l) {
			delete(m.leases, l.Key)
		}
	})
}

// do carries out one operation: effect runs under the lock, after the delay. When ctx ends before that, the caller is told so and the
// effect comes all the same, as with a server that has the command already.
func (m *Memory) do(ctx context.Context, op string, effect func()) error {
	m.mu.Lock()
	m.calls[op]++
	delay, fail := m.delay, m.fail
	m.mu.Unlock()
	if fail != nil {
		if err := fail(op); err != nil {
			return err
		}
	}
	done := make(chan struct{})
	locked := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		effect()
		close(done)
	}
	if delay == nil || delay(op) == 0 {
		locked()
		return nil
	}
	time.AfterFunc(delay(op), locked)
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *Memory) value(key cache.Key) []byte {
	if v, ok := m.values[key]; ok && time.Now().Before(v.until) {
		return v.value
	}
	return nil
}

func (m *Memory) holds(l cache.Lease) bool {
	h, ok := m.leases[l.Key]
	return ok && h.token == l.Token && time.Now().Before(h.until)
}
