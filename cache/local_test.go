package cache

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSecondCallHitsTheLocalCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		start := time.Now()
		got, err := l.Get(t.Context(), keyOf("a"), Options{}, always(runs, time.Second, "v"))
		want(t, got, err, "v", Computed)
		if end := start.Add(time.Second); !got.Computed.Equal(end) {
			t.Errorf("computed at %v, want the end of the computation, %v", got.Computed, end)
		}
		got, err = l.Get(t.Context(), keyOf("a"), Options{}, never(t))
		want(t, got, err, "v", Local)
	})
}

func TestEntryExpiresByItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		compute := always(runs, 0, "v")
		_, _ = l.Get(t.Context(), keyOf("a"), Options{}, compute)
		time.Sleep(time.Hour - 1)
		got, err := l.Get(t.Context(), keyOf("a"), Options{}, compute)
		want(t, got, err, "v", Local)
		time.Sleep(time.Nanosecond)
		got, err = l.Get(t.Context(), keyOf("a"), Options{}, compute)
		want(t, got, err, "v", Computed)
	})
}

// A value that came late to this layer must not live a full TTL from then.
func TestAgeCountsFromTheComputationNotFromTheArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := newLocalStore[string](Config{TTL: time.Hour, MaxEntries: 10}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		store.set(keyOf("a"), Entry[string]{"v", time.Now().Add(-59 * time.Minute)})
		if _, outcome := store.get(keyOf("a"), time.Time{}); outcome != Hit {
			t.Errorf("59 minutes old: %v, want a hit", outcome)
		}
		time.Sleep(time.Minute)
		if _, outcome := store.get(keyOf("a"), time.Time{}); outcome != Miss {
			t.Errorf("60 minutes old: %v, want a miss", outcome)
		}
	})
}

func TestMaxAge(t *testing.T) {
	for _, c := range []struct {
		name   string
		maxAge *time.Duration
		origin Origin
	}{
		{"none accepts any age", nil, Local},
		{"longer than the age", new(11 * time.Second), Local},
		{"the age itself", new(10 * time.Second), Local},
		{"shorter than the age", new(9 * time.Second), Computed},
		{"zero", new(time.Duration(0)), Computed},
		{"negative counts as zero", new(-time.Hour), Computed},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, runs := newLadder(t, Deps[string]{}), new(counter)
				_, _ = l.Get(t.Context(), keyOf("a"), Options{}, always(runs, 0, "v"))
				time.Sleep(10 * time.Second)
				got, err := l.Get(t.Context(), keyOf("a"), Options{MaxAge: c.maxAge}, always(runs, 0, "v"))
				want(t, got, err, "v", c.origin)
			})
		})
	}
}

func TestLocalCacheIsBounded(t *testing.T) {
	cfg := Config{TTL: time.Hour, MaxEntries: 50, ComputeTimeout: time.Minute}
	store, err := newLocalStore[string](cfg, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5000 {
		store.set(keyOf(fmt.Sprint(i)), Entry[string]{"v", time.Now()})
	}
	store.entries.CleanUp()
	if n := store.entries.EstimatedSize(); n > cfg.MaxEntries {
		t.Errorf("%d entries, want at most %d", n, cfg.MaxEntries)
	}
}

func TestHitAllocatesNothing(t *testing.T) {
	l, runs := newLadder(t, Deps[string]{}), new(counter)
	key, compute := keyOf("a"), always(runs, 0, "v")
	_, _ = l.Get(t.Context(), key, Options{}, compute)
	ctx := context.Background()
	if n := testing.AllocsPerRun(1000, func() { _, _ = l.Get(ctx, key, Options{}, compute) }); n >= 1 && !raceEnabled {
		t.Errorf("%v allocations a hit, want none", n)
	}
}

func BenchmarkLocalHit(b *testing.B) {
	l, err := New(DefaultConfig(), Deps[[24]float32]{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close(context.Background()) }()
	compute := func(context.Context) ([24]float32, error) { return [24]float32{}, nil }
	keys := make([]Key, 1024)
	for i := range keys {
		keys[i] = keyOf(fmt.Sprint(i))
		_, _ = l.Get(b.Context(), keys[i], Options{}, compute)
	}
	b.Run("one goroutine", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			_, _ = l.Get(b.Context(), keys[i%len(keys)], Options{}, compute)
		}
	})
	b.Run("parallel, one key", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = l.Get(b.Context(), keys[0], Options{}, compute)
			}
		})
	})
	b.Run("parallel, many keys", func(b *testing.B) {
		b.ReportAllocs()
		var next atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for i := int(next.Add(97)); pb.Next(); i++ {
				_, _ = l.Get(b.Context(), keys[i%len(keys)], Options{}, compute)
			}
		})
	})
}
