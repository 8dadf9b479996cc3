package main

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

// scaleCmd simulates replicas behind a load balancer that knows nothing of their caches.
// Time is simulated; nothing is run.
type scaleCmd struct {
	Replicas     []int         `default:"1,4,16" help:"How many Pointsman processes."`
	Rate         float64       `default:"2000" help:"Decisions a second, all replicas together."`
	Tasks        int           `default:"1000000" help:"How many different tasks there are."`
	Skew         float64       `default:"1" help:"Exponent of the tasks' popularity (Zipf): 0 is all alike, 1 is usual for caches."`
	Entries      int           `default:"65536" help:"Entries of each local cache."`
	RedisEntries int           `default:"5000000" help:"Entries Redis has memory for."`
	TTL          time.Duration `name:"ttl" default:"24h" help:"How long scores are kept."`
	Probe        time.Duration `default:"40ms" help:"How long a probe takes."`
	For          time.Duration `default:"20m" help:"How long to simulate. Caches begin empty; the second half is what counts."`
	// The constants that a run of this program measures.
	EntryBytes  int           `default:"450" help:"Memory of an entry in Redis."`
	LocalBytes  int           `default:"300" help:"Memory of an entry in a process."`
	InFlight    int           `default:"32" help:"Probes that one vLLM server takes at a time."`
	CPULocal    time.Duration `default:"40us" help:"Processor time of a local hit."`
	CPUShared   time.Duration `default:"110us" help:"Processor time of a shared hit."`
	CPUComputed time.Duration `default:"5ms" help:"Processor time of a computed decision, reading and scoring included."`
	MostUsed    float64       `default:"0.6" help:"The part of a core, or of a vLLM server, that is planned to be used."`
}

// Run simulates every number of replicas, without and with Redis, and prints a table.
func (c *scaleCmd) Run(ctx context.Context) error {
	rows := [][]string{{"replicas", "Redis", "local hits", "shared hits", "joined", "probes a second", "vLLM servers", "cores", "memory each", "Redis memory"}}
	for _, replicas := range c.Replicas {
		for _, redis := range []bool{false, true} {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			o := c.simulate(replicas, redis)
			name, memory := "no", "–"
			if redis {
				name, memory = "yes", megabytes(uint64(o.redisEntries)*uint64(c.EntryBytes))
			}
			rows = append(rows, []string{
				strconv.Itoa(replicas), name, percent(o.part(o.local)), percent(o.part(o.shared)), percent(o.part(o.joined)),
				fmt.Sprintf("%.0f", o.probesPerSecond), strconv.Itoa(c.servers(o)), fmt.Sprintf("%.1f", c.cores(o)),
				megabytes(uint64(c.Entries) * uint64(c.LocalBytes)), memory,
			})
		}
	}
	t := &tables{}
	t.linef("%.0f decisions a second over %d tasks with Zipf exponent %v, probes of %v, %d local entries, %v kept.",
		c.Rate, c.Tasks, c.Skew, c.Probe, c.Entries, c.TTL)
	t.table(rows)
	_, err := os.Stdout.WriteString(t.text.String())
	return err
}

// servers is how many vLLM servers the probes need (Little's law).
func (c *scaleCmd) servers(o outcome) int {
	return max(1, int(math.Ceil(o.probesPerSecond*c.Probe.Seconds()/(float64(c.InFlight)*c.MostUsed))))
}

// cores is how many cores the replicas need together.
func (c *scaleCmd) cores(o outcome) float64 {
	perDecision := o.part(o.local+o.joined)*c.CPULocal.Seconds() + o.part(o.shared)*c.CPUShared.Seconds() + o.part(o.probes)*c.CPUComputed.Seconds()
	return c.Rate * perDecision / c.MostUsed
}

// outcome counts where decisions of the second half came from.
type outcome struct {
	total, local, shared, joined, probes int
	probesPerSecond                      float64
	redisEntries                         int
}

func (o outcome) part(n int) float64 { return float64(n) / float64(max(o.total, 1)) }

// simulate runs one fleet: decisions arrive at random, each at a random replica, about
// tasks drawn by popularity. They take the way the ladder has: local cache, flight of
// this process, Redis, lease of another process, probe.
func (c *scaleCmd) simulate(replicas int, redis bool) outcome {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	popularity := newZipf(c.Skew, c.Tasks)
	local := make([]*lru, replicas)
	for i := range local {
		local[i] = newLRU(c.Entries)
	}
	shared := newLRU(c.RedisEntries)
	type flightID struct{ replica, task int }
	flying := map[flightID]time.Duration{} // until when
	leased := map[int]time.Duration{}
	landings := &landingQueue{}

	var o outcome
	half := c.For / 2
	for now := time.Duration(0); now < c.For; {
		now += time.Duration(random.ExpFloat64() / c.Rate * float64(time.Second))
		for landings.Len() > 0 && (*landings)[0].at <= now {
			l := landings.next()
			local[l.replica].put(l.task, l.at)
			delete(flying, flightID{l.replica, l.task})
			if redis && leased[l.task] <= l.at {
				delete(leased, l.task)
				shared.put(l.task, l.at)
			}
		}
		task, replica := popularity.draw(random), random.IntN(replicas)
		id := flightID{replica, task}
		var count *int
		switch {
		case local[replica].get(task, now, c.TTL):
			count = &o.local
		case flying[id] > now:
			count = &o.joined
		case redis && shared.get(task, now, c.TTL):
			count = &o.shared
			local[replica].put(task, shared.when(task)) // its age goes on counting
		case redis && leased[task] > now:
			count = &o.joined
			flying[id] = leased[task]
			heap.Push(landings, landing{leased[task], replica, task})
		default:
			count = &o.probes
			flying[id], leased[task] = now+c.Probe, now+c.Probe
			heap.Push(landings, landing{now + c.Probe, replica, task})
		}
		if now >= half {
			o.total++
			*count++
		}
	}
	o.probesPerSecond = float64(o.probes) / (c.For - half).Seconds()
	o.redisEntries = shared.len()
	return o
}

// landing is the end of a probe, or of waiting for one.
type landing struct {
	at            time.Duration
	replica, task int
}

// landingQueue has the earliest landing first.
type landingQueue []landing

func (q landingQueue) Len() int           { return len(q) }
func (q landingQueue) Less(i, j int) bool { return cmp.Less(q[i].at, q[j].at) }
func (q landingQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// next takes out the earliest landing.
func (q *landingQueue) next() landing { return heap.Pop(q).(landing) } //nolint:forcetypeassert // it holds nothing else

// Push implements [heap.Interface].
func (q *landingQueue) Push(l any) { *q = append(*q, l.(landing)) } //nolint:forcetypeassert // for next and for landings only

// Pop implements [heap.Interface].
func (q *landingQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
