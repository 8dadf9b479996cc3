package cache_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/cachetest"
)

var (
	errRedis = errors.New("redis is in trouble")
	errLoad  = errors.New("load failed")
)

const leaseTTL = 5 * time.Second

// fleet is several processes with one shared layer, in a synctest bubble.
type fleet struct {
	memory    *cachetest.Memory
	processes []*cache.Ladder[string]
	events    events
}

type events struct {
	cache.NopObserver
	mu      sync.Mutex
	counts  map[cache.Event]int
	lookups map[cache.Outcome]int
	panics  int
}

func (e *events) Count(_ context.Context, event cache.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts[event]++
}

func (e *events) Lookup(_ context.Context, layer cache.Layer, outcome cache.Outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if layer == cache.LayerShared {
		e.lookups[outcome]++
	}
}

func (e *events) PanicRecovered(context.Context, any, []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.panics++
}

func (e *events) count(event cache.Event) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts[event]
}

func (e *events) looked(outcome cache.Outcome) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lookups[outcome]
}

func newFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{
		memory: cachetest.NewMemory(),
		events: events{counts: map[cache.Event]int{}, lookups: map[cache.Outcome]int{}},
	}
	for range n {
		l, err := cache.New(
			cache.Config{TTL: time.Hour, MaxEntries: 1000, ComputeTimeout: time.Minute, LeaseTTL: leaseTTL},
			cache.Deps[string]{Shared: f.memory, Codec: cachetest.Codec{}, Observer: &f.events})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(context.Background()); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		f.processes = append(f.processes, l)
	}
	return f
}

func keyOf(name string) cache.Key {
	keyer, err := cache.NewKeyer(nil)
	if err != nil {
		panic(err)
	}
	return keyer.Key(cache.KeyFields{Task: name})
}

// load counts its runs and takes its time whatever becomes of its context.
type load struct {
	takes time.Duration
	err   error
	runs  atomic.Int32
}

func (l *load) compute(context.Context) (string, error) {
	n := l.runs.Add(1)
	time.Sleep(l.takes)
	return fmt.Sprint("value ", n), l.err
}

func (l *load) ran(t *testing.T, want int32) {
	t.Helper()
	if got := l.runs.Load(); got != want {
		t.Errorf("%d computations, want %d", got, want)
	}
}

// ask has each process ask for key with the given number of callers, and waits for all of them.
func (f *fleet) ask(t *testing.T, key cache.Key, callers int, compute func(context.Context) (string, error)) (results []cache.Result[string], errs []error) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range f.processes {
		for range callers {
			wg.Go(func() {
				r, err := p.Get(t.Context(), key, cache.Options{}, compute)
				mu.Lock()
				defer mu.Unlock()
				results, errs = append(results, r), append(errs, err)
			})
		}
	}
	wg.Wait()
	return results, errs
}

func get(t *testing.T, l *cache.Ladder[string], opts cache.Options, compute func(context.Context) (string, error)) cache.Result[string] {
	t.Helper()
	r, err := l.Get(t.Context(), keyOf("a"), opts, compute)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	return r
}

func TestMemoryIsASharedLayer(t *testing.T) {
	cachetest.RunShared(t, func(*testing.T) cache.SharedLayer { return cachetest.NewMemory() })
}

func TestLaddersPassTheSuite(t *testing.T) {
	open := func(shared func() cache.SharedLayer) func(*testing.T, int) []*cache.Ladder[string] {
		return func(t *testing.T, n int) []*cache.Ladder[string] {
			layer := shared()
			var ladders []*cache.Ladder[string]
			for range n {
				l, err := cache.New(cache.DefaultConfig(), cache.Deps[string]{Shared: layer, Codec: cachetest.Codec{}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = l.Close(context.Background()) })
				ladders = append(ladders, l)
			}
			return ladders
		}
	}
	t.Run("local only", func(t *testing.T) {
		cachetest.RunLadder(t, false, open(func() cache.SharedLayer { return nil }))
	})
	t.Run("shared memory", func(t *testing.T) {
		cachetest.RunLadder(t, true, open(func() cache.SharedLayer { return cachetest.NewMemory() }))
	})
}

func TestOneComputationInTheWholeFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 3), load{takes: 2 * time.Second}
		results, errs := f.ask(t, keyOf("a"), 100, load.compute)
		origins := map[cache.Origin]int{}
		for i, r := range results {
			if errs[i] != nil || r.Value != "value 1" {
				t.Fatalf("got %q, %v", r.Value, errs[i])
			}
			origins[r.Origin]++
		}
		load.ran(t, 1)
		// In the process that computes, the other 99 joined; in the two others everyone has the leader's origin.
		if origins[cache.Computed] != 1 || origins[cache.JoinedLocal] != 99 || origins[cache.JoinedShared] != 200 {
			t.Errorf("origins %v", origins)
		}
		synctest.Wait()
		if n := f.memory.Leases(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}

// layercache 59: when the leader died all waiters fetched at once.
func TestDeadLeaderIsReplacedByExactlyOneWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 3), load{takes: 2 * time.Second}
		f.memory.Hold(keyOf("a"), leaseTTL) // by a process that is dead
		begin := time.Now()
		results, errs := f.ask(t, keyOf("a"), 50, load.compute)
		for i := range results {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
		}
		load.ran(t, 1)
		if took := time.Since(begin); took > leaseTTL+load.takes+300*time.Millisecond {
			t.Errorf("took %v, want the rest of the lease, one computation and two pauses of a waiter", took)
		}
		if n := f.events.count(cache.TakenOver); n != 1 {
			t.Errorf("%d take-overs counted, want 1", n)
		}
	})
}

// posthog 56781: followers gave up on a leader that was slow and healthy.
func TestSlowLeaderKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 3), load{takes: 55 * time.Second}
		_, errs := f.ask(t, keyOf("a"), 2, load.compute)
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
		load.ran(t, 1)
		if n := f.memory.Calls("renew"); n < 30 || n > 34 {
			t.Errorf("%d renewals in 55s, want one every third of 5s", n)
		}
	})
}

// artifact-keeper 2256: a computation without a bound held its lease without a bound.
func TestLeaseIsRenewedNoLongerThanTheComputeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 1), load{takes: 10 * time.Minute}
		go func() { _, _ = f.processes[0].Get(t.Context(), keyOf("a"), cache.Options{}, load.compute) }()
		time.Sleep(time.Minute + leaseTTL)
		synctest.Wait()
		if n := f.memory.Leases(); n != 0 {
			t.Errorf("%d leases after the compute timeout and a lease's life, want 0", n)
		}
	})
}

// A call whose computation may take longer than the ladder's own limit renews its lease, and waits for another's, for as long.
func TestALongerComputeTimeoutIsThatOfLeaseAndWaitToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		longer := cache.Options{ComputeTimeout: 2 * time.Minute}
		f, load := newFleet(t, 3), load{takes: 100 * time.Second}
		go func() { _, _ = f.processes[0].Get(t.Context(), keyOf("a"), longer, load.compute) }()
		synctest.Wait()
		var impatient error
		go func() { _, impatient = f.processes[2].Get(t.Context(), keyOf("a"), cache.Options{}, load.compute) }()
		if r := get(t, f.processes[1], longer, load.compute); r.Origin != cache.JoinedShared {
			t.Errorf("origin %d, want another process's computation", r.Origin)
		}
		load.ran(t, 1)
		synctest.Wait()
		if !errors.Is(impatient, cache.ErrWaitTimeout) {
			t.Errorf("who waits by the ladder's own limit got %v", impatient)
		}
	})
}

func TestAShorterComputeTimeoutEndsTheRenewalOfTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 1), load{takes: 10 * time.Minute}
		go func() {
			_, _ = f.processes[0].Get(t.Context(), keyOf("a"), cache.Options{ComputeTimeout: 20 * time.Second}, load.compute)
		}()
		time.Sleep(20 * time.Second)
		if n := f.memory.Leases(); n != 1 {
			t.Errorf("%d leases while it may compute, want 1", n)
		}
		time.Sleep(leaseTTL)
		synctest.Wait()
		if n := f.memory.Leases(); n != 0 {
			t.Errorf("%d leases after the call's limit and a lease's life, want 0", n)
		}
	})
}

// athens 1972, snuba 2128, chproxy 224: waiters got an error of the lock, or the leader's error was stored for all.
func TestFailurePassesTheLeaseOnAndIsStoredNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 3), load{takes: time.Second, err: errLoad}
		_, errs := f.ask(t, keyOf("a"), 20, load.compute)
		for _, err := range errs {
			if !errors.Is(err, errLoad) {
				t.Fatalf("got %v, want the computation's own error", err)
			}
		}
		load.ran(t, 3) // each process takes over at most once
		synctest.Wait()
		if raw := f.memory.Raw(keyOf("a")); raw != nil || f.memory.Leases() != 0 {
			t.Errorf("after failures: stored %q, %d leases", raw, f.memory.Leases())
		}
	})
}

// Each of these must end the lease at once and not leave it to its TTL (rueidis 1010, blnk 354, authgear 5721, ncps 913).
func TestLeaseIsReleasedHoweverTheComputationEnds(t *testing.T) {
	for name, c := range map[string]struct {
		compute func(context.Context) (string, error)
		leave   time.Duration // the caller leaves then
	}{
		"error":               {compute: func(context.Context) (string, error) { return "", errLoad }},
		"panic":               {compute: func(context.Context) (string, error) { panic("boom") }},
		"success":             {compute: func(context.Context) (string, error) { return "v", nil }},
		"left while claiming": {leave: 10 * time.Millisecond, compute: func(context.Context) (string, error) { return "", errLoad }},
		"left while computing": {leave: time.Second, compute: func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}},
		"left while computing what is committed": {leave: time.Second, compute: func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "v", nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1)
				f.memory.Delay(func(op string) time.Duration { // a release may overtake the claim it belongs to
					return map[string]time.Duration{"claim": 20 * time.Millisecond}[op]
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.leave > 0 {
					time.AfterFunc(c.leave, cancel)
				}
				_, _ = f.processes[0].Get(ctx, keyOf("a"), cache.Options{}, c.compute)
				time.Sleep(50 * time.Millisecond)
				if n := f.memory.Leases(); n != 0 {
					t.Errorf("the lease is still held")
				}
				if f.memory.Calls("claim") != 1 {
					t.Errorf("%d claims, want 1: the test does not test", f.memory.Calls("claim"))
				}
			})
		})
	}
}

func TestTroubleMeansComputing(t *testing.T) {
	for name, trouble := range map[string]func(op string) error{
		"from the start": func(string) error { return errRedis },
		"stores":         func(op string) error { return map[string]error{"store": errRedis}[op] },
		"renewals":       func(op string) error { return map[string]error{"renew": errRedis}[op] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, load := newFleet(t, 2), load{takes: 2 * time.Second}
				f.memory.Fail(trouble)
				begin := time.Now()
				if r := get(t, f.processes[0], cache.Options{}, load.compute); r.Origin != cache.Computed || time.Since(begin) != load.takes {
					t.Errorf("origin %d after %v, want computed in %v", r.Origin, time.Since(begin), load.takes)
				}
				if r := get(t, f.processes[0], cache.Options{}, nil); r.Origin != cache.Local {
					t.Errorf("origin %d, want local", r.Origin)
				}
			})
		})
	}
}

func TestWaiterComputesWhenRedisFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 1), load{takes: time.Second}
		f.memory.Hold(keyOf("a"), time.Minute)
		time.AfterFunc(time.Second, func() { f.memory.Fail(func(string) error { return errRedis }) })
		begin := time.Now()
		r := get(t, f.processes[0], cache.Options{}, load.compute)
		if took := time.Since(begin); r.Origin != cache.Computed || took > 2200*time.Millisecond {
			t.Errorf("origin %d after %v, want computed after about 2s", r.Origin, took)
		}
		if r.Wait < time.Second || r.Wait > 1200*time.Millisecond {
			t.Errorf("waited %v, want about 1s", r.Wait)
		}
		if f.events.looked(cache.Failed) == 0 {
			t.Error("the failure was not counted")
		}
	})
}

// A foreign process may hold a lease for ever; nobody computes beside it, and nobody waits for ever.
func TestWaitEndsAndDoesNotComputeBesideALiveLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 1), load{}
		f.memory.Hold(keyOf("a"), 24*time.Hour)
		begin := time.Now()
		_, err := f.processes[0].Get(t.Context(), keyOf("a"), cache.Options{}, load.compute)
		if !errors.Is(err, cache.ErrWaitTimeout) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want ErrWaitTimeout", err)
		}
		if took := time.Since(begin); took != time.Minute+leaseTTL {
			t.Errorf("waited %v, want the compute timeout and a lease's life", took)
		}
		load.ran(t, 0)
		// rueidis 602, common-voice 2476: waiters that never rested.
		if n := f.memory.Calls("claim"); n > 900 {
			t.Errorf("%d questions in 65s, want at most some ten a second", n)
		}
	})
}

func TestWaiterAsksLessOftenTheLongerItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 1), load{}
		f.memory.Hold(keyOf("a"), 24*time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = f.processes[0].Get(ctx, keyOf("a"), cache.Options{}, load.compute)
		if n := f.memory.Calls("claim"); n < 10 || n > 35 {
			t.Errorf("%d questions in the first second, want about twenty", n)
		}
		before := f.memory.Calls("claim")
		time.Sleep(time.Minute)
		if n := f.memory.Calls("claim"); n > before+1 {
			t.Errorf("%d more questions after all callers left", n-before)
		}
	})
}

// redis-lock-py 3, CacheTower 181: here no hint exists that could be lost; a waiter sees a value soon after it is stored.
func TestWaiterSeesTheValueSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 2), load{takes: time.Second}
		go func() { _, _ = f.processes[0].Get(t.Context(), keyOf("a"), cache.Options{}, load.compute) }()
		synctest.Wait()
		begin := time.Now()
		r := get(t, f.processes[1], cache.Options{}, nil)
		if late := time.Since(begin) - load.takes; r.Origin != cache.JoinedShared || late > 125*time.Millisecond {
			t.Errorf("origin %d, %v after the value was there", r.Origin, late)
		}
		if r.Wait != time.Since(begin) {
			t.Errorf("waited %v by its own account, %v by the clock", r.Wait, time.Since(begin))
		}
	})
}

// RedLock.net 101, bullmq 2215: leases evicted under memory pressure.
func TestEvictedLeaseCostsNoMoreThanASecondComputation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 2), load{takes: 3 * time.Second}
		time.AfterFunc(time.Second, func() { f.memory.Evict(keyOf("a")) })
		_, errs := f.ask(t, keyOf("a"), 10, load.compute)
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
		load.ran(t, 2)
		synctest.Wait()
		if f.events.count(cache.LeaseLost) != 1 || f.memory.Leases() != 0 {
			t.Errorf("%d lost leases counted, %d held; want 1 and 0", f.events.count(cache.LeaseLost), f.memory.Leases())
		}
	})
}

// Whatever stands under our key and is not our value is a miss, is counted, and is replaced.
func TestWhatIsNotOursIsAMiss(t *testing.T) {
	good := func(h cache.Header, age time.Duration) []byte {
		b, err := cachetest.Codec{}.Marshal(h, cache.Entry[string]{Value: "stored", Computed: time.Now().Add(-age)})
		if err != nil {
			panic(err)
		}
		return b
	}
	header := cache.Header{Schema: cache.SchemaVersion, Key: keyOf("a"), Checkpoint: "sha256:1"}
	for name, c := range map[string]struct {
		bytes   func() []byte
		outcome cache.Outcome
	}{
		"a good value":       {func() []byte { return good(header, time.Minute) }, cache.Hit},
		"from the future":    {func() []byte { return good(header, -time.Hour) }, cache.Hit},
		"nothing":            {func() []byte { return nil }, cache.Miss},
		"garbage":            {func() []byte { return []byte("garbage") }, cache.Unfit},
		"cut off":            {func() []byte { return good(header, 0)[:20] }, cache.Unfit},
		"another key":        {func() []byte { h := header; h.Key[0]++; return good(h, 0) }, cache.Unfit},
		"another schema":     {func() []byte { h := header; h.Schema++; return good(h, 0) }, cache.Unfit},
		"another checkpoint": {func() []byte { h := header; h.Checkpoint = "sha256:2"; return good(h, 0) }, cache.Unfit},
		"a ttl old":          {func() []byte { return good(header, time.Hour) }, cache.Old},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, load := newFleet(t, 2), load{takes: time.Second}
				if b := c.bytes(); b != nil {
					f.memory.Put(keyOf("a"), b, 24*time.Hour)
				}
				opts := cache.Options{Checkpoint: "sha256:1"}
				r := get(t, f.processes[0], opts, load.compute)
				if n := f.events.looked(c.outcome); n != 1 {
					t.Errorf("outcomes %v, want one %v", f.events.lookups, c.outcome)
				}
				if c.outcome == cache.Hit {
					if r.Value != "stored" || r.Origin != cache.Shared || r.Computed.After(time.Now()) {
						t.Errorf("got %q from %d, computed %v", r.Value, r.Origin, r.Computed)
					}
					return
				}
				if r.Value != "value 1" || r.Origin != cache.Computed || r.Wait != 0 {
					t.Errorf("got %q from %d after waiting %v, want it computed at once", r.Value, r.Origin, r.Wait)
				}
				synctest.Wait()
				if r := get(t, f.processes[1], opts, nil); r.Value != "value 1" || r.Origin != cache.Shared {
					t.Errorf("the other process got %q from %d, want the value that replaced it", r.Value, r.Origin)
				}
				if n := f.memory.Calls("claim") + f.memory.Calls("store"); n > 4 {
					t.Errorf("%d exchanges, want at most 3 and one of the other process", n)
				}
			})
		})
	}
}

func TestUnfitValueIsComputedOnceInTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 3), load{takes: time.Second}
		f.memory.Put(keyOf("a"), []byte("garbage"), time.Hour)
		results, _ := f.ask(t, keyOf("a"), 5, load.compute)
		for _, r := range results {
			if r.Value != "value 1" {
				t.Fatalf("got %q", r.Value)
			}
		}
		load.ran(t, 1)
	})
}

func TestMaxAgeHoldsForTheSharedLayer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 3), load{}
		get(t, f.processes[0], cache.Options{}, load.compute)
		time.Sleep(time.Minute)
		long, short := time.Minute, 30*time.Second
		if r := get(t, f.processes[1], cache.Options{MaxAge: &long}, nil); r.Origin != cache.Shared {
			t.Errorf("a minute accepts a minute: origin %d, want shared", r.Origin)
		}
		if r := get(t, f.processes[2], cache.Options{MaxAge: &short}, load.compute); r.Value != "value 2" || r.Origin != cache.Computed {
			t.Errorf("30s refuse a minute: got %q from %d, want it computed", r.Value, r.Origin)
		}
	})
}

func TestSharedValueKeepsItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 2), load{}
		first := get(t, f.processes[0], cache.Options{}, load.compute)
		time.Sleep(50 * time.Minute)
		if r := get(t, f.processes[1], cache.Options{}, nil); !r.Computed.Equal(first.Computed) {
			t.Errorf("computed %v, want %v", r.Computed, first.Computed)
		}
		time.Sleep(10 * time.Minute)
		get(t, f.processes[1], cache.Options{}, load.compute)
		load.ran(t, 2)
	})
}

// What each policy asks of the shared layer, and in how many exchanges.
func TestExchangesOfEachPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		opts                        cache.Options
		read, claim, store, release int // when nothing is stored
		hitRead, hitClaim, hitStore int // when a value is
	}{
		"default":        {opts: cache.Options{}, claim: 1, store: 1, hitClaim: 1},
		"bypass":         {opts: cache.Options{Policy: cache.Bypass}},
		"refresh":        {opts: cache.Options{Policy: cache.Refresh}, store: 1, hitStore: 1},
		"only if cached": {opts: cache.Options{Policy: cache.OnlyIfCached}, read: 1, hitRead: 1},
		"reach join":     {opts: cache.Options{Reach: cache.ReachJoin}, read: 1, hitRead: 1},
		"reach local":    {opts: cache.Options{Reach: cache.ReachLocal}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, load := newFleet(t, 2), load{}
				calls := func() [4]int {
					synctest.Wait()
					m := f.memory
					return [4]int{m.Calls("read"), m.Calls("claim"), m.Calls("store"), m.Calls("release")}
				}
				_, _ = f.processes[0].Get(t.Context(), keyOf("a"), c.opts, load.compute)
				if got, want := calls(), [4]int{c.read, c.claim, c.store, c.release}; got != want {
					t.Errorf("nothing stored: read, claim, store, release %v, want %v", got, want)
				}
				get(t, f.processes[0], cache.Options{}, load.compute)
				before := calls()
				_, _ = f.processes[1].Get(t.Context(), keyOf("a"), c.opts, load.compute)
				after := calls()
				for i, want := range [4]int{c.hitRead, c.hitClaim, c.hitStore, 0} {
					if got := after[i] - before[i]; got != want {
						t.Errorf("value stored: %d of operation %d, want %d", got, i, want)
					}
				}
			})
		})
	}
}

func TestBypassCallerDoesNotWaitForALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 1), load{}
		f.memory.Hold(keyOf("a"), time.Hour)
		for _, policy := range []cache.Policy{cache.Bypass, cache.Refresh} {
			begin := time.Now()
			if r := get(t, f.processes[0], cache.Options{Policy: policy}, load.compute); r.Origin != cache.Computed || time.Since(begin) != 0 {
				t.Errorf("policy %d: origin %d after %v", policy, r.Origin, time.Since(begin))
			}
		}
		synctest.Wait()
		if f.memory.Leases() != 1 {
			t.Error("a refresh ended another's lease")
		}
	})
}

func TestLeasesAreGivenBackOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		stuck, sound := &load{takes: 30 * time.Second}, &load{takes: time.Second}
		go func() {
			_, _ = f.processes[0].Get(t.Context(), keyOf("a"), cache.Options{Source: "broken"}, stuck.compute)
		}()
		go func() {
			_, _ = f.processes[0].Get(t.Context(), keyOf("b"), cache.Options{Source: "whole"}, stuck.compute)
		}()
		time.Sleep(time.Second)
		f.processes[0].ReleaseLeases("broken")
		synctest.Wait()
		if n := f.memory.Leases(); n != 1 {
			t.Errorf("%d leases are held, want the one of the other source", n)
		}
		begin := time.Now()
		if r := get(t, f.processes[1], cache.Options{}, sound.compute); r.Origin != cache.Computed || time.Since(begin) != time.Second {
			t.Errorf("the other process: origin %d after %v", r.Origin, time.Since(begin))
		}
		time.Sleep(time.Minute)
		if n := f.memory.Leases(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}

func TestSlowStoreDelaysNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 1), load{}
		f.memory.Fail(func(op string) error {
			if op == "store" {
				time.Sleep(10 * time.Second)
			}
			return nil
		})
		begin := time.Now()
		get(t, f.processes[0], cache.Options{}, load.compute)
		if took := time.Since(begin); took != 0 {
			t.Errorf("the answer took %v, want it not to wait for the store", took)
		}
	})
}

func TestStoresThatDoNotFitAreDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 1), load{}
		open := make(chan struct{})
		f.memory.Fail(func(op string) error {
			if op == "store" {
				<-open
			}
			return nil
		})
		const room = 1024 + 4 // the queue, and what the workers hold
		for i := range room + 100 {
			if _, err := f.processes[0].Get(t.Context(), keyOf(fmt.Sprint(i)), cache.Options{}, load.compute); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := f.events.count(cache.StoreDropped); n != 100 {
			t.Errorf("%d stores dropped, want 100", n)
		}
		close(open)
		synctest.Wait()
		if n := f.memory.Calls("store"); n != room {
			t.Errorf("%d stores, want %d", n, room)
		}
	})
}

func TestFailedStoreIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 1), load{}
		f.memory.Fail(func(op string) error { return map[string]error{"store": errRedis}[op] })
		get(t, f.processes[0], cache.Options{}, load.compute)
		synctest.Wait()
		if n := f.events.count(cache.StoreFailed); n != 1 {
			t.Errorf("%d failed stores counted, want 1", n)
		}
	})
}

func TestCloseStoresWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 1), load{}
		f.memory.Delay(func(string) time.Duration { return 50 * time.Millisecond })
		for i := range 20 {
			if _, err := f.processes[0].Get(t.Context(), keyOf(fmt.Sprint(i)), cache.Options{Policy: cache.Refresh}, load.compute); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.processes[0].Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if f.memory.Raw(keyOf(fmt.Sprint(i))) == nil {
				t.Errorf("value %d was not stored", i)
			}
		}
	})
}

func TestCloseDoesNotWaitForADeadRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 1), load{}
		f.memory.Delay(func(string) time.Duration { return 50 * time.Millisecond })
		for i := range 1000 {
			_, _ = f.processes[0].Get(t.Context(), keyOf(fmt.Sprint(i)), cache.Options{Policy: cache.Refresh}, load.compute)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_ = f.processes[0].Close(ctx)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("close took %v, want at most 1s", took)
		}
	})
}

type panickingCodec struct{ cachetest.Codec }

func (panickingCodec) Marshal(cache.Header, cache.Entry[string]) ([]byte, error) { panic("boom") }

func TestPanickingCodecTakesNothingWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 0)
		l, err := cache.New(cache.DefaultConfig(), cache.Deps[string]{Shared: f.memory, Codec: panickingCodec{}, Observer: &f.events})
		if err != nil {
			t.Fatal(err)
		}
		get(t, l, cache.Options{}, (&load{}).compute)
		if err := l.Close(t.Context()); err != nil || f.events.panics != 1 {
			t.Errorf("close: %v; %d panics observed, want 1", err, f.events.panics)
		}
	})
}

func TestSharedLayerNeedsACodec(t *testing.T) {
	if _, err := cache.New(cache.DefaultConfig(), cache.Deps[string]{Shared: cachetest.NewMemory()}); err == nil {
		t.Error("New accepts a shared layer without a codec")
	}
}

func TestLivesOfSharedValuesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, load := newFleet(t, 1), load{}
		for i := range 400 {
			_, _ = f.processes[0].Get(t.Context(), keyOf(fmt.Sprint(i)), cache.Options{}, load.compute)
		}
		stored := func() (n int) {
			for i := range 400 {
				if f.memory.Raw(keyOf(fmt.Sprint(i))) != nil {
					n++
				}
			}
			return n
		}
		time.Sleep(54*time.Minute - time.Millisecond)
		if n := stored(); n != 400 {
			t.Errorf("%d values at nine tenths of the ttl, want all", n)
		}
		time.Sleep(3 * time.Minute)
		if n := stored(); n < 140 || n > 260 {
			t.Errorf("%d values half-way through the last tenth, want about half", n)
		}
		time.Sleep(3*time.Minute + time.Millisecond)
		if n := stored(); n != 0 {
			t.Errorf("%d values after the ttl, want none", n)
		}
	})
}

// FuzzStoredBytes feeds what may stand in a shared cache through a whole ladder: it is a hit or a miss, and never an error.
func FuzzStoredBytes(f *testing.F) {
	header := cache.Header{Schema: cache.SchemaVersion, Key: keyOf("a")}
	good, _ := cachetest.Codec{}.Marshal(header, cache.Entry[string]{Value: "stored", Computed: time.Now()})
	f.Add(good)
	f.Add([]byte{})
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		memory := cachetest.NewMemory()
		memory.Put(keyOf("a"), data, time.Hour)
		l, err := cache.New(cache.DefaultConfig(), cache.Deps[string]{Shared: memory, Codec: cachetest.Codec{}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close(context.Background()) }()
		r, err := l.Get(t.Context(), keyOf("a"), cache.Options{}, func(context.Context) (string, error) { return "computed", nil })
		if err != nil {
			t.Fatal(err)
		}
		if r.Origin == cache.Shared && !json.Valid(data) {
			t.Errorf("took %q for a value", data)
		}
	})
}
