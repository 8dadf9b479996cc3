package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/probe/lexical"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
	"github.com/pointsman-dev/pointsman/scorer/features"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// countingProber gives a task's length as its only feature, and notes what it was
// asked.
type countingProber struct {
	fail func(task string, times int) error // times: how often it was asked for the task, from 1

	mu             sync.Mutex
	asked          map[string]int
	inFlight, most int
}

func (*countingProber) Status() probe.Status { return probe.Status{} }

func (p *countingProber) Extract(_ context.Context, req probe.Request) (probe.Extraction, error) {
	p.mu.Lock()
	if p.asked == nil {
		p.asked = map[string]int{}
	}
	p.asked[req.Task]++
	times := p.asked[req.Task]
	p.inFlight++
	p.most = max(p.most, p.inFlight)
	p.mu.Unlock()
	time.Sleep(time.Second) // of a fake clock
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	if p.fail != nil {
		if err := p.fail(req.Task, times); err != nil {
			return probe.Extraction{}, err
		}
	}
	return probe.Extraction{Features: probe.Features{
		Values: []float32{float32(len(req.Task))}, Shape: probe.Shape{Layers: 1, HiddenSize: 1},
	}}, nil
}

func examplesOf(n int) []labels.Example {
	examples := make([]labels.Example, n)
	for i := range examples {
		task := fmt.Sprintf("task %d %s", i, strings.Repeat("x", i))
		examples[i] = labels.Example{Task: task, Digest: features.DigestOf(task), Line: i + 1}
	}
	return examples
}

func newExtractor(p Prober, out string) *extractor {
	return &extractor{
		probe: p, workers: 4, out: out, header: features.Header{Encoder: "e"},
		progress: func(int, int, int) {}, report: &ExtractReport{},
	}
}

// rowsOf reads a features file whose only feature is the task's length.
func rowsOf(t *testing.T, path string) map[features.Digest]float32 {
	t.Helper()
	f, err := features.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	rows := map[features.Digest]float32{}
	for i, digest := range f.Digests() {
		var row [1]float32
		if err := f.ReadRow(i, row[:]); err != nil {
			t.Fatal(err)
		}
		rows[digest] = row[0]
	}
	return rows
}

func TestExtractAsksEveryTaskOnce(t *testing.T) {
	out := filepath.Join(t.TempDir(), "f")
	synctest.Test(t, func(t *testing.T) {
		p := &countingProber{}
		x := newExtractor(p, out)
		var told []int
		x.progress = func(done, total, _ int) { told = append(told, done, total) }
		if err := x.run(t.Context(), examplesOf(9)); err != nil {
			t.Fatal(err)
		}
		for task, times := range p.asked {
			if times != 1 {
				t.Errorf("%q was asked %d times", task, times)
			}
		}
		if len(p.asked) != 9 || p.most != 4 {
			t.Errorf("%d tasks were asked, %d at once, want 9 and 4", len(p.asked), p.most)
		}
		if x.report.Extracted != 9 || len(told) != 18 || told[17] != 9 || told[16] != 9 {
			t.Errorf("report %+v, progress %v", x.report, told)
		}
	})
	for _, e := range examplesOf(9) {
		if got := rowsOf(t, out)[e.Digest]; got != float32(len(e.Task)) {
			t.Errorf("line %d has the feature %v", e.Line, got)
		}
	}
}

func TestExtractGoesOnWhereItStopped(t *testing.T) {
	out := filepath.Join(t.TempDir(), "f")
	examples := examplesOf(200)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second+time.Millisecond)
		defer cancel()
		p := &countingProber{}
		err := newExtractor(p, out).run(ctx, examples)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		if _, err := features.Open(out); err == nil {
			t.Fatal("an interrupted run left a finished file")
		}
		again := &countingProber{}
		x := newExtractor(again, out)
		if err := x.run(t.Context(), examples); err != nil {
			t.Fatal(err)
		}
		twice := 0
		for task := range again.asked {
			if p.asked[task] > 0 {
				twice++
			}
		}
		if twice != 1 { // the one that tells the shape
			t.Errorf("%d tasks were asked twice, want 1", twice)
		}
		if x.report.Present != len(p.asked) || x.report.Present+x.report.Extracted != 200 {
			t.Errorf("report %+v after %d", x.report, len(p.asked))
		}
	})
	if got := len(rowsOf(t, out)); got != 200 {
		t.Errorf("%d rows", got)
	}
}

func TestExtractTriesAgainWhatMayPass(t *testing.T) {
	out := filepath.Join(t.TempDir(), "f")
	examples := examplesOf(30)
	synctest.Test(t, func(t *testing.T) {
		p := &countingProber{fail: func(task string, times int) error {
			switch {
			case strings.HasPrefix(task, "task 3 ") && times < 4: // passes in the end
				return probe.ErrCircuitOpen
			case strings.HasPrefix(task, "task 5 "):
				return probe.ErrUnavailable
			case strings.HasPrefix(task, "task 7 "):
				return probe.ErrRejected
			}
			return nil
		}}
		x := newExtractor(p, out)
		err := x.run(t.Context(), examples)
		if !errors.Is(err, ErrFeaturesMissing) || err.Error() != "some tasks have no features: 2 of 30" {
			t.Errorf("got %v", err)
		}
		var lines []int
		for _, f := range x.report.Failures {
			lines = append(lines, f.Line)
		}
		if !slices.Equal(lines, []int{6, 8}) || !errors.Is(x.report.Failures[1].Err, probe.ErrRejected) {
			t.Errorf("failures %+v", x.report.Failures)
		}
		for line, want := range map[int]int{4: 4, 6: 4, 8: 1} {
			if got := p.asked[examples[line-1].Task]; got != want {
				t.Errorf("line %d was asked %d times, want %d", line, got, want)
			}
		}
	})
	if got := len(rowsOf(t, out)); got != 28 {
		t.Errorf("%d rows, want 28: the file is finished without the failures", got)
	}
}

func TestExtractStopsWhenTheProbeIsBroken(t *testing.T) {
	for _, c := range []struct {
		name   string
		works  int // the first so many tasks
		asked  int // at most
		finish string
	}{
		{"from the start", 0, failuresInARow, "the probe has no features for any of the first tasks"},
		{"later on", 100, 100 + failuresInARow + 8, "20 tasks in a row have failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "f")
			examples := examplesOf(500)
			works := map[string]bool{}
			for _, e := range examples[:c.works] {
				works[e.Task] = true
			}
			synctest.Test(t, func(t *testing.T) {
				p := &countingProber{fail: func(task string, _ int) error {
					if works[task] {
						return nil
					}
					return probe.ErrProtocol
				}}
				err := newExtractor(p, out).run(t.Context(), examples)
				if !errors.Is(err, probe.ErrProtocol) || !strings.Contains(err.Error(), c.finish) {
					t.Errorf("got %v", err)
				}
				if len(p.asked) > c.asked {
					t.Errorf("%d tasks were asked, want at most %d", len(p.asked), c.asked)
				}
				if _, err := features.Open(out); err == nil {
					t.Error("there is a finished file")
				}
			})
		})
	}
}

// writeExtraction writes a configuration with both kinds of probes, and data.
func writeExtraction(t *testing.T, baseURL, states string) (configPath, data string) {
	t.Helper()
	dir := t.TempDir()
	configPath, data = filepath.Join(dir, "p.yaml"), filepath.Join(dir, "data.jsonl")
	text := fmt.Sprintf(`
routes:
  main:
    probe: sim
    checkpoint: ./not-there-yet
    targets:
      - { name: strong, model: s, head: large, cost: 1 }
      - { name: weak, model: w, head: small, cost: 0.1 }
probes:
  sim: { encoder: m/sim, endpoints: [ { base_url: %q, hidden_states_dir: %q } ] }
  words: { kind: lexical }
`, baseURL, states)
	lines := `{"task": "a secret task", "labels": {"small": 0, "large": 1}}
{"task": "another", "labels": {"small": 1, "large": 1}}
{"task": "a secret task", "labels": {"small": 0}}
`
	for name, content := range map[string]string{configPath: text, data: lines} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return configPath, data
}

func TestExtractUsesTheConfiguredProbe(t *testing.T) {
	states := t.TempDir()
	sim, err := vllmsim.New(vllmsim.Config{Dir: states, Model: "m/sim", Layers: 3, HiddenSize: 8})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(sim.Handler())
	t.Cleanup(func() {
		web.Close()
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
	})
	configPath, data := writeExtraction(t, web.URL+"/v1", states)
	for _, c := range []struct {
		probe  string
		layers []int
		want   features.Header
		row    func(task string) []float32
	}{
		{
			"sim",
			[]int{1, 2, 3},
			features.Header{Encoder: "m/sim", Layers: 3, HiddenSize: 8, VLLMLayerIDs: []int{1, 2, 3}},
			func(task string) []float32 { return vllmsim.Features(task, 3, 8, vllmsim.BF16) },
		},
		{
			"words", nil,
			features.Header{Encoder: lexical.Encoder, Layers: 1, HiddenSize: lexical.Dim},
			func(task string) []float32 { values, _ := lexical.Encode(task); return values },
		},
	} {
		t.Run(c.probe, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "f.safetensors")
			report, err := Extract(t.Context(), ExtractOptions{
				ConfigPath: configPath, Probe: c.probe, Data: data, Out: out, VLLMLayerIDs: c.layers,
			})
			if err != nil {
				t.Fatal(err)
			}
			if report.Tasks != 2 || report.Extracted != 2 || report.Repeated != 1 {
				t.Errorf("report %+v", report)
			}
			f, err := features.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			if err := f.Header().Matches(c.want); err != nil {
				t.Error(err)
			}
			for i, digest := range f.Digests() {
				row := make([]float32, c.want.Dim())
				if err := f.ReadRow(i, row); err != nil {
					t.Fatal(err)
				}
				matches := func(task string) bool {
					return digest == features.DigestOf(task) && slices.Equal(row, c.row(task))
				}
				if !matches("a secret task") && !matches("another") {
					t.Errorf("row %d is of no task", i)
				}
			}
			raw, err := os.ReadFile(out)
			if err != nil || bytes.Contains(raw, []byte("secret")) {
				t.Errorf("the features file holds the text of a task, or %v", err)
			}
		})
	}
}

func TestExtractRefuses(t *testing.T) {
	configPath, data := writeExtraction(t, "http://127.0.0.1:1/v1", t.TempDir())
	for _, c := range []struct {
		name string
		opts ExtractOptions
		want string
	}{
		{"no probe of two", ExtractOptions{ConfigPath: configPath, Data: data}, "name one of the configuration's probes: sim, words"},
		{"an unknown probe", ExtractOptions{ConfigPath: configPath, Data: data, Probe: "x"}, `the configuration has no probe "x"; it has sim, words`},
		{"no data", ExtractOptions{ConfigPath: configPath, Data: data + "x", Probe: "words"}, "judged data: open"},
		{"layer ids that do not fit", ExtractOptions{ConfigPath: configPath, Data: data, Probe: "words", VLLMLayerIDs: []int{1, 2}}, "vllm_layer_ids has 2 ids, want 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.opts.Out = filepath.Join(t.TempDir(), "f")
			if _, err := Extract(t.Context(), c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
