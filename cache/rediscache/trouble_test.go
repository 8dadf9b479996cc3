package rediscache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
)

// load asks ladders for new and for known tasks, all the time, and notes how long each answer took.
type load struct {
	mu      sync.Mutex
	took    []time.Duration
	wrong   atomic.Int64
	callers sync.WaitGroup
	stop    chan struct{}
}

// computing is what a computation of the load takes.
const computing = 2 * time.Millisecond

func startLoad(t *testing.T, callers int, ladders ...*cache.Ladder[string]) *load {
	t.Helper()
	l := &load{stop: make(chan struct{})}
	var next atomic.Int64
	for i := range callers {
		ladder := ladders[i%len(ladders)]
		l.callers.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				n := next.Add(1)
				if n%3 == 0 {
					n %= 10 // every third call is for one of ten tasks
				}
				task := fmt.Sprint(t.Name(), n)
				begin := time.Now()
				r, err := ladder.Get(context.Background(), keyOf(task), cache.Options{}, func(context.Context) (string, error) {
					time.Sleep(computing)
					return "scores of " + task, nil
				})
				if err != nil || r.Value != "scores of "+task {
					l.wrong.Add(1)
				}
				l.mu.Lock()
				l.took = append(l.took, time.Since(begin))
				l.mu.Unlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	return l
}

// p99 returns the 99th percentile, and the greatest, of the answers that come in the given time.
func (l *load) p99(during time.Duration) (p99, most time.Duration) {
	l.mu.Lock()
	l.took = nil
	l.mu.Unlock()
	time.Sleep(during)
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.took)
	if len(l.took) == 0 {
		return time.Hour, time.Hour
	}
	return l.took[len(l.took)*99/100], l.took[len(l.took)-1]
}

func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.callers.Wait()
	if n := l.wrong.Load(); n != 0 {
		t.Errorf("%d wrong or failed answers", n)
	}
}

// ratelimit 462, 978, 1188, erpc 1113, snuba 7402: a Redis that hangs made everything hang. next-shared-cache 771: and it was never used
// again.
func TestTroubleCostsOneLimitThenNothingAndPasses(t *testing.T) {
	for name, trouble := range map[string]func(*redistest.Server, *redistest.Proxy) (end func()){
		"the server is stopped": func(s *redistest.Server, _ *redistest.Proxy) func() {
			s.Signal(syscall.SIGSTOP)
			return func() { s.Signal(syscall.SIGCONT) }
		},
		"the server is killed": func(s *redistest.Server, _ *redistest.Proxy) func() {
			s.Kill()
			return s.Restart
		},
		"the network delays": func(_ *redistest.Server, p *redistest.Proxy) func() {
			p.Set(redistest.Delay)
			return func() { p.Set(redistest.Pass) }
		},
		"the network swallows": func(_ *redistest.Server, p *redistest.Proxy) func() {
			p.Set(redistest.Blackhole)
			return func() { p.Set(redistest.Pass) }
		},
		"the network resets": func(_ *redistest.Server, p *redistest.Proxy) func() {
			p.Set(redistest.Reset)
			return func() { p.Set(redistest.Pass) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.StartProxy(t, server.Addr)
			cfg := config("redis://" + proxy.Addr)
			// Long enough to stand out from what a shared machine adds by itself.
			cfg.OpTimeout, cfg.OpenFor = 80*time.Millisecond, 200*time.Millisecond
			c := connect(t, cfg)
			load := startLoad(t, 16, ladder(t, c, nil), ladder(t, c, nil))
			_, _ = load.p99(300 * time.Millisecond)
			calm, _ := load.p99(500 * time.Millisecond)
			goroutines := runtime.NumGoroutine()

			end := trouble(server, proxy)
			_, most := load.p99(400 * time.Millisecond)
			if limit := calm + cfg.OpTimeout + time.Second; most > limit { // the machine may stumble, but not for seconds
				t.Errorf("when trouble comes the slowest answer takes %v, want at most %v", most, limit)
			}
			if s := c.Status(); s.Ready || s.Err == nil {
				t.Errorf("status is %+v, want not ready", s)
			}
			limit := calm + cfg.OpTimeout/2
			during, _ := load.p99(1500 * time.Millisecond)
			for again := 0; again < 5 && during > limit; again++ { // a call that waits for Redis would do so each time
				during, _ = load.p99(1500 * time.Millisecond)
			}
			if during > limit {
				t.Errorf("while trouble lasts p99 is %v, want at most %v (calm: %v)", during, limit, calm)
			}
			if n := runtime.NumGoroutine(); n > goroutines+100 {
				t.Errorf("%d goroutines while trouble lasts, %d before", n, goroutines)
			}

			end()
			eventually(t, "redis is ready again", func() bool { return c.Status().Ready })
			after := keyOf(t.Name() + " after")
			a, b := ladder(t, c, nil), ladder(t, c, nil)
			if _, err := a.Get(t.Context(), after, cache.Options{}, compute("v")); err != nil {
				t.Fatal(err)
			}
			eventually(t, "values are shared again", func() bool {
				r, err := b.Get(t.Context(), after, cache.Options{Policy: cache.OnlyIfCached}, nil)
				return err == nil && r.Origin == cache.Shared
			})
			load.end(t)
			t.Logf("p99 calm %v, slowest when trouble comes %v, p99 while it lasts %v", calm, most, during)
			eventually(t, "no lease is left", func() bool { return len(leases(t, server)) == 0 })
		})
	}
}

// A breaker must not let callers find out whether Redis is back.
func TestNoCallIsSpentOnTryingADeadRedis(t *testing.T) {
	server := redistest.Start(t)
	cfg := config("redis://" + server.Addr)
	cfg.OpenFor = 50 * time.Millisecond
	c := connect(t, cfg)
	server.Signal(syscall.SIGSTOP)
	defer server.Signal(syscall.SIGCONT)
	for range cfg.Failures {
		if _, err := c.Read(t.Context(), keyOf("a")); !errors.Is(err, ErrTimeout) {
			t.Fatalf("got %v, want ErrTimeout", err)
		}
	}
	slow := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		begin := time.Now()
		_, err := c.Read(t.Context(), keyOf("a"))
		if !errors.Is(err, ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		if time.Since(begin) > cfg.OpTimeout/2 {
			slow++
		}
	}
	if slow > 20 { // this machine may stumble; a dead Redis would slow hundreds
		t.Errorf("%d calls waited for a dead redis", slow)
	}
}

func TestCallersWhoLeaveDoNotOpenTheBreaker(t *testing.T) {
	server := redistest.Start(t)
	c := connect(t, config("redis://"+server.Addr))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		if _, err := c.Read(ctx, keyOf("a")); err == nil {
			t.Fatal("an ended context reads")
		}
	}
	if _, err := c.Read(t.Context(), keyOf("a")); err != nil || !c.Status().Ready {
		t.Errorf("afterwards: %v, %+v", err, c.Status())
	}
}

// redis 9105, RedLock.net 101: under memory pressure anything may vanish at any time.
func TestTinyMemoryLosesNoAnswer(t *testing.T) {
	for _, policy := range []string{"allkeys-lru", "noeviction"} {
		t.Run(policy, func(t *testing.T) {
			server := redistest.Start(t, "--maxmemory", "1100kb", "--maxmemory-policy", policy)
			c := connect(t, config("redis://"+server.Addr))
			load := startLoad(t, 16, ladder(t, c, nil), ladder(t, c, nil), ladder(t, c, nil))
			filler := server.Client()
			for i := range 400 { // others fill it too
				_ = filler.Set(t.Context(), fmt.Sprint("filler", i), make([]byte, 4096), time.Minute).Err()
				time.Sleep(2 * time.Millisecond)
			}
			load.end(t)
			eventually(t, "no lease is left", func() bool { return len(leases(t, server)) == 0 })
		})
	}
}

func TestFlushUnderLoadLosesNoAnswer(t *testing.T) {
	server := redistest.Start(t)
	c := connect(t, config("redis://"+server.Addr))
	load := startLoad(t, 16, ladder(t, c, nil), ladder(t, c, nil), ladder(t, c, nil))
	client := server.Client()
	for i := range 50 {
		client.FlushAll(t.Context())
		if i%5 == 0 {
			client.ScriptFlush(t.Context())
		}
		time.Sleep(15 * time.Millisecond)
	}
	if s := c.Status(); !s.Ready {
		t.Errorf("flushing counts as trouble: %v", s.Err)
	}
	load.end(t)
	eventually(t, "no lease is left", func() bool { return len(leases(t, server)) == 0 })
}

// FusionCache 608: one connection for each caller.
func TestConnectionsAreBounded(t *testing.T) {
	server := redistest.Start(t)
	cfg := config("redis://" + server.Addr)
	cfg.PoolSize = 4
	c := connect(t, cfg)
	load := startLoad(t, 64, ladder(t, c, nil))
	time.Sleep(300 * time.Millisecond)
	list, err := server.Client().ClientList(t.Context()).Result()
	load.end(t)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(slices.Collect(linesOf(list))); n > cfg.PoolSize+1 {
		t.Errorf("%d connections, want at most %d and this test's", n, cfg.PoolSize)
	}
}
