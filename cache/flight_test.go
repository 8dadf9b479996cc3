package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// call is a Get made on a goroutine of its own.
type call struct {
	result Result[string]
	err    error
	took   time.Duration
	done   chan struct{}
}

func start(ctx context.Context, l *Ladder[string], key Key, opts Options, compute func(context.Context) (string, error)) *call {
	c := &call{done: make(chan struct{})}
	begin := time.Now()
	go func() {
		defer close(c.done)
		c.result, c.err = l.Get(ctx, key, opts, compute)
		c.took = time.Since(begin)
	}()
	return c
}

func (c *call) wait() (Result[string], error) {
	<-c.done
	return c.result, c.err
}

// cautious is a computation that commits itself after the given time and until then returns when its context ends.
func cautious(runs *counter, takes time.Duration, value string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		runs.Add(1)
		select {
		case <-time.After(takes):
			return value, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

func TestConcurrentCallersShareOneComputation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		var calls []*call
		for range 200 {
			calls = append(calls, start(t.Context(), l, keyOf("a"), Options{}, always(runs, time.Second, "v")))
		}
		origins := map[Origin]int{}
		for _, c := range calls {
			result, err := c.wait()
			if err != nil || result.Value != "v" {
				t.Fatalf("got %q, %v", result.Value, err)
			}
			origins[result.Origin]++
			if wait := result.Wait; (result.Origin == Computed) != (wait == 0) {
				t.Errorf("origin %d waited %v", result.Origin, wait)
			}
		}
		if runs.Load() != 1 || origins[Computed] != 1 || origins[JoinedLocal] != 199 {
			t.Errorf("%d computations, origins %v; want 1, one computed and 199 joined", runs.Load(), origins)
		}
	})
}

func TestDifferentKeysDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		slow := start(t.Context(), l, keyOf("a"), Options{}, always(runs, time.Minute, "slow"))
		fast := start(t.Context(), l, keyOf("b"), Options{}, always(new(counter), time.Second, "fast"))
		_, _ = fast.wait()
		if fast.took != time.Second {
			t.Errorf("took %v, want 1s", fast.took)
		}
		_, _ = slow.wait()
	})
}

// bucketeer 2552, spicedb 925: the first caller's context ended the work of all.
func TestLeaderLeavingDisturbsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		ctx, cancel := context.WithCancel(t.Context())
		leader := start(ctx, l, keyOf("a"), Options{}, cautious(runs, time.Second, "v"))
		synctest.Wait()
		joiner := start(t.Context(), l, keyOf("a"), Options{}, never(t))
		synctest.Wait()
		cancel()
		_, err := leader.wait()
		wantErr(t, err, context.Canceled)
		got, err := joiner.wait()
		want(t, got, err, "v", JoinedLocal)
	})
}

func TestCallerLeavesAtItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		leader := start(t.Context(), l, keyOf("a"), Options{}, always(runs, time.Second, "v"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		joiner := start(ctx, l, keyOf("a"), Options{}, never(t))
		_, err := joiner.wait()
		wantErr(t, err, context.DeadlineExceeded)
		if joiner.took != 30*time.Millisecond {
			t.Errorf("left after %v, want 30ms", joiner.took)
		}
		got, err := leader.wait()
		want(t, got, err, "v", Computed)
	})
}

func TestCallerGetsTheCauseOfItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		cause := errors.New("decide timeout")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		_, err := l.Get(ctx, keyOf("a"), Options{}, always(runs, time.Minute, "v"))
		wantErr(t, err, cause)
	})
}

func TestComputationThatCommittedIsKeptAfterAllLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Millisecond)
		defer cancel()
		var cause error
		_, err := l.Get(ctx, keyOf("a"), Options{}, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return always(runs, 2*time.Second, "v")(ctx)
		})
		wantErr(t, err, context.DeadlineExceeded)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		wantErr(t, cause, ErrAbandoned)
		got, err := l.Get(t.Context(), keyOf("a"), Options{}, never(t))
		want(t, got, err, "v", Local)
	})
}

func TestComputationNotCommittedIsDroppedWhenAllHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Get(ctx, keyOf("a"), Options{}, cautious(runs, time.Minute, "v"))
		wantErr(t, err, context.DeadlineExceeded)
		synctest.Wait()
		_, err = l.Get(t.Context(), keyOf("a"), Options{Policy: OnlyIfCached}, never(t))
		wantErr(t, err, ErrNotCached)
	})
}

// tailscale 18919: a new caller joined a computation whose context had already ended, and got its cancellation.
func TestCallerAtAnAbandonedFlightStartsOverWhenItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, running, most := newLadder(t, Deps[string]{}), 0, 0
		slowToLeave := func(ctx context.Context) (string, error) {
			running++
			most = max(most, running)
			defer func() { running-- }()
			select {
			case <-ctx.Done():
				time.Sleep(time.Second) // still tidying up when the next caller arrives
				return "", context.Cause(ctx)
			case <-time.After(5 * time.Second):
				return "second", nil
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := start(ctx, l, keyOf("a"), Options{}, slowToLeave)
		synctest.Wait()
		cancel()
		_, err := first.wait()
		wantErr(t, err, context.Canceled)

		second := start(t.Context(), l, keyOf("a"), Options{}, slowToLeave)
		third := start(t.Context(), l, keyOf("a"), Options{}, slowToLeave)
		got, err := second.wait()
		if err != nil || got.Value != "second" {
			t.Errorf("second caller got %q, %v", got.Value, err)
		}
		if got, err := third.wait(); err != nil || got.Value != "second" {
			t.Errorf("third caller got %q, %v", got.Value, err)
		}
		if second.took != 6*time.Second {
			t.Errorf("second caller took %v, want 1s of waiting and 5s of computing", second.took)
		}
		if most != 1 {
			t.Errorf("%d computations ran at once, want 1", most)
		}
	})
}

func TestCallerAtAnAbandonedFlightTakesItsGoodResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Get(ctx, keyOf("a"), Options{}, always(runs, 3*time.Second, "v"))
		wantErr(t, err, context.DeadlineExceeded)
		got, err := l.Get(t.Context(), keyOf("a"), Options{}, never(t))
		want(t, got, err, "v", JoinedLocal)
		if got.Wait != 2*time.Second {
			t.Errorf("waited %v, want 2s", got.Wait)
		}
	})
}

func TestCallerAtAnAbandonedFlightLeavesAtItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := l.Get(ctx, keyOf("a"), Options{}, always(runs, 5*time.Second, "v"))
			wantErr(t, err, context.DeadlineExceeded)
			cancel()
		}
		if runs.Load() != 1 {
			t.Errorf("%d computations, want 1", runs.Load())
		}
	})
}

// janos/singleflight 4: one waiter's cancellation let a second execution start beside the first.
func TestRandomCancellationsNeverRunTwoComputationsOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLadder(t, Deps[string]{})
		random := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		running := map[int]int{}
		var computed, gaveUp, failed int
		var callers sync.WaitGroup
		for i := range 3000 {
			key, patience := i%5, time.Duration(random.IntN(60))*time.Millisecond
			takes, commits := time.Duration(random.IntN(40))*time.Millisecond, random.IntN(2) == 0
			maxAge := time.Duration(random.IntN(20)) * time.Millisecond
			time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, err := l.Get(ctx, keyOf(fmt.Sprint(key)), Options{MaxAge: &maxAge}, func(ctx context.Context) (string, error) {
					mu.Lock()
					computed++
					running[key]++
					if running[key] > 1 {
						t.Errorf("key %d: %d computations at once", key, running[key])
					}
					mu.Unlock()
					defer func() {
						mu.Lock()
						running[key]--
						mu.Unlock()
					}()
					abandoned := ctx.Done()
					if commits {
						abandoned = nil
					}
					select {
					case <-time.After(takes):
						if takes%7 == 0 {
							return "", errLoad
						}
						return "v", nil
					case <-abandoned:
						return "", context.Cause(ctx)
					}
				})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, context.DeadlineExceeded):
					gaveUp++
				case errors.Is(err, errLoad):
					failed++
				case err != nil:
					t.Errorf("caller got %v", err) // above all not ErrAbandoned
				}
			})
		}
		callers.Wait()
		if computed == 0 || gaveUp == 0 || failed == 0 {
			t.Errorf("%d computed, %d gave up, %d failed: the test did not exercise what it is for", computed, gaveUp, failed)
		}
	})
}

func TestLiveRefreshIsJoinedRatherThanAnAbandonedFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLadder(t, Deps[string]{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Get(ctx, keyOf("a"), Options{}, always(new(counter), time.Minute, "abandoned"))
		wantErr(t, err, context.DeadlineExceeded)
		refresh := start(t.Context(), l, keyOf("a"), Options{Policy: Refresh}, always(new(counter), time.Second, "fresh"))
		synctest.Wait()
		got, err := l.Get(t.Context(), keyOf("a"), Options{}, never(t))
		want(t, got, err, "fresh", JoinedLocal)
		_, _ = refresh.wait()
	})
}

func TestFailureReachesAllWaitersAndIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		fail := func(context.Context) (string, error) {
			runs.Add(1)
			time.Sleep(time.Second)
			return "not to be kept", errLoad
		}
		a := start(t.Context(), l, keyOf("a"), Options{}, fail)
		b := start(t.Context(), l, keyOf("a"), Options{}, fail)
		for _, c := range []*call{a, b} {
			_, err := c.wait()
			wantErr(t, err, errLoad)
		}
		if runs.Load() != 1 {
			t.Errorf("%d computations, want 1", runs.Load())
		}
		got, err := l.Get(t.Context(), keyOf("a"), Options{}, always(runs, 0, "v"))
		want(t, got, err, "v", Computed)
	})
}

// golang/go 41133, mailgun/groupcache 38, golang/go 67087: a panic or Goexit in the loader wedged the key or blocked its waiters.
func TestPanicOrGoexitReachesAllWaitersAndIsForgotten(t *testing.T) {
	for name, breakOff := range map[string]func(){
		"panic":      func() { panic("text of a task") },
		"panic(err)": func() { panic(errLoad) },
		"Goexit":     runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				observer := &recorder{}
				l := newLadder(t, Deps[string]{Observer: observer})
				broken := func(context.Context) (string, error) {
					time.Sleep(time.Second)
					breakOff()
					return "", nil
				}
				a := start(t.Context(), l, keyOf("a"), Options{}, broken)
				b := start(t.Context(), l, keyOf("a"), Options{}, broken)
				for _, c := range []*call{a, b} {
					_, err := c.wait()
					wantErr(t, err, ErrPanicked)
					if strings.Contains(err.Error(), "task") {
						t.Errorf("error quotes the panic: %v", err)
					}
				}
				got, err := l.Get(t.Context(), keyOf("a"), Options{}, always(new(counter), 0, "v"))
				want(t, got, err, "v", Computed)
				if len(observer.panics) != 1 || len(observer.stacks[0]) == 0 {
					t.Errorf("observer saw %d panics, want 1 with a stack", len(observer.panics))
				}
				if open := observer.open.Load(); open != 0 {
					t.Errorf("%d stages never ended", open)
				}
			})
		})
	}
}

// openai/terraform-provider 34: a load that succeeded just as its context ended was taken for a failure.
func TestSuccessBeatsCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLadder(t, Deps[string]{})
		f := &flight[string]{done: make(chan struct{}), result: Result[string]{Entry: Entry[string]{Value: "v"}}}
		close(f.done)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 { // select picks at random among what is ready
			if got, err, landed := l.flights.wait(ctx, f, leads); !landed || err != nil || got.Value != "v" {
				t.Fatalf("landed flight and ended context: got %q, %v, landed %v", got.Value, err, landed)
			}
		}
	})
}

func TestValueAfterTheComputeTimeoutStillCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLadder(t, Deps[string]{})
		got, err := l.Get(t.Context(), keyOf("a"), Options{}, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), ErrComputeTimeout)
			return "v", nil
		})
		want(t, got, err, "v", Computed)
		got, err = l.Get(t.Context(), keyOf("a"), Options{}, never(t))
		want(t, got, err, "v", Local)
	})
}

func TestComputeTimeoutDoesNotSurfaceAsTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLadder(t, Deps[string]{})
		begin := time.Now()
		_, err := l.Get(t.Context(), keyOf("a"), Options{}, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		wantErr(t, err, ErrComputeTimeout)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v says the caller's deadline is over", err)
		}
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("took %v, want the compute timeout", took)
		}
	})
}

func TestACallSaysWhatItsComputationMayTake(t *testing.T) {
	untilEnd := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	for name, limit := range map[string]time.Duration{
		"less than the ladder's own": 5 * time.Second,
		"more":                       2 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLadder(t, Deps[string]{})
				begin := time.Now()
				go func() { _, _ = l.Get(t.Context(), keyOf("a"), Options{ComputeTimeout: limit}, untilEnd) }()
				synctest.Wait()
				// Whoever joins a computation joins its limit.
				_, err := l.Get(t.Context(), keyOf("a"), Options{}, never(t))
				wantErr(t, err, ErrComputeTimeout)
				if took := time.Since(begin); took != limit {
					t.Errorf("took %v, want %v", took, limit)
				}
			})
		})
	}
}

func TestComputationKeepsTheValuesOfTheLeadersContext(t *testing.T) {
	type traceKey struct{}
	synctest.Test(t, func(t *testing.T) {
		observer := &recorder{}
		l := newLadder(t, Deps[string]{Observer: observer})
		leader := start(context.WithValue(t.Context(), traceKey{}, "trace"), l, keyOf("a"), Options{}, func(ctx context.Context) (string, error) {
			time.Sleep(time.Second)
			v, _ := ctx.Value(traceKey{}).(string)
			return v, nil
		})
		synctest.Wait()
		joiner := start(t.Context(), l, keyOf("a"), Options{}, never(t))
		got, err := leader.wait()
		want(t, got, err, "trace", Computed)
		_, _ = joiner.wait()
		if len(observer.joined) != 1 || observer.joined[0].Value(traceKey{}) != "trace" {
			t.Error("a joiner does not learn the context of the computation it waits for")
		}
	})
}

func TestEndedContextStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLadder(t, Deps[string]{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := l.Get(ctx, keyOf("a"), Options{}, never(t))
		wantErr(t, err, context.Canceled)
	})
}

// A call may look into the local cache just before a flight lands and reach the flights just after: it must not compute again.
func TestFlightLooksAgainBeforeComputing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := newLadder(t, Deps[string]{}), new(counter)
		_, _ = l.Get(t.Context(), keyOf("a"), Options{}, always(runs, 0, "v"))
		got, err := l.flights.get(t.Context(), request[string]{key: keyOf("a"), compute: never(t)})
		want(t, got, err, "v", Local)
	})
}

// janos/singleflight 15: resources were still in use after everyone had returned.
func TestCloseWaitsForComputationsWithoutCallers(t *testing.T) {
	for name, policy := range map[string]Policy{"default": Default, "bypass": Bypass, "refresh": Refresh} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLadder(t, Deps[string]{})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				ended := false
				_, err := l.Get(ctx, keyOf("a"), Options{Policy: policy}, func(context.Context) (string, error) {
					time.Sleep(5 * time.Second)
					ended = true
					return "v", nil
				})
				wantErr(t, err, context.DeadlineExceeded)
				if err := l.Close(t.Context()); err != nil || !ended {
					t.Errorf("close returned %v, computation ended: %v", err, ended)
				}
				_, err = l.Get(t.Context(), keyOf("a"), Options{}, never(t))
				wantErr(t, err, ErrClosed)
			})
		})
	}
}

func TestCloseGivesUpWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLadder(t, Deps[string]{})
		var cause error
		running := start(t.Context(), l, keyOf("a"), Options{}, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			time.Sleep(time.Second)
			return "", ctx.Err()
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, l.Close(ctx), context.DeadlineExceeded)
		wantErr(t, l.Close(t.Context()), nil) // again, and patiently
		wantErr(t, cause, ErrClosed)
		_, err := running.wait()
		wantErr(t, err, ErrClosed)
	})
}

// recorder is an Observer that remembers.
type recorder struct {
	NopObserver
	mu      sync.Mutex
	lookups []string
	panics  []any
	stacks  [][]byte
	joined  []context.Context
	open    atomic.Int64 // stages begun and not ended
}

func (r *recorder) Lookup(_ context.Context, layer Layer, outcome Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lookups = append(r.lookups, layer.String()+" "+outcome.String())
}

func (r *recorder) Stage(ctx context.Context, _ Stage) (context.Context, func(error)) {
	r.open.Add(1)
	return ctx, func(error) { r.open.Add(-1) }
}

func (r *recorder) Joined(_, computing context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.joined = append(r.joined, computing)
}

func (r *recorder) PanicRecovered(_ context.Context, value any, stack []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.panics, r.stacks = append(r.panics, value), append(r.stacks, stack)
}
