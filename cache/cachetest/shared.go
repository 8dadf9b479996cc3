package cachetest

import (
	"crypto/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
)

// leaseTTL is the life of the suite's leases: short, for the suite may run against a real server, whose clock cannot be faked.
const leaseTTL = 200 * time.Millisecond

// RunShared checks that a shared layer keeps the contract of [cache.SharedLayer]. open returns a working layer; it may return the same
// one every time, since each case uses keys of its own.
func RunShared(t *testing.T, open func(t *testing.T) cache.SharedLayer) {
	t.Helper()
	for name, run := range map[string]func(*testing.T, cache.SharedLayer){
		"nothing is stored at first":                    sharedEmpty,
		"what is stored is read and claimed":            sharedStored,
		"a value expires":                               sharedExpiry,
		"one claim of many wins":                        sharedOneWinner,
		"storing ends the lease":                        sharedStoreReleases,
		"storing without a lease leaves others' alone":  sharedStoreWithoutLease,
		"releasing another's lease does nothing":        sharedReleaseForeign,
		"releasing twice or late is no error":           sharedReleaseLate,
		"a renewed lease lives on":                      sharedRenewed,
		"a lease not renewed ends":                      sharedLeaseEnds,
		"a lost lease is not taken again by renewing":   sharedRenewAfterLoss,
		"a lease and a value have lives of their own":   sharedSeparateLives,
		"claiming past an unfit value":                  sharedUnfit,
		"a value that replaced an unfit one is claimed": sharedUnfitReplaced,
		"binary values":                                 sharedBinary,
	} {
		t.Run(name, func(t *testing.T) { run(t, open(t)) })
	}
}

func newLease(t *testing.T) cache.Lease {
	t.Helper()
	l := cache.Lease{TTL: leaseTTL}
	_, _ = rand.Read(l.Key[:])
	return rival(l)
}

// rival returns another holder's lease on the same key.
func rival(l cache.Lease) cache.Lease {
	_, _ = rand.Read(l.Token[:])
	return l
}

func claim(t *testing.T, s cache.SharedLayer, l cache.Lease, unfit []byte) cache.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), l, unfit)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return c
}

// wins claims and fails the test unless the lease is (or is not) won.
func wins(t *testing.T, s cache.SharedLayer, l cache.Lease, want bool) {
	t.Helper()
	if c := claim(t, s, l, nil); c.Won != want || c.Raw != nil {
		t.Fatalf("claim: won %v, value %q; want won %v, no value", c.Won, c.Value, want)
	}
}

func store(t *testing.T, s cache.SharedLayer, l cache.Lease, value string, ttl time.Duration) {
	t.Helper()
	if err := s.Store(t.Context(), l, []byte(value), ttl); err != nil {
		t.Fatalf("store: %v", err)
	}
}

func release(t *testing.T, s cache.SharedLayer, l cache.Lease) {
	t.Helper()
	if err := s.Release(t.Context(), l); err != nil {
		t.Fatalf("release: %v", err)
	}
}

// holdsValue reads and fails the test unless the value is want; "" stands for none.
func holdsValue(t *testing.T, s cache.SharedLayer, key cache.Key, want string) {
	t.Helper()
	got, err := s.Read(t.Context(), key)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if string(got.Value) != want || (got.Raw == nil) != (want == "") {
		t.Fatalf("read %q (raw %q), want %q", got.Value, got.Raw, want)
	}
}

func sharedEmpty(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	holdsValue(t, s, newLease(t).Key, "")
}

func sharedStored(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	l := newLease(t)
	store(t, s, l, "v", time.Minute)
	holdsValue(t, s, l.Key, "v")
	if c := claim(t, s, l, nil); string(c.Value) != "v" || c.Won {
		t.Errorf("claim: value %q, won %v; want v and no lease", c.Value, c.Won)
	}
	holdsValue(t, s, newLease(t).Key, "")
}

func sharedExpiry(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	l := newLease(t)
	store(t, s, l, "v", leaseTTL)
	time.Sleep(leaseTTL + leaseTTL/2)
	holdsValue(t, s, l.Key, "")
}

func sharedOneWinner(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	l := newLease(t)
	var won atomic.Int32
	var rivals sync.WaitGroup
	for range 20 {
		rivals.Go(func() {
			if c, err := s.Claim(t.Context(), rival(l), nil); err != nil {
				t.Errorf("claim: %v", err)
			} else if c.Won {
				won.Add(1)
			}
		})
	}
	rivals.Wait()
	if n := won.Load(); n != 1 {
		t.Errorf("%d claims won, want 1", n)
	}
}

func sharedStoreReleases(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	l := newLease(t)
	wins(t, s, l, true)
	store(t, s, l, "v", leaseTTL)
	if held, err := s.Renew(t.Context(), l); err != nil || held {
		t.Errorf("after storing the lease is held: %v, %v", held, err)
	}
}

func sharedStoreWithoutLease(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	l := newLease(t)
	wins(t, s, l, true)
	store(t, s, cache.Lease{Key: l.Key}, "v", time.Minute)
	holdsValue(t, s, l.Key, "v")
	if held, err := s.Renew(t.Context(), l); err != nil || !held {
		t.Errorf("after another's store the lease is held: %v, %v; want held", held, err)
	}
	release(t, s, l)
}

func sharedReleaseForeign(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	l := newLease(t)
	wins(t, s, l, true)
	release(t, s, rival(l))
	wins(t, s, rival(l), false)
	release(t, s, l)
	wins(t, s, rival(l), true)
}

func sharedReleaseLate(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	l := newLease(t)
	wins(t, s, l, true)
	release(t, s, l)
	release(t, s, l)
	release(t, s, newLease(t))
}

func sharedRenewed(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	l := newLease(t)
	wins(t, s, l, true)
	for range 5 {
		time.Sleep(leaseTTL / 2)
		if held, err := s.Renew(t.Context(), l); err != nil || !held {
			t.Fatalf("renew: %v, %v", held, err)
		}
	}
	wins(t, s, rival(l), false)
}

func sharedLeaseEnds(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	l := newLease(t)
	wins(t, s, l, true)
	wins(t, s, rival(l), false)
	time.Sleep(leaseTTL + leaseTTL/2)
	wins(t, s, rival(l), true)
}

func sharedRenewAfterLoss(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	l := newLease(t)
	wins(t, s, l, true)
	time.Sleep(leaseTTL + leaseTTL/2)
	if held, err := s.Renew(t.Context(), l); err != nil || held {
		t.Fatalf("renewing an ended lease: %v, %v; want not held", held, err)
	}
	next := rival(l)
	wins(t, s, next, true)
	if held, err := s.Renew(t.Context(), l); err != nil || held {
		t.Fatalf("renewing another's lease: %v, %v; want not held", held, err)
	}
	release(t, s, l) // late: must not end the lease of the next holder
	wins(t, s, rival(l), false)
}

func sharedSeparateLives(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	l := newLease(t)
	store(t, s, cache.Lease{Key: l.Key}, "old", time.Minute)
	if c := claim(t, s, l, claim(t, s, l, nil).Raw); !c.Won {
		t.Fatal("claim past the old value: not won")
	}
	time.Sleep(leaseTTL + leaseTTL/2)
	holdsValue(t, s, l.Key, "old") // the lease's end does not touch the value
}

func sharedUnfit(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	l := newLease(t)
	store(t, s, cache.Lease{Key: l.Key}, "unfit", time.Minute)
	raw := claim(t, s, l, nil).Raw
	if c := claim(t, s, l, raw); !c.Won || c.Raw != nil {
		t.Fatalf("claim past the unfit value: won %v, value %q", c.Won, c.Value)
	}
	if c := claim(t, s, rival(l), raw); c.Won || c.Raw != nil {
		t.Fatalf("second claim past the unfit value: won %v, value %q", c.Won, c.Value)
	}
}

func sharedUnfitReplaced(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	l := newLease(t)
	store(t, s, cache.Lease{Key: l.Key}, "unfit", time.Minute)
	raw := claim(t, s, l, nil).Raw
	store(t, s, cache.Lease{Key: l.Key}, "good", time.Minute)
	if c := claim(t, s, l, raw); c.Won || string(c.Value) != "good" {
		t.Fatalf("claim: won %v, value %q; want the new value", c.Won, c.Value)
	}
}

func sharedBinary(t *testing.T, s cache.SharedLayer) {
	t.Helper()
	value := make([]byte, 4096)
	_, _ = rand.Read(value)
	l := newLease(t)
	store(t, s, l, string(value), time.Minute)
	holdsValue(t, s, l.Key, string(value))
	store(t, s, l, "\x00\r\n", time.Minute)
	holdsValue(t, s, l.Key, "\x00\r\n")
}
