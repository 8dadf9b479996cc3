package probe

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestGateBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, callers = 3, 50
		g := newGate(slots, callers, time.Hour)
		var now, most atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				leave, err := g.enter(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Second)
				now.Add(-1)
				leave()
			})
		}
		synctest.Wait()
		if q, f := g.queued.Load(), g.inFlight.Load(); q != callers-slots || f != slots {
			t.Errorf("%d queued, %d in flight; want %d, %d", q, f, callers-slots, slots)
		}
		wg.Wait()
		if most.Load() != slots {
			t.Errorf("%d at a time, want %d", most.Load(), slots)
		}
		if q, f := g.queued.Load(), g.inFlight.Load(); q != 0 || f != 0 {
			t.Errorf("%d queued, %d in flight at the end", q, f)
		}
	})
}

func TestGateIsFirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 10, time.Hour)
		leave, err := g.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				leave, err := g.enter(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // one slot: nobody else runs here
				leave()
			})
			synctest.Wait()
		}
		leave()
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 10 {
			t.Errorf("order %v", order)
		}
	})
}

func TestGateRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 1, 2*time.Second)
		leave, err := g.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		cause := errors.New("caller went home")
		ctx, cancel := context.WithCancelCause(t.Context())
		waiting := make(chan error, 1)
		go func() {
			_, err := g.enter(ctx)
			waiting <- err
		}()
		synctest.Wait()
		if _, err := g.enter(t.Context()); !errors.Is(err, ErrOverloaded) {
			t.Errorf("full queue: %v, want ErrOverloaded", err)
		}
		cancel(cause)
		if err := <-waiting; !errors.Is(err, cause) || errors.Is(err, ErrOverloaded) {
			t.Errorf("caller left: %v, want its cause", err)
		}
		if _, err := g.enter(ctx); !errors.Is(err, cause) {
			t.Errorf("caller had left: %v, want its cause", err)
		}
		begin := time.Now()
		if _, err := g.enter(t.Context()); !errors.Is(err, ErrOverloaded) {
			t.Errorf("queue time over: %v, want ErrOverloaded", err)
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("waited %v", took)
		}
		leave()
		if leave, err := g.enter(t.Context()); err != nil {
			t.Errorf("free again: %v", err)
		} else {
			leave()
		}
		// A caller that had left does not get a free slot either: it would send a probe for nobody.
		if _, err := g.enter(ctx); !errors.Is(err, cause) {
			t.Errorf("caller had left, slot free: %v, want its cause", err)
		}
	})
}
