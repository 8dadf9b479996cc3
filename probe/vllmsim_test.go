package probe_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
	"golang.org/x/sys/unix"
)

// serve starts a stand-in for vLLM and returns it with a probe's configuration for it.
func serve(t *testing.T, cfg vllmsim.Config) (*vllmsim.Server, probe.Config) {
	t.Helper()
	cfg.Dir, cfg.Model = t.TempDir(), "encoder"
	if cfg.Layers == 0 {
		cfg.Layers, cfg.HiddenSize = 3, 8
	}
	sim, err := vllmsim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(func() {
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	pc := probe.DefaultConfig()
	pc.Name, pc.Model, pc.APIKey = "test", cfg.Model, cfg.APIKey
	pc.Endpoint = probe.Endpoint{BaseURL: server.URL + "/v1", HiddenStatesDir: cfg.Dir}
	return sim, pc
}

func newProbe(t *testing.T, cfg probe.Config) *probe.VLLM {
	t.Helper()
	v, err := probe.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return v
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestRegimes extracts in every way vLLM has written artifacts, in every format, and compares with the states that the
// stand-in says it wrote.
func TestRegimes(t *testing.T) {
	const task = "Sort these numbers: 3, 1, 2. Explain <each> step."
	for _, regime := range []vllmsim.Regime{vllmsim.RegimeA, vllmsim.RegimeB, vllmsim.RegimeC} {
		for _, dtype := range []vllmsim.DType{vllmsim.BF16, vllmsim.F16, vllmsim.F32} {
			t.Run(fmt.Sprintf("%v/%v", regime, dtype), func(t *testing.T) {
				_, cfg := serve(t, vllmsim.Config{Regime: regime, DType: dtype, WriteDelay: 20 * time.Millisecond, APIKey: "sk-1"})
				v := newProbe(t, cfg)
				got, err := v.Extract(t.Context(), probe.Request{Task: task, CacheSalt: "tenant", Shape: probe.Shape{Layers: 3, HiddenSize: 8}})
				if err != nil {
					t.Fatal(err)
				}
				if want := len(vllmsim.Tokens(task)); got.Tokens != want {
					t.Errorf("%d tokens, want %d", got.Tokens, want)
				}
				want := vllmsim.Features(task, 3, 8, dtype)
				if len(got.Values) != len(want) {
					t.Fatalf("%d values, want %d", len(got.Values), len(want))
				}
				for i := range want {
					if math.Abs(float64(got.Values[i]-want[i])) > 2e-6 {
						t.Fatalf("value %d is %v, want %v", i, got.Values[i], want[i])
					}
				}
				if left := list(t, cfg.Endpoint.HiddenStatesDir); len(left) != 0 {
					t.Errorf("left %v", left)
				}
				report, err := v.Check(t.Context(), "canary", probe.Shape{})
				if err != nil || report.Artifact.Locked != (regime != vllmsim.RegimeA) || !report.NamedByRequest ||
					report.Artifact.DType != string(dtype) || report.Shape != (probe.Shape{Layers: 3, HiddenSize: 8}) {
					t.Errorf("report %+v, error %v", report, err)
				}
			})
		}
	}
}

// TestFaults: every fault, in every regime, becomes the right kind of error; a good request after it works; when the
// sweep has run, the folder holds nothing of ours, and nothing outside was touched.
func TestFaults(t *testing.T) {
	kinds := map[string]error{
		vllmsim.WantOK: nil, vllmsim.WantTimeout: probe.ErrTimeout, vllmsim.WantUnavailable: probe.ErrUnavailable,
		vllmsim.WantProtocol: probe.ErrProtocol, vllmsim.WantRejected: probe.ErrRejected, vllmsim.WantArtifact: probe.ErrArtifact,
	}
	const task = "a secret task"
	for _, regime := range []vllmsim.Regime{vllmsim.RegimeA, vllmsim.RegimeB, vllmsim.RegimeC} {
		for i, c := range vllmsim.AllFaults(t.TempDir()) {
			t.Run(fmt.Sprintf("%v/%s", regime, c.Name()), func(t *testing.T) {
				t.Parallel()
				outside := t.TempDir() // each its own: the others write there
				c := vllmsim.AllFaults(outside)[i]
				sim, cfg := serve(t, vllmsim.Config{Regime: regime})
				cfg.QueueTimeout = 100 * time.Millisecond
				cfg.RequestTimeout = 20 * time.Second // compressing a bomb takes the stand-in seconds under the race detector
				if c.Fault == vllmsim.Hang() {
					cfg.RequestTimeout = 500 * time.Millisecond
				}
				cfg.ArtifactTimeout = 3 * time.Second // writing 2 MiB takes the stand-in a while, too, on a busy machine
				v := newProbe(t, cfg)
				sim.QueueFaults(c.Fault)
				kept := filepath.Join(outside, "kept.safetensors")
				if err := os.WriteFile(kept, []byte("kept"), 0o600); err != nil {
					t.Fatal(err)
				}

				_, err := v.Extract(t.Context(), probe.Request{Task: task, Shape: probe.Shape{Layers: 3, HiddenSize: 8}})
				if !errors.Is(err, kinds[c.Want]) {
					t.Fatalf("error %v, want %v", err, kinds[c.Want])
				}
				if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "chatcmpl")) {
					t.Errorf("error %q says too much", err)
				}
				before := list(t, outside)
				if _, err := v.Extract(t.Context(), probe.Request{Task: task}); err != nil {
					t.Errorf("after the fault: %v", err)
				}

				// What is left is the sweep's, once it is old enough. Another process on the folder does it as well.
				sim.ReleaseLocks()
				cfg.Sweep.Interval = 5 * time.Millisecond
				newProbe(t, cfg)
				deadline := time.Now().Add(10 * time.Second)
				for left := owned(t, cfg.Endpoint.HiddenStatesDir); len(left) > 0; left = owned(t, cfg.Endpoint.HiddenStatesDir) {
					if time.Now().After(deadline) {
						t.Fatalf("left %v", left)
					}
					age(t, cfg.Endpoint.HiddenStatesDir, left)
					time.Sleep(5 * time.Millisecond)
				}
				for _, name := range append(before, filepath.Base(kept)) {
					if !slices.Contains(list(t, outside), name) {
						t.Errorf("%s is gone", name)
					}
				}
				if text, err := os.ReadFile(kept); err != nil || string(text) != "kept" {
					t.Errorf("a file outside was touched: %q, %v", text, err)
				}
			})
		}
	}
}

// owned lists what in the folder has a name of ours.
func owned(t *testing.T, dir string) []string {
	t.Helper()
	return slices.DeleteFunc(list(t, dir), func(name string) bool { return !strings.HasPrefix(name, "chatcmpl-pm-") })
}

// age makes files old enough to be swept; a link itself, not its target.
func age(t *testing.T, dir string, names []string) {
	t.Helper()
	old := unix.NsecToTimespec(time.Now().Add(-time.Hour).UnixNano())
	for _, name := range names {
		err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(dir, name), []unix.Timespec{old, old}, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// TestManyTasks: 200 distinct tasks at once never have more than MaxInFlight outstanding, and each gets its own states.
func TestManyTasks(t *testing.T) {
	sim, cfg := serve(t, vllmsim.Config{Latency: 5 * time.Millisecond, WriteDelay: time.Millisecond})
	cfg.MaxInFlight, cfg.MaxQueue, cfg.QueueTimeout = 8, 200, 30*time.Second
	v := newProbe(t, cfg)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			task := fmt.Sprintf("Task number %d: count to %d.", i, i*i)
			got, err := v.Extract(t.Context(), probe.Request{Task: task})
			if err != nil {
				t.Error(err)
				return
			}
			for j, want := range vllmsim.Features(task, 3, 8, vllmsim.BF16) {
				if math.Abs(float64(got.Values[j]-want)) > 2e-6 {
					t.Errorf("task %d got other features", i)
					return
				}
			}
		})
	}
	wg.Wait()
	if stats := sim.Stats(); stats.Requests != 200 || stats.MaxInFlight > 8 || stats.Aborted != 0 {
		t.Errorf("stats %d requests, %d at a time, %d aborted", stats.Requests, stats.MaxInFlight, stats.Aborted)
	}
	if left := list(t, cfg.Endpoint.HiddenStatesDir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

// TestNoAbort: a caller that gives up does not abort vLLM's request; only request_timeout does.
func TestNoAbort(t *testing.T) {
	sim, cfg := serve(t, vllmsim.Config{Latency: 100 * time.Millisecond})
	v := newProbe(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := v.Extract(ctx, probe.Request{Task: "slow"}); err != nil {
		t.Error(err)
	}
	if stats := sim.Stats(); stats.Aborted != 0 {
		t.Errorf("%d aborted", stats.Aborted)
	}
}

func BenchmarkExtract(b *testing.B) {
	dir := b.TempDir()
	sim, err := vllmsim.New(vllmsim.Config{Dir: dir, Model: "encoder", Layers: 4, HiddenSize: 1024})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(sim.Handler())
	defer server.Close()
	defer sim.Close()
	cfg := probe.DefaultConfig()
	cfg.Model = "encoder"
	cfg.Endpoint = probe.Endpoint{BaseURL: server.URL + "/v1", HiddenStatesDir: dir}
	v, err := probe.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close(context.Background())
	for b.Loop() {
		if _, err := v.Extract(b.Context(), probe.Request{Task: "What is two and two?"}); err != nil {
			b.Fatal(err)
		}
	}
}
