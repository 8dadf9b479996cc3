package probe

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// newGroup builds a group over fakes that is closed with the test.
func newGroup(t *testing.T, change func(*Config), fakes ...*fakeVLLM) *Group {
	t.Helper()
	cfg := fakes[0].config()
	if change != nil {
		change(&cfg)
	}
	var endpoints []Endpoint
	for _, f := range fakes {
		endpoints = append(endpoints, f.config().Endpoint)
	}
	g, err := NewGroup(cfg, endpoints)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close(t.Context()) })
	return g
}

// counting wraps a handler and counts what it is asked.
func counting(n *atomic.Int64, answer func(http.ResponseWriter, *http.Request, *fakeVLLM)) func(http.ResponseWriter, *http.Request, *fakeVLLM) {
	return func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		n.Add(1)
		answer(w, r, f)
	}
}

func failing(status int) func(http.ResponseWriter, *http.Request, *fakeVLLM) {
	return func(w http.ResponseWriter, _ *http.Request, _ *fakeVLLM) { w.WriteHeader(status) }
}

func TestGroupTriesATransientFailureOnceElsewhere(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request, *fakeVLLM)
		moved  bool
		want   error
	}{
		"unavailable": {failing(503), true, nil},
		"protocol":    {func(w http.ResponseWriter, _ *http.Request, _ *fakeVLLM) { _, _ = io.WriteString(w, "{}") }, true, nil},
		"artifact":    {serveFile([]byte("no artifact")), true, nil},
		"refused":     {failing(400), false, ErrRejected},
	} {
		t.Run(name, func(t *testing.T) {
			var bad, good atomic.Int64
			g := newGroup(t, nil, newFake(t, counting(&bad, tt.answer)), newFake(t, counting(&good, serveFile(twoTokens()))))
			failed := 0
			for range 4 {
				if _, err := g.Extract(t.Context(), Request{}); err != nil {
					failed++
					if !errors.Is(err, tt.want) {
						t.Error(err)
					}
				}
			}
			switch {
			case tt.moved && (failed > 0 || good.Load() != 4 || bad.Load() == 0):
				t.Errorf("%d failed, %d asked the good one, %d the bad one", failed, good.Load(), bad.Load())
			case !tt.moved && (failed == 0 || bad.Load()+good.Load() != 4):
				t.Errorf("%d failed, %d asked the good one, %d the bad one", failed, good.Load(), bad.Load())
			}
		})
	}
}

func TestGroupDoesNotRetryWithoutTimeOrCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int64
	leave := func(w http.ResponseWriter, _ *http.Request, _ *fakeVLLM) {
		cancel()
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	g := newGroup(t, nil, newFake(t, counting(&asked, leave)), newFake(t, counting(&asked, leave)))
	if _, err := g.Extract(ctx, Request{}); !errors.Is(err, ErrUnavailable) || asked.Load() != 1 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
	g.members[0].health.typical, g.members[1].health.typical = time.Hour, time.Hour
	short, cancelShort := context.WithTimeout(t.Context(), time.Minute)
	defer cancelShort()
	if _, err := g.Extract(short, Request{}); !errors.Is(err, ErrUnavailable) || asked.Load() != 2 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
}

// TestGroupPassesOverWhatFailsFast: an endpoint that fails at once always has the least work; it must not get it all.
func TestGroupPassesOverWhatFailsFast(t *testing.T) {
	var bad, good atomic.Int64
	g := newGroup(t, func(c *Config) { c.Breaker = Breaker{Failures: 3, OpenFor: time.Minute} },
		newFake(t, counting(&bad, serveFile([]byte("no artifact")))), newFake(t, counting(&good, serveFile(twoTokens()))))
	for range 20 {
		if _, err := g.Extract(t.Context(), Request{}); err != nil {
			t.Fatal(err)
		}
	}
	if bad.Load() != 3 || good.Load() != 20 {
		t.Errorf("%d asked the bad one, %d the good one; want 3 and 20", bad.Load(), good.Load())
	}
	if s := g.Status(); s.State != StateDegraded {
		t.Errorf("%+v", s)
	}
}

func TestGroupAsksTheOneWithTheLeastWork(t *testing.T) {
	release := make(chan struct{})
	var slow, quick atomic.Int64
	hold := func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-release
		serveFile(twoTokens())(w, r, f)
	}
	g := newGroup(t, nil, newFake(t, counting(&slow, hold)), newFake(t, counting(&quick, serveFile(twoTokens()))))
	held := make(chan error, 1)
	go func() {
		_, err := g.members[0].Extract(t.Context(), Request{})
		held <- err
	}()
	for slow.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 10 {
		if _, err := g.Extract(t.Context(), Request{}); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	if err := <-held; err != nil || slow.Load() != 1 || quick.Load() != 10 {
		t.Errorf("%v; %d asked the busy one, %d the idle one", err, slow.Load(), quick.Load())
	}
}

func TestGroupHealthCheck(t *testing.T) {
	var sick atomic.Bool
	sick.Store(true)
	var bad atomic.Int64
	checked := func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		if r.URL.Path == "/health" {
			if sick.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return
		}
		bad.Add(1)
		serveFile(twoTokens())(w, r, f)
	}
	well := func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		if r.URL.Path != "/health" {
			serveFile(twoTokens())(w, r, f)
		}
	}
	g := newGroup(t, func(c *Config) { c.HealthInterval = 2 * time.Millisecond }, newFake(t, checked), newFake(t, well))
	awaitState := func(want State) {
		t.Helper()
		for start := time.Now(); g.members[0].Status().State != want; time.Sleep(time.Millisecond) {
			if time.Since(start) > 10*time.Second {
				t.Fatalf("still %v", g.members[0].Status().State)
			}
		}
	}
	awaitState(StateDown)
	for range 10 {
		if _, err := g.Extract(t.Context(), Request{}); err != nil {
			t.Fatal(err)
		}
	}
	if bad.Load() != 0 {
		t.Errorf("the sick one was asked %d times", bad.Load())
	}
	sick.Store(false)
	awaitState(StateReady)
}

// TestGroupBreakerIsOpenWhenAllAre: the observer gives back leases when it hears of an open breaker.
func TestGroupBreakerIsOpenWhenAllAre(t *testing.T) {
	c := &combinedBreaker{states: make([]State, 2)}
	for i, step := range []struct {
		endpoint int
		state    State
		told     []State
	}{
		{0, StateDown, nil},
		{1, StateDown, []State{StateDown}},
		{0, StateDegraded, []State{StateDegraded}},
		{0, StateReady, []State{StateReady}},
		{1, StateReady, nil},
	} {
		var told []State
		c.set(step.endpoint, step.state, func(s State) { told = append(told, s) })
		if !slices.Equal(told, step.told) {
			t.Errorf("step %d: told %v, want %v", i, told, step.told)
		}
	}
}
