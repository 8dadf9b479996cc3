package cachetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
)

// Codec stores strings as JSON with their header.
type Codec struct{}

type message struct {
	Schema     uint32    `json:"schema"`
	Key        cache.Key `json:"key"`
	Checkpoint string    `json:"checkpoint"`
	Value      string    `json:"value"`
	Computed   time.Time `json:"computed"`
}

// Marshal implements [cache.Codec].
func (Codec) Marshal(h cache.Header, e cache.Entry[string]) ([]byte, error) {
	return json.Marshal(message{h.Schema, h.Key, h.Checkpoint, e.Value, e.Computed})
}

// Unmarshal implements [cache.Codec].
func (Codec) Unmarshal(h cache.Header, data []byte) (cache.Entry[string], error) {
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		return cache.Entry[string]{}, fmt.Errorf("decode: %w", err)
	}
	if h != (cache.Header{Schema: m.Schema, Key: m.Key, Checkpoint: m.Checkpoint}) {
		return cache.Entry[string]{}, errors.New("stored under another header")
	}
	return cache.Entry[string]{Value: m.Value, Computed: m.Computed}, nil
}

// RunLadder checks what every ladder promises, with or without a shared layer. open returns n ladders, as many processes would have
// them, that share what they can: two that share nothing must have shared false.
func RunLadder(t *testing.T, shared bool, open func(t *testing.T, n int) []*cache.Ladder[string]) {
	t.Helper()
	cases := map[string]func(*testing.T, []*cache.Ladder[string]){
		"computed, then cached":                  ladderOrigins,
		"many callers, one computation":          ladderJoins,
		"a failure is shared and forgotten":      ladderFailure,
		"a panic is shared and forgotten":        ladderPanic,
		"bypass reads and writes nothing":        ladderBypass,
		"refresh replaces":                       ladderRefresh,
		"only if cached":                         ladderOnlyIfCached,
		"max age":                                ladderMaxAge,
		"different keys never meet":              ladderKeys,
		"reach":                                  ladderReach,
		"a caller that leaves disturbs no other": ladderLeaving,
	}
	if shared {
		cases["two processes: computed, shared, local"] = sharedOrigins
		cases["two processes: many callers, one computation"] = sharedJoins
		cases["two processes: failure passes the lease on"] = sharedFailure
		cases["two processes: only if cached finds the other's value"] = sharedOnlyIfCached
		cases["two processes: checkpoints are never mixed"] = sharedCheckpoints
		cases["two processes: refresh reaches the other"] = sharedRefresh
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(t, open(t, 2)) })
	}
}

var errCompute = errors.New("computation failed")

var keys atomic.Int64

// newKey returns a key no other test uses.
func newKey() cache.Key {
	keyer, err := cache.NewKeyer(nil)
	if err != nil {
		panic(err)
	}
	return keyer.Key(cache.KeyFields{Task: fmt.Sprint(time.Now().UnixNano(), " ", keys.Add(1))})
}

func value(v string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return v, nil }
}

func unwanted(t *testing.T) func(context.Context) (string, error) {
	t.Helper()
	return func(context.Context) (string, error) {
		t.Error("computed, want no computation")
		return "unwanted", nil
	}
}

// expect gets a value and checks it and where it came from: one of origins.
func expect(
	t *testing.T, l *cache.Ladder[string], key cache.Key, opts cache.Options,
	compute func(context.Context) (string, error), want string, origins ...cache.Origin,
) {
	t.Helper()
	got, err := l.Get(t.Context(), key, opts, compute)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	if got.Value != want || !slices.Contains(origins, got.Origin) {
		t.Fatalf("got %q from origin %d, want %q from one of %v", got.Value, got.Origin, want, origins)
	}
}

func expectErr(t *testing.T, l *cache.Ladder[string], key cache.Key, opts cache.Options, compute func(context.Context) (string, error), want error) {
	t.Helper()
	if got, err := l.Get(t.Context(), key, opts, compute); !errors.Is(err, want) {
		t.Fatalf("got %q, error %v, want error %v", got.Value, err, want)
	}
}

// settle waits until another process sees the value of key, for values are stored after their answer has left.
func settle(t *testing.T, other *cache.Ladder[string], key cache.Key, opts cache.Options) {
	t.Helper()
	opts.Policy = cache.OnlyIfCached
	for range 1000 {
		if _, err := other.Get(t.Context(), key, opts, nil); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the other process never saw the value")
}

func ladderOrigins(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key := newKey()
	expect(t, l[0], key, cache.Options{}, value("v"), "v", cache.Computed)
	expect(t, l[0], key, cache.Options{}, unwanted(t), "v", cache.Local)
}

func ladderJoins(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	joins(t, l[:1])
}

func sharedJoins(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	joins(t, l)
}

// joins lets 40 callers ask all ladders for one key: exactly one computation.
func joins(t *testing.T, ladders []*cache.Ladder[string]) {
	t.Helper()
	key := newKey()
	var runs, computed atomic.Int32
	var callers sync.WaitGroup
	for i := range 40 {
		callers.Go(func() {
			got, err := ladders[i%len(ladders)].Get(t.Context(), key, cache.Options{}, func(context.Context) (string, error) {
				runs.Add(1)
				time.Sleep(50 * time.Millisecond)
				return "v", nil
			})
			if err != nil || got.Value != "v" {
				t.Errorf("got %q, %v", got.Value, err)
			}
			if got.Origin == cache.Computed {
				computed.Add(1)
			}
		})
	}
	callers.Wait()
	if runs.Load() != 1 || computed.Load() != 1 {
		t.Errorf("%d computations, %d callers were told they computed; want 1 and 1", runs.Load(), computed.Load())
	}
}

func ladderFailure(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key := newKey()
	expectErr(t, l[0], key, cache.Options{}, func(context.Context) (string, error) { return "bad", errCompute }, errCompute)
	expect(t, l[0], key, cache.Options{}, value("v"), "v", cache.Computed)
}

func ladderPanic(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key := newKey()
	expectErr(t, l[0], key, cache.Options{}, func(context.Context) (string, error) { panic("boom") }, cache.ErrPanicked)
	expect(t, l[0], key, cache.Options{}, value("v"), "v", cache.Computed)
}

func ladderBypass(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key := newKey()
	expect(t, l[0], key, cache.Options{Policy: cache.Bypass}, value("a"), "a", cache.Computed)
	expectErr(t, l[0], key, cache.Options{Policy: cache.OnlyIfCached}, unwanted(t), cache.ErrNotCached)
	expect(t, l[0], key, cache.Options{}, value("b"), "b", cache.Computed)
	expect(t, l[0], key, cache.Options{Policy: cache.Bypass}, value("c"), "c", cache.Computed)
	expect(t, l[0], key, cache.Options{}, unwanted(t), "b", cache.Local)
}

func ladderRefresh(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key := newKey()
	expect(t, l[0], key, cache.Options{}, value("old"), "old", cache.Computed)
	expect(t, l[0], key, cache.Options{Policy: cache.Refresh}, value("new"), "new", cache.Computed)
	expect(t, l[0], key, cache.Options{}, unwanted(t), "new", cache.Local)
}

func ladderOnlyIfCached(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key := newKey()
	expectErr(t, l[0], key, cache.Options{Policy: cache.OnlyIfCached}, unwanted(t), cache.ErrNotCached)
	expect(t, l[0], key, cache.Options{}, value("v"), "v", cache.Computed)
	expect(t, l[0], key, cache.Options{Policy: cache.OnlyIfCached}, unwanted(t), "v", cache.Local)
}

func ladderMaxAge(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key, short, long := newKey(), 10*time.Millisecond, time.Minute
	expect(t, l[0], key, cache.Options{}, value("old"), "old", cache.Computed)
	settleIfShared(t, l, key)
	time.Sleep(3 * short)
	expect(t, l[0], key, cache.Options{MaxAge: &long}, unwanted(t), "old", cache.Local)
	expectErr(t, l[0], key, cache.Options{MaxAge: &short, Policy: cache.OnlyIfCached}, unwanted(t), cache.ErrNotCached)
	expect(t, l[0], key, cache.Options{MaxAge: &short}, value("new"), "new", cache.Computed)
	expect(t, l[0], key, cache.Options{}, unwanted(t), "new", cache.Local)
}

// settleIfShared gives a store time to happen. Without a shared layer there is nothing to wait for.
func settleIfShared(t *testing.T, l []*cache.Ladder[string], key cache.Key) {
	t.Helper()
	for range 20 {
		if _, err := l[1].Get(t.Context(), key, cache.Options{Policy: cache.OnlyIfCached}, nil); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func ladderKeys(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	a, b := newKey(), newKey()
	expect(t, l[0], a, cache.Options{}, value("a"), "a", cache.Computed)
	expect(t, l[0], b, cache.Options{}, value("b"), "b", cache.Computed)
	expect(t, l[0], a, cache.Options{}, unwanted(t), "a", cache.Local)
	expect(t, l[0], b, cache.Options{}, unwanted(t), "b", cache.Local)
}

func ladderReach(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key := newKey()
	expectErr(t, l[0], key, cache.Options{Reach: cache.ReachLocal}, unwanted(t), cache.ErrNotStarted)
	expectErr(t, l[0], key, cache.Options{Reach: cache.ReachJoin}, unwanted(t), cache.ErrNotStarted)
	expect(t, l[0], key, cache.Options{}, value("v"), "v", cache.Computed)
	expect(t, l[0], key, cache.Options{Reach: cache.ReachLocal}, unwanted(t), "v", cache.Local)
}

func ladderLeaving(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key := newKey()
	started, finish := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	callers.Go(func() {
		_, err := l[0].Get(ctx, key, cache.Options{}, func(context.Context) (string, error) {
			close(started)
			<-finish
			return "v", nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that left got %v", err)
		}
	})
	<-started
	callers.Go(func() {
		got, err := l[0].Get(t.Context(), key, cache.Options{}, unwanted(t))
		if err != nil || got.Value != "v" || got.Origin != cache.JoinedLocal {
			t.Errorf("the caller that stayed got %q from %d, %v", got.Value, got.Origin, err)
		}
	})
	time.Sleep(10 * time.Millisecond)
	cancel()
	time.Sleep(10 * time.Millisecond)
	close(finish)
	callers.Wait()
}

func sharedOrigins(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key := newKey()
	expect(t, l[0], key, cache.Options{}, value("v"), "v", cache.Computed)
	time.Sleep(50 * time.Millisecond) // the store leaves after the answer
	expect(t, l[1], key, cache.Options{}, unwanted(t), "v", cache.Shared)
	expect(t, l[1], key, cache.Options{}, unwanted(t), "v", cache.Local)
}

func sharedFailure(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key := newKey()
	started := make(chan struct{})
	var callers sync.WaitGroup
	callers.Go(func() {
		_, err := l[0].Get(t.Context(), key, cache.Options{}, func(context.Context) (string, error) {
			close(started)
			time.Sleep(50 * time.Millisecond)
			return "", errCompute
		})
		if !errors.Is(err, errCompute) {
			t.Errorf("the first process got %v", err)
		}
	})
	<-started
	expect(t, l[1], key, cache.Options{}, value("second"), "second", cache.Computed)
	callers.Wait()
}

func sharedOnlyIfCached(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key := newKey()
	expect(t, l[0], key, cache.Options{}, value("v"), "v", cache.Computed)
	time.Sleep(50 * time.Millisecond)
	expect(t, l[1], key, cache.Options{Policy: cache.OnlyIfCached}, unwanted(t), "v", cache.Shared)
	expect(t, l[1], key, cache.Options{Policy: cache.OnlyIfCached}, unwanted(t), "v", cache.Local)
}

func sharedCheckpoints(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key := newKey() // the same for both, as only a damaged or forged value's could be
	a, b := cache.Options{Checkpoint: "sha256:a"}, cache.Options{Checkpoint: "sha256:b"}
	expect(t, l[0], key, a, value("a"), "a", cache.Computed)
	time.Sleep(50 * time.Millisecond)
	expect(t, l[1], key, b, value("b"), "b", cache.Computed)
}

func sharedRefresh(t *testing.T, l []*cache.Ladder[string]) {
	t.Helper()
	key, zero := newKey(), 5*time.Millisecond
	expect(t, l[0], key, cache.Options{}, value("old"), "old", cache.Computed)
	settle(t, l[1], key, cache.Options{})
	time.Sleep(3 * zero)
	expect(t, l[0], key, cache.Options{Policy: cache.Refresh}, value("new"), "new", cache.Computed)
	long := time.Minute
	for range 200 { // the other process holds the old value; asking for a younger one than that must find the new one
		if got, err := l[1].Get(t.Context(), key, cache.Options{Policy: cache.OnlyIfCached, MaxAge: &long}, nil); err == nil && got.Value == "old" {
			short := time.Since(got.Computed) - 1
			if got, err := l[1].Get(t.Context(), key, cache.Options{Policy: cache.OnlyIfCached, MaxAge: &short}, nil); err == nil {
				if got.Value != "new" || got.Origin != cache.Shared {
					t.Errorf("got %q from %d, want the new value from the shared cache", got.Value, got.Origin)
				}
				return
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("the refreshed value never reached the other process")
}
