package main

import (
	"container/list"
	"math"
	"math/rand/v2"
	"sort"
	"time"
)

// zipf draws task numbers 0..n-1; the k-th is drawn in proportion to 1/(k+1)^skew. The
// standard library's needs a skew above 1.
type zipf struct{ cumulative []float64 }

func newZipf(skew float64, n int) *zipf {
	z := &zipf{cumulative: make([]float64, n)}
	sum := 0.0
	for k := range n {
		sum += math.Pow(float64(k+1), -skew)
		z.cumulative[k] = sum
	}
	return z
}

func (z *zipf) draw(random *rand.Rand) int {
	wanted := random.Float64() * z.cumulative[len(z.cumulative)-1]
	return sort.SearchFloat64s(z.cumulative, wanted)
}

// lru is a cache of the most recently used tasks. The real local cache keeps frequent
// ones longer, so the simulation is on the safe side.
type lru struct {
	most    int
	order   *list.List // the most recently used first
	entries map[int]*list.Element
}

type lruEntry struct {
	task     int
	computed time.Duration
}

// entryOf is what an element of the order holds.
func entryOf(e *list.Element) *lruEntry { return e.Value.(*lruEntry) } //nolint:forcetypeassert // nothing else

func newLRU(most int) *lru {
	return &lru{most: most, order: list.New(), entries: map[int]*list.Element{}}
}

func (l *lru) len() int { return len(l.entries) }

// get says whether the task is there and young enough.
func (l *lru) get(task int, now, ttl time.Duration) bool {
	e, ok := l.entries[task]
	if !ok {
		return false
	}
	if now-entryOf(e).computed >= ttl {
		l.order.Remove(e)
		delete(l.entries, task)
		return false
	}
	l.order.MoveToFront(e)
	return true
}

// when says when the scores of a task that is there were computed.
func (l *lru) when(task int) time.Duration { return entryOf(l.entries[task]).computed }

func (l *lru) put(task int, computed time.Duration) {
	if e, ok := l.entries[task]; ok {
		entryOf(e).computed = computed
		l.order.MoveToFront(e)
		return
	}
	l.entries[task] = l.order.PushFront(&lruEntry{task, computed})
	if len(l.entries) > l.most {
		last := l.order.Back()
		l.order.Remove(last)
		delete(l.entries, entryOf(last).task)
	}
}
