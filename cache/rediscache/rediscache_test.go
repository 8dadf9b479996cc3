package rediscache

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/cachetest"
	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	goleak.VerifyTestMain(m)
}

var (
	errLoad = errors.New("load failed")
	secret  = []byte("0123456789abcdef0123456789abcdef")
)

// config is the default with more time for each exchange, since these tests share their machine; tests about time set their own.
func config(url string) Config {
	cfg := DefaultConfig()
	cfg.URL, cfg.OpTimeout = url, 100*time.Millisecond
	return cfg
}

// connect returns a Cache for url, waiting until it is ready.
func connect(t *testing.T, cfg Config, opts ...Option) *Cache {
	t.Helper()
	c, err := New(cfg, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	eventually(t, "redis is ready", func() bool { return c.Status().Ready })
	return c
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// ladder returns a process's ladder over c.
func ladder(t *testing.T, c *Cache, observer cache.Observer) *cache.Ladder[string] {
	t.Helper()
	cfg := cache.DefaultConfig()
	l, err := cache.New(cfg, cache.Deps[string]{Shared: c, Codec: cachetest.Codec{}, Observer: observer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

func keyOf(task string) cache.Key {
	keyer, err := cache.NewKeyer(nil)
	if err != nil {
		panic(err)
	}
	return keyer.Key(cache.KeyFields{Task: task})
}

func compute(v string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return v, nil }
}

// names returns the names of all keys, and fails the test if one has no end.
func names(t *testing.T, c *redis.Client) []string {
	t.Helper()
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if ttl := c.PTTL(t.Context(), k).Val(); ttl == -1 {
			t.Errorf("key %s has no end", k)
		}
	}
	return keys
}

func TestRedisIsASharedLayer(t *testing.T) {
	server := redistest.Start(t)
	for name, secret := range map[string][]byte{"plain": nil, "sealed": secret} {
		t.Run(name, func(t *testing.T) {
			cfg := config("redis://" + server.Addr)
			cfg.Secret = secret
			c := connect(t, cfg)
			cachetest.RunShared(t, func(*testing.T) cache.SharedLayer { return c })
		})
	}
	names(t, server.Client())
}

func TestLaddersOverRedisPassTheSuite(t *testing.T) {
	server := redistest.Start(t)
	for name, secret := range map[string][]byte{"plain": nil, "sealed": secret} {
		t.Run(name, func(t *testing.T) {
			cachetest.RunLadder(t, true, func(t *testing.T, n int) (ladders []*cache.Ladder[string]) {
				for range n {
					cfg := config("redis://" + server.Addr)
					cfg.Secret = secret
					ladders = append(ladders, ladder(t, connect(t, cfg), nil))
				}
				return ladders
			})
		})
	}
	eventually(t, "no lease is left", func() bool {
		for _, k := range names(t, server.Client()) {
			if strings.HasSuffix(k, ":l") {
				return false
			}
		}
		return true
	})
}

func TestKeysOfAValueShareASlotAndNameTheSchema(t *testing.T) {
	server := redistest.Start(t)
	c := connect(t, config("redis://"+server.Addr))
	key := keyOf("a")
	if err := c.Store(t.Context(), cache.Lease{Key: key}, []byte("v"), time.Minute); err != nil {
		t.Fatal(err)
	}
	lease := cache.Lease{Key: keyOf("b"), Token: cache.Token{1}, TTL: time.Minute}
	if _, err := c.Claim(t.Context(), lease, nil); err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	for _, name := range []string{
		"pointsman:1:{" + hex.EncodeToString(key[:]) + "}:v",
		"pointsman:1:{" + hex.EncodeToString(lease.Key[:]) + "}:l",
	} {
		if client.Exists(t.Context(), name).Val() != 1 {
			t.Errorf("no key %s among %v", name, names(t, client))
		}
	}
}

// Two schema versions side by side in one Redis are never mixed.
func TestSchemasAreKeptApart(t *testing.T) {
	server := redistest.Start(t)
	old := connect(t, config("redis://"+server.Addr))
	next := connect(t, config("redis://"+server.Addr), func(s *settings) { s.schema = 2 })
	if err := old.Store(t.Context(), cache.Lease{Key: keyOf("a")}, []byte("old"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, err := next.Read(t.Context(), keyOf("a")); err != nil || got.Raw != nil {
		t.Errorf("schema 2 reads %q, %v", got.Raw, err)
	}
}

// Whatever stands under our keys and is not ours is a miss, and is replaced.
func TestForeignThingsUnderOurKeysAreMisses(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	for name, put := range map[string]func(value, lease string) error{
		"garbage": func(value, _ string) error { return client.Set(t.Context(), value, "garbage", 0).Err() },
		"empty":   func(value, _ string) error { return client.Set(t.Context(), value, "", 0).Err() },
		"huge": func(value, _ string) error {
			return client.Set(t.Context(), value, bytes.Repeat([]byte("x"), maxValue+1), 0).Err()
		},
		"a list":            func(value, _ string) error { return client.RPush(t.Context(), value, "x").Err() },
		"lease without end": func(_, lease string) error { return client.Set(t.Context(), lease, "x", 0).Err() },
		"lease of a year":   func(_, lease string) error { return client.Set(t.Context(), lease, "x", 8760*time.Hour).Err() },
		"lease that is a list": func(_, lease string) error {
			return client.RPush(t.Context(), lease, "x").Err()
		},
	} {
		for kind, secret := range map[string][]byte{"plain": nil, "sealed": secret} {
			t.Run(name+", "+kind, func(t *testing.T) {
				cfg := config("redis://" + server.Addr)
				cfg.Secret = secret
				failed := &failures{}
				c := connect(t, cfg, WithObserver(failed))
				key := keyOf(t.Name())
				if err := put(c.keys(key)); err != nil {
					t.Fatal(err)
				}
				a, b := ladder(t, c, nil), ladder(t, c, nil)
				if _, err := b.Get(t.Context(), key, cache.Options{Policy: cache.OnlyIfCached}, nil); !errors.Is(err, cache.ErrNotCached) {
					t.Errorf("only if cached: %v, want ErrNotCached", err)
				}
				begin := time.Now()
				r, err := a.Get(t.Context(), key, cache.Options{}, compute("v"))
				if err != nil || r.Origin != cache.Computed || r.Wait != 0 {
					t.Errorf("got origin %d after %v, %v; want it computed at once", r.Origin, time.Since(begin), err)
				}
				eventually(t, "the other process finds the value", func() bool {
					r, err := b.Get(t.Context(), key, cache.Options{Policy: cache.OnlyIfCached}, nil)
					return err == nil && r.Value == "v" && r.Origin == cache.Shared
				})
				if n := client.Exists(t.Context(), second(c.keys(key))).Val(); n != 0 {
					t.Error("the lease is left")
				}
				if n := failed.exchanges.Load(); n != 0 || !c.Status().Ready {
					t.Errorf("foreign bytes count as trouble: %d failed exchanges, %+v", n, c.Status())
				}
			})
		}
	}
	names(t, client)
}

func second(_, s string) string { return s }

// failures is an Observer that counts failed exchanges.
type failures struct {
	nopObserver

	exchanges atomic.Int64
}

func (f *failures) Exchange(_ string, _ time.Duration, err error) {
	if err != nil {
		f.exchanges.Add(1)
	}
}

func TestExchangesPerCall(t *testing.T) {
	server := redistest.Start(t)
	c := connect(t, config("redis://"+server.Addr))
	a, b := ladder(t, c, nil), ladder(t, c, nil)
	if _, err := a.Get(t.Context(), keyOf("warm"), cache.Options{}, compute("v")); err != nil {
		t.Fatal(err) // loads the scripts
	}
	scripts := func() int { return server.Calls("evalsha") + server.Calls("eval") }
	// Looks are counted within claims too: more of them than claims are exchanges of their own.
	counted := func(what string, exchanges, claims int, call func()) {
		t.Helper()
		before, looked := scripts(), server.Calls("getrange")
		call()
		time.Sleep(100 * time.Millisecond) // whatever comes after the answer
		if got, looks := scripts()-before, server.Calls("getrange")-looked; got != exchanges || looks != claims {
			t.Errorf("%s: %d exchanges and %d looks, want %d and %d", what, got, looks, exchanges, claims)
		}
	}
	time.Sleep(100 * time.Millisecond)
	get := func(l *cache.Ladder[string], opts cache.Options) func() {
		return func() { _, _ = l.Get(t.Context(), keyOf("a"), opts, compute("v")) }
	}
	counted("computed", 2, 1, get(a, cache.Options{}))
	counted("shared hit", 1, 1, get(b, cache.Options{}))
	counted("local hit", 0, 0, get(b, cache.Options{}))
	counted("only if cached", 0, 0, get(b, cache.Options{Policy: cache.OnlyIfCached}))
	counted("refresh", 1, 0, get(a, cache.Options{Policy: cache.Refresh}))
	counted("bypass", 0, 0, get(a, cache.Options{Policy: cache.Bypass}))
	counted("failed", 2, 1, func() {
		_, _ = a.Get(t.Context(), keyOf("b"), cache.Options{}, func(context.Context) (string, error) { return "", errLoad })
	})
}

func TestRestartedServerIsUsedAgain(t *testing.T) { // its scripts are gone
	server := redistest.Start(t)
	cfg := config("redis://" + server.Addr)
	cfg.OpenFor = 50 * time.Millisecond
	c := connect(t, cfg)
	l := ladder(t, c, nil)
	server.Kill()
	for i := range 20 {
		if r, err := l.Get(t.Context(), keyOf(fmt.Sprint(i)), cache.Options{}, compute("v")); err != nil || r.Origin != cache.Computed {
			t.Fatalf("without redis: origin %d, %v", r.Origin, err)
		}
	}
	if s := c.Status(); s.Ready || !errors.Is(s.Err, ErrConnect) {
		t.Errorf("status is %+v, want not ready for want of a connection", s)
	}
	server.Restart()
	eventually(t, "redis is ready", func() bool { return c.Status().Ready })
	if err := c.Store(t.Context(), cache.Lease{Key: keyOf("b")}, []byte("v"), time.Minute); err != nil {
		t.Error(err)
	}
}

// chproxy 337, ratelimit 1143: services that did not start without Redis.
func TestNothingIsNeededToStart(t *testing.T) {
	port := redistest.FreePort(t)
	cfg := config(fmt.Sprintf("redis://127.0.0.1:%d", port))
	begin := time.Now()
	c, err := New(cfg)
	if err != nil || time.Since(begin) > time.Second {
		t.Fatalf("New: %v after %v", err, time.Since(begin))
	}
	t.Cleanup(func() { _ = c.Close() }) // after the ladder, which was made later
	l := ladder(t, c, nil)
	if r, err := l.Get(t.Context(), keyOf("a"), cache.Options{}, compute("v")); err != nil || r.Origin != cache.Computed {
		t.Errorf("origin %d, %v", r.Origin, err)
	}
	eventually(t, "the status says why", func() bool { return errors.Is(c.Status().Err, ErrConnect) })
}

func TestTooLargeAValueIsNotStored(t *testing.T) {
	server := redistest.Start(t)
	c := connect(t, config("redis://"+server.Addr))
	if err := c.Store(t.Context(), cache.Lease{Key: keyOf("a")}, make([]byte, maxValue+1), time.Minute); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}

func BenchmarkSharedHit(b *testing.B) {
	server := redistest.Start(b)
	for name, secret := range map[string][]byte{"plain": nil, "sealed": secret} {
		b.Run(name, func(b *testing.B) {
			cfg := config("redis://" + server.Addr)
			cfg.Secret = secret
			c, err := New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if err := c.Store(b.Context(), cache.Lease{Key: keyOf("a")}, make([]byte, 512), time.Minute); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if got, err := c.Claim(b.Context(), cache.Lease{Key: keyOf("a"), Token: cache.Token{1}, TTL: time.Second}, nil); err != nil || got.Value == nil {
					b.Fatal(got, err)
				}
			}
		})
	}
}
