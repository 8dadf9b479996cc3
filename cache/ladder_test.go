package cache

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What a call with a policy and a reach gets when there is nothing, when the value is in the local cache, and when a computation of
// it (started by an ordinary call, or by a Refresh) is running.
func TestPolicyAndReach(t *testing.T) {
	const computes, local, joined, notCached, notStarted = "computes", "local", "joined", "not cached", "not started"
	for _, c := range []struct {
		policy                               Policy
		reach                                Reach
		nothing, cached, running, refreshing string
	}{
		{Default, ReachCompute, computes, local, joined, joined},
		{Default, ReachJoin, notStarted, local, joined, joined},
		{Default, ReachLocal, notStarted, local, notStarted, notStarted},
		{Bypass, ReachCompute, computes, computes, computes, computes},
		{Bypass, ReachJoin, notStarted, notStarted, notStarted, notStarted},
		{Bypass, ReachLocal, notStarted, notStarted, notStarted, notStarted},
		{Refresh, ReachCompute, computes, computes, computes, joined},
		{Refresh, ReachJoin, notStarted, notStarted, notStarted, joined},
		{Refresh, ReachLocal, notStarted, notStarted, notStarted, notStarted},
		{OnlyIfCached, ReachCompute, notCached, local, notCached, notCached},
		{OnlyIfCached, ReachJoin, notCached, local, notCached, notCached},
		{OnlyIfCached, ReachLocal, notCached, local, notCached, notCached},
	} {
		for state, wanted := range map[string]string{
			"nothing": c.nothing, "cached": c.cached, "running": c.running, "refreshing": c.refreshing,
		} {
			t.Run(fmt.Sprintf("policy %d reach %d %s", c.policy, c.reach, state), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLadder(t, Deps[string]{})
					switch state {
					case "cached":
						_, _ = l.Get(t.Context(), keyOf("a"), Options{}, always(new(counter), 0, "old"))
					case "running":
						defer start(t.Context(), l, keyOf("a"), Options{}, always(new(counter), time.Second, "old")).wait()
					case "refreshing":
						defer start(t.Context(), l, keyOf("a"), Options{Policy: Refresh}, always(new(counter), time.Second, "old")).wait()
					}
					synctest.Wait()
					got, err := l.Get(t.Context(), keyOf("a"), Options{Policy: c.policy, Reach: c.reach}, always(new(counter), time.Second, "new"))
					switch wanted {
					case computes:
						want(t, got, err, "new", Computed)
					case local:
						want(t, got, err, "old", Local)
					case joined:
						want(t, got, err, "old", JoinedLocal)
					case notCached:
						wantErr(t, err, ErrNotCached)
					case notStarted:
						wantErr(t, err, ErrNotStarted)
					}
				})
			})
		}
	}
}

func TestWhatEachPolicyWrites(t *testing.T) {
	for policy, wanted := range map[Policy]string{Default: "old", Bypass: "old", Refresh: "new"} {
		t.Run(fmt.Sprint("policy ", policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLadder(t, Deps[string]{})
				_, _ = l.Get(t.Context(), keyOf("a"), Options{}, always(new(counter), 0, "old"))
				_, _ = l.Get(t.Context(), keyOf("a"), Options{Policy: policy}, always(new(counter), 0, "new"))
				got, err := l.Get(t.Context(), keyOf("a"), Options{}, never(t))
				want(t, got, err, wanted, Local)
			})
		})
	}
}

func TestBypassCallsDoNotShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		var calls []*call
		for range 3 {
			calls = append(calls, start(t.Context(), l, keyOf("a"), Options{Policy: Bypass}, always(runs, time.Second, "v")))
			synctest.Wait()
		}
		calls = append(calls, start(t.Context(), l, keyOf("a"), Options{}, always(runs, time.Second, "v")))
		for _, c := range calls {
			got, err := c.wait()
			want(t, got, err, "v", Computed)
		}
		if runs.Load() != 4 {
			t.Errorf("%d computations, want 4", runs.Load())
		}
	})
}

func TestRefreshCallsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		a := start(t.Context(), l, keyOf("a"), Options{Policy: Refresh}, always(runs, time.Second, "v"))
		b := start(t.Context(), l, keyOf("a"), Options{Policy: Refresh}, always(runs, time.Second, "v"))
		_, _ = a.wait()
		_, _ = b.wait()
		if runs.Load() != 1 {
			t.Errorf("%d computations, want 1", runs.Load())
		}
	})
}

func TestBypassCallerLeavesAndTheComputationIsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLadder(t, Deps[string]{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var cause error
		_, err := l.Get(ctx, keyOf("a"), Options{Policy: Bypass}, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return "", cause
		})
		wantErr(t, err, context.DeadlineExceeded)
		synctest.Wait()
		wantErr(t, cause, ErrAbandoned)
	})
}

// posthog 100666: a follower accepted an entry older than what it had asked for.
func TestJoinerDoesNotTakeWhatIsTooOldForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A rung in the place of everything below the flights: first it finds an old value, as in a shared cache, then it computes.
		l, asked := newLadder(t, Deps[string]{}), 0
		begin := time.Now()
		l.flights.next = rungFunc(func(context.Context, request[string]) (Result[string], error) {
			asked++
			time.Sleep(time.Second)
			if asked == 1 {
				return Result[string]{Entry: Entry[string]{"old", begin.Add(-time.Minute)}, Origin: Shared}, nil
			}
			return Result[string]{Entry: Entry[string]{"new", time.Now()}, Origin: Computed}, nil
		})
		lenient := start(t.Context(), l, keyOf("a"), Options{}, never(t))
		synctest.Wait()
		joiner := start(t.Context(), l, keyOf("a"), Options{}, never(t))
		strict := start(t.Context(), l, keyOf("a"), Options{MaxAge: new(time.Second)}, never(t))
		got, err := lenient.wait()
		want(t, got, err, "old", Shared)
		got, err = joiner.wait()
		want(t, got, err, "old", Shared) // a joiner has its leader's origin
		got, err = strict.wait()
		want(t, got, err, "new", Computed)
	})
}

func TestRunningFlightIsYoungEnoughForAnyMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLadder(t, Deps[string]{})
		leader := start(t.Context(), l, keyOf("a"), Options{}, always(new(counter), time.Second, "v"))
		synctest.Wait()
		got, err := l.Get(t.Context(), keyOf("a"), Options{MaxAge: new(time.Duration(0))}, never(t))
		want(t, got, err, "v", JoinedLocal)
		_, _ = leader.wait()
	})
}

func TestObserverSeesEachLookOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observer := &recorder{}
		l := newLadder(t, Deps[string]{Observer: observer})
		_, _ = l.Get(t.Context(), keyOf("a"), Options{}, always(new(counter), time.Second, "v"))
		_, _ = l.Get(t.Context(), keyOf("a"), Options{}, never(t))
		time.Sleep(time.Second)
		_, _ = l.Get(t.Context(), keyOf("a"), Options{MaxAge: new(time.Duration(0))}, always(new(counter), time.Second, "v"))
		if wanted := []string{"local miss", "local hit", "local old"}; !slices.Equal(observer.lookups, wanted) {
			t.Errorf("observer saw %v, want %v", observer.lookups, wanted)
		}
	})
}

func TestInjectedClockIsTheOnlyOne(t *testing.T) {
	begin := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	var passed atomic.Int64
	l := newLadder(t, Deps[string]{Now: func() time.Time { return begin.Add(time.Duration(passed.Load())) }})
	got, err := l.Get(t.Context(), keyOf("a"), Options{}, always(new(counter), 0, "v"))
	want(t, got, err, "v", Computed)
	if !got.Computed.Equal(begin) {
		t.Errorf("computed at %v, want %v", got.Computed, begin)
	}
	got, err = l.Get(t.Context(), keyOf("a"), Options{}, never(t))
	want(t, got, err, "v", Local)
	passed.Store(int64(time.Hour))
	got, err = l.Get(t.Context(), keyOf("a"), Options{}, always(new(counter), 0, "v"))
	want(t, got, err, "v", Computed)
}

func TestConfigReportsEverything(t *testing.T) {
	err := Config{TTL: -1, MaxEntries: 0, ComputeTimeout: 0, LeaseTTL: 0}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"ttl", "max entries", "compute timeout", "lease ttl"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not name %s: %v", part, err)
		}
	}
	if _, err := New(Config{}, Deps[string]{}); err == nil {
		t.Error("New accepts an empty configuration")
	}
}

func TestDefaultsArePinned(t *testing.T) {
	want := Config{TTL: 24 * time.Hour, MaxEntries: 65536, ComputeTimeout: 75 * time.Second, LeaseTTL: 5 * time.Second}
	if got := DefaultConfig(); got != want {
		t.Errorf("defaults are %+v, want %+v", got, want)
	}
}

type rungFunc func(context.Context, request[string]) (Result[string], error)

func (f rungFunc) get(ctx context.Context, req request[string]) (Result[string], error) {
	return f(ctx, req)
}
