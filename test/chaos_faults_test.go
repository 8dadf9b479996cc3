package test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

// strike is one kind of trouble. It lasts until do returns; whatever it broke is whole
// again then.
type strike struct {
	name string
	do   func(w *chaosWorld, random *rand.Rand)
}

// strikes are what chaos does. Replicas are struck one at a time: with both gone there
// is nothing to promise.
var strikes = []strike{
	{"replica killed", func(w *chaosWorld, r *rand.Rand) { w.restart(pick(w.replicas, r), syscall.SIGKILL) }},
	{"replica terminated", func(w *chaosWorld, r *rand.Rand) { w.restart(pick(w.replicas, r), syscall.SIGTERM) }},
	{"replica stopped", func(w *chaosWorld, r *rand.Rand) {
		struck := pick(w.replicas, r)
		defer struck.trouble()()
		_ = struck.now.process.Process.Signal(syscall.SIGSTOP)
		time.Sleep(between(r, 100, 600))
		_ = struck.now.process.Process.Signal(syscall.SIGCONT)
	}},
	{"vLLM away", func(w *chaosWorld, r *rand.Rand) {
		v := pick(w.vllms, r)
		v.away.Store(true)
		defer v.away.Store(false)
		v.web.CloseClientConnections()
		time.Sleep(between(r, 200, 1500))
	}},
	{"both vLLMs away", func(w *chaosWorld, r *rand.Rand) {
		for _, v := range w.vllms {
			v.away.Store(true)
			defer v.away.Store(false)
		}
		time.Sleep(between(r, 200, 1000))
	}},
	{"vLLM slow", func(w *chaosWorld, r *rand.Rand) {
		v := pick(w.vllms, r)
		v.slow.Store(int64(between(r, 50, 1500)))
		defer v.slow.Store(0)
		time.Sleep(between(r, 300, 1500))
	}},
	{"vLLM lies", func(w *chaosWorld, r *rand.Rand) {
		v := pick(w.vllms, r)
		v.sim.SetFault(pick(lies(w.path("outside")), r))
		defer v.sim.SetFault(vllmsim.Fault{})
		time.Sleep(between(r, 200, 800))
	}},
	{"artifacts truncated", func(w *chaosWorld, r *rand.Rand) {
		v := pick(w.vllms, r)
		for end := time.Now().Add(between(r, 200, 800)); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			files, _ := filepath.Glob(filepath.Join(v.dir, "*.safetensors"))
			for _, f := range files {
				_ = os.Truncate(f, int64(r.IntN(200))) // it may be gone already
			}
		}
	}},
	{"disk full", func(w *chaosWorld, r *rand.Rand) {
		if !w.vllms[0].small {
			return
		}
		ballast := filepath.Join(w.vllms[0].dir, "ballast")
		defer os.Remove(ballast)
		if f, err := os.Create(ballast); err == nil {
			_, err := io.Copy(f, &zeros{})
			if !errors.Is(err, syscall.ENOSPC) {
				w.t.Errorf("the disk is not full: %v", err)
			}
			_ = f.Close()
		}
		time.Sleep(between(r, 200, 1000))
	}},
	{"Redis stopped", func(w *chaosWorld, r *rand.Rand) {
		w.redis.Signal(syscall.SIGSTOP)
		time.Sleep(between(r, 100, 1500))
		w.redis.Signal(syscall.SIGCONT)
	}},
	{"Redis killed", func(w *chaosWorld, r *rand.Rand) {
		w.redis.Kill()
		time.Sleep(between(r, 100, 1000))
		w.redis.Restart()
	}},
	{"configuration changed", func(w *chaosWorld, _ *rand.Rand) {
		w.version = 1 - w.version
		for _, r := range w.replicas {
			w.write(r, w.versions[w.version])
		}
	}},
	{"configuration broken", func(w *chaosWorld, r *rand.Rand) {
		struck := pick(w.replicas, r)
		w.replace(struck.config, "routes: nonsense\n")
		time.Sleep(between(r, 200, 600))
		w.write(struck, w.versions[w.version])
	}},
	{"told to reload", func(w *chaosWorld, r *rand.Rand) {
		_ = pick(w.replicas, r).now.process.Process.Signal(syscall.SIGHUP)
	}},
	{"certificate and token rotated", func(w *chaosWorld, _ *rand.Rand) {
		w.rotate()
		// Longer than a replica takes to see it, stopped ones included: the token that
		// ends with the next rotation is used until then.
		time.Sleep(time.Second)
	}},
}

// lies are the faults of the stand-in that pass, but for those that take a minute of
// processor time.
func lies(outside string) []vllmsim.Fault {
	lasting := map[string]bool{
		vllmsim.Hang().String(): true, vllmsim.LockKept(0).String(): true, vllmsim.HugeZeros(2 << 30).String(): true,
	}
	var out []vllmsim.Fault
	for _, c := range vllmsim.AllFaults(outside) {
		if !lasting[c.Name()] {
			out = append(out, c.Fault)
		}
	}
	return out
}

// torment strikes until ctx ends: two lanes, so that troubles meet. What strikes a
// replica, its files or Redis is in one, what strikes vLLM in the other.
func (w *chaosWorld) torment(ctx context.Context, random *rand.Rand) {
	if err := os.MkdirAll(w.path("outside"), 0o700); err != nil {
		w.t.Fatal(err)
	}
	var lanes [2][]strike
	for _, s := range strikes {
		lane := 0
		switch s.name {
		case "vLLM away", "both vLLMs away", "vLLM slow", "vLLM lies", "artifacts truncated", "disk full":
			lane = 1
		default:
		}
		lanes[lane] = append(lanes[lane], s)
	}
	var running sync.WaitGroup
	for _, lane := range lanes {
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		running.Go(func() {
			for ctx.Err() == nil {
				s := pick(lane, own)
				w.tally.count(w.tally.faults, s.name)
				s.do(w, own)
				time.Sleep(between(own, 0, 600))
			}
		})
	}
	running.Wait()
}

// calm ends all trouble.
func (w *chaosWorld) calm() {
	for _, v := range w.vllms {
		v.sim.SetFault(vllmsim.Fault{})
	}
	for _, r := range w.replicas {
		w.awaitServing(r)
	}
}

// restart ends a replica and starts it again.
func (w *chaosWorld) restart(r *chaosReplica, sig syscall.Signal) {
	defer r.trouble()()
	_ = r.now.process.Process.Signal(sig)
	_ = r.now.process.Wait()
	if code := r.now.process.ProcessState.ExitCode(); sig == syscall.SIGTERM && code != 0 {
		w.t.Errorf("a replica that was terminated ended with %d:\n%s", code, tail(r.now.log.String()))
	}
	r.now = startBare(w.t, buildProgram(w.t), r.config, r.ports)
	w.awaitServing(r)
}

func pick[T any](from []T, random *rand.Rand) T { return from[random.IntN(len(from))] }

// between is a random time, in milliseconds.
func between(random *rand.Rand, least, most int) time.Duration {
	return time.Duration(least+random.IntN(most-least)) * time.Millisecond
}

// zeros never ends.
type zeros struct{}

func (*zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
