package main

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func fleet() scaleCmd {
	return scaleCmd{
		Rate: 200, Tasks: 1000, Skew: 1, Entries: 10_000, RedisEntries: 10_000, TTL: time.Hour, Probe: 40 * time.Millisecond,
		For: 4 * time.Minute, InFlight: 32, CPULocal: 40 * time.Microsecond, CPUShared: 100 * time.Microsecond,
		CPUComputed: 5 * time.Millisecond, MostUsed: 0.5,
	}
}

// TestWithoutExpiryEveryTaskIsProbedOnce checks the simulation where
// the answer is known: with room for all tasks and no expiry, nothing is probed once all
// tasks were.
func TestWithoutExpiryEveryTaskIsProbedOnce(t *testing.T) {
	c := fleet()
	c.Skew, c.Rate, c.For = 0, 2000, 8*time.Second // half the time is enough to see all tasks at 4 replicas
	c.Tasks = 100
	for _, redis := range []bool{false, true} {
		if o := c.simulate(4, redis); o.probes != 0 || o.shared != 0 || o.local != o.total || o.total < 7000 {
			t.Errorf("redis %v: after all caches are warm: %+v", redis, o)
		}
	}
}

func TestRedisSparesProbesOfOtherReplicas(t *testing.T) {
	c := fleet()
	c.Tasks = 1_000_000 // far more than are drawn: many misses
	one, four, fourShared := c.simulate(1, false), c.simulate(4, false), c.simulate(4, true)
	if one.shared != 0 || four.shared != 0 || fourShared.shared == 0 {
		t.Errorf("shared hits: %d %d %d", one.shared, four.shared, fourShared.shared)
	}
	if four.probes <= one.probes {
		t.Errorf("four replicas that share nothing probe %d times, one %d times", four.probes, one.probes)
	}
	// Sharing makes the fleet one cache: as many probes as one process.
	if ratio := float64(fourShared.probes) / float64(one.probes); ratio < 0.95 || ratio > 1.05 {
		t.Errorf("four that share probe %d times, one %d times", fourShared.probes, one.probes)
	}
}

func TestASlowProbeIsJoined(t *testing.T) {
	c := fleet()
	c.Tasks, c.TTL, c.Probe = 1, 2*time.Second, time.Second
	o := c.simulate(1, false)
	// One task: a probe of a second, then two seconds of hits, again and again.
	if part := o.part(o.joined); math.Abs(part-1.0/3) > 0.05 {
		t.Errorf("%.2f of the calls joined: %+v", part, o)
	}
	if math.Abs(o.probesPerSecond-1.0/3) > 0.05 {
		t.Errorf("%.2f probes a second", o.probesPerSecond)
	}
}

func TestAFullCacheForgetsTheLeastRecentlyUsed(t *testing.T) {
	l := newLRU(2)
	l.put(1, 0)
	l.put(2, 0)
	if !l.get(1, time.Second, time.Minute) {
		t.Error("1 is not there")
	}
	l.put(3, 0)
	for task, want := range map[int]bool{1: true, 2: false, 3: true} {
		if got := l.get(task, time.Second, time.Minute); got != want {
			t.Errorf("task %d: %v, want %v", task, got, want)
		}
	}
	if l.get(1, time.Minute, time.Minute) || l.len() != 1 {
		t.Error("an expired entry was found")
	}
}

func TestZipf(t *testing.T) {
	const n, draws = 10, 100_000
	z := newZipf(1, n)
	random := rand.New(rand.NewPCG(1, 2))
	var counts [n]int
	for range draws {
		counts[z.draw(random)]++
	}
	for k := 1; k < n; k++ {
		if got := float64(counts[0]) / float64(counts[k]) / float64(k+1); math.Abs(got-1) > 0.1 {
			t.Errorf("task 0 is drawn %.2f times as often as it should be beside task %d", got, k)
		}
	}
}

func TestWhatIsNeededGrowsWithTheProbes(t *testing.T) {
	c := fleet()
	if got := c.servers(outcome{probesPerSecond: 400}); got != 1 { // 16 under way, 16 planned a server
		t.Errorf("%d servers", got)
	}
	if got := c.servers(outcome{probesPerSecond: 401}); got != 2 {
		t.Errorf("%d servers", got)
	}
	if got := c.cores(outcome{total: 100, local: 80, shared: 10, probes: 10}); math.Abs(got-200*(0.8*40e-6+0.1*100e-6+0.1*5e-3)/0.5) > 1e-9 {
		t.Errorf("%v cores", got)
	}
}
