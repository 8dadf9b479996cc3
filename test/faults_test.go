package test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

// impatient is a probe that gives up early, though not so early that a busy
// machine looks like a fault, sweeps often, and whose breaker stays out of the way.
const impatient = `
queue_timeout: 100ms
request_timeout: 8s
artifact_timeout: 3s
sweep: { interval: 100ms, min_age: 11101ms }
breaker: { failures: 1000000, open_for: 1ms }
`

// TestEveryFaultFallsBackAndLeavesNothing drives every fault of the stand-in
// through a whole service, in every regime: the answer says the right reason,
// nothing is cached, what vLLM left is swept away, and nothing outside of the
// folder is touched.
func TestEveryFaultFallsBackAndLeavesNothing(t *testing.T) {
	for _, regime := range []vllmsim.Regime{vllmsim.RegimeA, vllmsim.RegimeB, vllmsim.RegimeC} {
		t.Run(regime.String(), func(t *testing.T) {
			t.Parallel() // most of it is waiting
			w := start(t, setup{
				sim:       vllmsim.Config{Regime: regime, WriteDelay: 5 * time.Millisecond},
				probeYAML: impatient,
				routeYAML: "decide_timeout: 1m",
			})
			outside := filepath.Join(w.root, "outside")
			writeFile(t, filepath.Join(outside, "bystander.safetensors"))
			writeFile(t, filepath.Join(outside, "bystander.safetensors.lock"))
			writeFile(t, filepath.Join(w.dir, "bystander.safetensors"))
			for i, c := range vllmsim.AllFaults(outside) {
				t.Run(c.Name(), func(t *testing.T) {
					before := tree(t, w.root, w.dir)
					w.sim.QueueFaults(c.Fault)
					req := task(fmt.Sprintf("Fault %d.", i))
					resp := w.decide(t, req)
					if got := reasonName(resp); got != c.Want {
						t.Errorf("reason %q, want %q", got, c.Want)
					}
					if c.Want != vllmsim.WantOK {
						req.CachePolicy = pointsmanv1.CachePolicy_CACHE_POLICY_ONLY_IF_CACHED
						if got := reasonName(w.decide(t, req)); got != "NOT_CACHED" {
							t.Errorf("a failure was kept: asked again, the reason is %q", got)
						}
					}
					// What the fault itself put outside of the folder is the fault's.
					after := tree(t, w.root, w.dir)
					for name, content := range before {
						if after[name] != content {
							t.Errorf("%s was touched", name)
						}
					}
				})
			}
			w.sim.ReleaseLocks()
			// A directory is nothing vLLM makes; it is left, as is what is not ours.
			eventually(t, func() string {
				var ours []string
				for _, name := range w.files(t) {
					info, err := os.Lstat(filepath.Join(w.dir, name))
					if err == nil && !info.IsDir() && strings.HasPrefix(name, "chatcmpl-pm-") {
						ours = append(ours, info.Mode().String()+" "+name)
					}
				}
				return strings.Join(ours, "\n")
			})
			if !slices.Contains(w.files(t), "bystander.safetensors") {
				t.Error("a file that is not ours was removed")
			}
		})
	}
}

// reasonName is the name of the answer's fallback reason, empty without one.
func reasonName(resp *pointsmanv1.DecideResponse) string {
	if resp.GetFallbackReason() == 0 {
		return ""
	}
	return strings.TrimPrefix(resp.GetFallbackReason().String(), "FALLBACK_REASON_")
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tree maps every regular file below root, without those below the folder
// without, to its size and time of change.
func tree(t *testing.T, root, without string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == without:
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err == nil {
			found[path] = fmt.Sprint(info.Size(), info.ModTime(), info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("nothing to watch below %v: %v", root, slices.Collect(maps.Keys(found)))
	}
	return found
}

func TestTheBreakerStopsAskingAndTriesAgain(t *testing.T) {
	w := start(t, setup{probeYAML: "breaker: { failures: 3, open_for: 300ms }"})
	w.sim.SetFault(vllmsim.Status(503, vllmsim.BodyJSON))
	for i := range 3 {
		if got := reasonName(w.decide(t, task(fmt.Sprintf("Down %d.", i)))); got != "PROBE_UNAVAILABLE" {
			t.Fatalf("failure %d: reason %q", i, got)
		}
	}
	if got := reasonName(w.decide(t, task("Down 4."))); got != "CIRCUIT_OPEN" {
		t.Errorf("after three failures in a row: reason %q", got)
	}
	if got := w.sim.Stats().Requests; got != 3 {
		t.Errorf("%d probes were sent, want 3", got)
	}
	routes, err := w.client.ListRoutes(t.Context(), &pointsmanv1.ListRoutesRequest{})
	if err != nil || routes.GetRoutes()[0].GetProbeState() != pointsmanv1.ProbeState_PROBE_STATE_DOWN {
		t.Errorf("%v %v", routes, err)
	}
	w.sim.SetFault(vllmsim.None())
	eventually(t, func() string { return reasonName(w.decide(t, task("Up again."))) })
}

func TestAFullGateIsOverload(t *testing.T) {
	w := start(t, setup{
		sim:       vllmsim.Config{Latency: 500 * time.Millisecond},
		probeYAML: "max_in_flight: 1\nmax_queue: 0",
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if got := reasonName(w.decide(t, task("First."))); got != "" {
			t.Errorf("the first caller fell back: %s", got)
		}
	}()
	w.awaitProbe(t)
	if got := reasonName(w.decide(t, task("Second."))); got != "OVERLOADED" {
		t.Errorf("reason %q, want OVERLOADED", got)
	}
	<-done
}
