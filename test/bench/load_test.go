package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestAStallShowsInEveryCallItDelays is what an open loop is for: one stall of a second
// in a server that does one thing at a time delays hundreds of calls, not one.
func TestAStallShowsInEveryCallItDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := make(chan struct{}, 1)
		stall := func(_ context.Context, i int) error {
			server <- struct{}{}
			defer func() { <-server }()
			if i == 100 {
				time.Sleep(time.Second)
			}
			return nil
		}
		l, err := openLoop(t.Context(), &goSender{do: stall}, time.Sleep, 1000, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if l.calls < 1800 || l.calls > 2200 {
			t.Errorf("%d calls in two seconds at 1000 a second", l.calls)
		}
		// Half of the calls came before the stall was over, and waited for half a second
		// on average.
		if got := l.latencies.quantile(0.75); got < 200*time.Millisecond {
			t.Errorf("three quarters of the calls took less than %v: the stall was hidden", got)
		}
	})
}

// goSender makes each call on a goroutine of its own, once it is flushed.
type goSender struct {
	do        call
	unflushed []func()
	wg        sync.WaitGroup
	mu        sync.Mutex
	latencies histogram
	failed    error
}

func (s *goSender) send(i int, due time.Time) error {
	s.unflushed = append(s.unflushed, func() {
		err := s.do(context.Background(), i)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.latencies.add(time.Since(due))
		s.failed = errors.Join(s.failed, err)
	})
	return nil
}

func (s *goSender) flush() error {
	for _, do := range s.unflushed {
		s.wg.Go(do)
	}
	s.unflushed = nil
	return nil
}

func (s *goSender) wait(context.Context) (*histogram, error) {
	s.wg.Wait()
	return &s.latencies, s.failed
}

func TestAClosedLoopCountsItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := closedLoop(t.Context(), func(context.Context, int) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		}, 4, time.Second)
		if err != nil || l.calls != 400 || l.took != time.Second {
			t.Errorf("%d calls in %v, %v", l.calls, l.took, err)
		}
		if got := l.latencies.quantile(0.5); got < 10*time.Millisecond || got > 11*time.Millisecond {
			t.Errorf("median %v", got)
		}
	})
}

func TestAFailedCallEndsTheLoad(t *testing.T) {
	broken := errors.New("broken")
	fail := func(context.Context, int) error { return broken }
	if _, err := closedLoop(t.Context(), fail, 2, time.Minute); !errors.Is(err, broken) {
		t.Errorf("closed: %v", err)
	}
	if _, err := openLoop(t.Context(), &goSender{do: fail}, time.Sleep, 1000, time.Second); !errors.Is(err, broken) {
		t.Errorf("open: %v", err)
	}
}
