package rediscache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
)

// Exchanges go together, but none shares the fate of another's caller: half of the callers leave while theirs are on the way.
func TestACallerThatLeavesHarmsNoneOfItsBatch(t *testing.T) {
	server := redistest.Start(t)
	c := connect(t, config("redis://"+server.Addr))
	key := keyOf("a")
	if err := c.Store(t.Context(), cache.Lease{Key: key}, []byte("v"), time.Minute); err != nil {
		t.Fatal(err)
	}
	var (
		callers sync.WaitGroup
		left    atomic.Int64
	)
	for i := range 32 {
		callers.Go(func() {
			for n := range 50 {
				ctx, leave := context.WithCancel(t.Context())
				if i%2 == 0 {
					go leave()
				}
				got, err := c.Read(ctx, key)
				switch {
				case err == nil && string(got.Value) == "v":
				case i%2 == 0 && errors.Is(err, ErrTimeout):
					left.Add(1)
				default:
					t.Errorf("caller %d, call %d: %q, %v", i, n, got.Value, err)
				}
				leave()
			}
		})
	}
	callers.Wait()
	if left.Load() == 0 {
		t.Error("nobody left in time to disturb anybody")
	}
	if s := c.Status(); !s.Ready {
		t.Errorf("callers that leave count as trouble: %v", s.Err)
	}
}

// While Redis stands still, what is queued is bounded and every caller leaves within its limit; when it goes on it is used again.
func TestAStalledPipelineHoldsNobody(t *testing.T) {
	server := redistest.Start(t)
	cfg := config("redis://" + server.Addr)
	cfg.OpenFor = 50 * time.Millisecond
	c := connect(t, cfg)
	key := keyOf("a")
	server.Signal(syscall.SIGSTOP)
	var callers sync.WaitGroup
	for range 4 * cfg.PoolSize * slotsPerConnection {
		callers.Go(func() {
			if _, err := c.Read(t.Context(), key); !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		})
	}
	callers.Wait()
	if n := c.pipeline.auto.Len(); n > maxQueued {
		t.Errorf("%d exchanges are queued", n)
	}
	server.Signal(syscall.SIGCONT)
	eventually(t, "redis is used again", func() bool {
		_, err := c.Read(t.Context(), key)
		return err == nil && c.Status().Ready
	})
}
