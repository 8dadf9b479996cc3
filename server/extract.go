package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/scorer/features"
	"github.com/pointsman-dev/pointsman/scorer/labels"
	"github.com/pointsman-dev/pointsman/server/config"
)

// ExtractOptions are the flags of `pointsman extract`.
type ExtractOptions struct {
	ConfigPath string
	// Probe is the name of the probe; empty: the only one.
	Probe string
	// Data is the file of judged examples, Out the features file to write or go on
	// with.
	Data, Out string
	// VLLMLayerIDs are the layers vLLM was launched to extract; nil: not known.
	VLLMLayerIDs []int
	// Progress is told how many of the tasks that had no features yet are done.
	Progress func(done, total, failed int)
}

// ExtractReport says what [Extract] did.
type ExtractReport struct {
	// Tasks are the different tasks of the data, Repeated the lines that repeat one,
	// Present those tasks that had features already.
	Tasks, Repeated, Present int
	// Extracted are the tasks that have features since.
	Extracted int
	// Failures are those that still have none, by line.
	Failures []ExtractFailure
	Header   features.Header
	Warnings []string
}

// ExtractFailure is a task that the probe had no features for.
type ExtractFailure struct {
	Line   int // of the data
	Digest features.Digest
	Err    error
}

// ErrFeaturesMissing says that the features file is finished, but not for all tasks.
var ErrFeaturesMissing = errors.New("some tasks have no features")

// Extract puts every task of judged data through a configured probe, as the service
// would, and writes its features. What was written before is kept and not asked
// again, also after a crash. The text of a task is not written.
//
// A task that fails for a reason that may pass is tried again. Tasks that fail for
// good are in the report, beside an [ErrFeaturesMissing]; the features file is
// finished without them. When ctx ends, or one task after the other fails, Extract
// stops with an error and leaves what it has to be gone on with.
func Extract(ctx context.Context, opts ExtractOptions) (report *ExtractReport, err error) {
	cfg, err := config.Load(opts.ConfigPath)
	if err != nil {
		return nil, err
	}
	name, err := probeToAsk(cfg, opts.Probe)
	if err != nil {
		return nil, err
	}
	set, err := labels.ReadFile(opts.Data)
	if err != nil {
		return nil, err
	}
	probeCfg := cfg.Probes[name]
	p, err := newProbe(name, probeCfg, slog.New(slog.DiscardHandler), probe.NopObserver{})
	if err != nil {
		return nil, fmt.Errorf("probe %q: %w", name, err)
	}
	defer func() {
		// Nothing is under way any more: Close only ends the sweeper.
		err = errors.Join(err, closeProbe(context.WithoutCancel(ctx), p))
	}()
	x := extractor{
		probe:   p,
		workers: probeCfg.MaxInFlight * max(len(probeCfg.Endpoints), 1),
		out:     opts.Out,
		header: features.Header{
			Encoder: probeCfg.Encoder, ProbeRevision: probeCfg.Revision, VLLMLayerIDs: opts.VLLMLayerIDs,
		},
		progress: opts.Progress,
		report:   &ExtractReport{Tasks: len(set.Examples), Repeated: set.Repeated, Warnings: probeWarnings(p)},
	}
	if x.progress == nil {
		x.progress = func(int, int, int) {}
	}
	err = x.run(ctx, set.Examples)
	return x.report, err
}

// probeToAsk returns the named probe, or the only one there is.
func probeToAsk(cfg *config.Config, name string) (string, error) {
	names := slices.Sorted(maps.Keys(cfg.Probes))
	switch {
	case name == "" && len(names) == 1:
		return names[0], nil
	case name == "":
		return "", fmt.Errorf("name one of the configuration's probes: %s", strings.Join(names, ", "))
	case !slices.Contains(names, name):
		return "", fmt.Errorf("the configuration has no probe %q; it has %s", clip(name), strings.Join(names, ", "))
	}
	return name, nil
}

// Waits between the tries for one task. Together they outlast a breaker's usual ten
// seconds and a server's restart.
var retryWaits = [...]time.Duration{2 * time.Second, 12 * time.Second, 30 * time.Second}

// failuresInARow is after how many tasks without one success extraction stops: the
// probe is broken then, not the tasks.
const failuresInARow = 20

// extractor is one run of [Extract].
type extractor struct {
	probe    Prober
	workers  int
	out      string
	header   features.Header // but for the shape, which the first answer tells
	progress func(done, total, failed int)
	report   *ExtractReport
}

// extracted is what became of a task.
type extracted struct {
	example *labels.Example
	values  []float32
	err     error
}

func (x *extractor) run(ctx context.Context, examples []labels.Example) (err error) {
	first, err := x.learnShape(ctx, examples)
	if err != nil {
		return err
	}
	w, err := features.Create(x.out, x.header)
	if err != nil {
		return err
	}
	x.report.Header = x.header
	var todo []*labels.Example
	for i := range examples {
		if !w.Has(examples[i].Digest) {
			todo = append(todo, &examples[i])
		}
	}
	x.report.Present = len(examples) - len(todo)
	if err := x.fill(ctx, w, todo, first); err != nil {
		return fmt.Errorf("%w; run the same command again to go on", errors.Join(err, w.Close()))
	}
	if err := w.Finish(); err != nil {
		return err
	}
	if n := len(x.report.Failures); n > 0 {
		return fmt.Errorf("%w: %d of %d", ErrFeaturesMissing, n, len(examples))
	}
	return nil
}

// learnShape asks for tasks until one is answered, which tells the shape.
func (x *extractor) learnShape(ctx context.Context, examples []labels.Example) (extracted, error) {
	var last error
	for i := range examples[:min(failuresInARow, len(examples))] {
		features, err := x.try(ctx, examples[i].Task, probe.Shape{})
		if err == nil {
			x.header.Layers, x.header.HiddenSize = features.Layers, features.HiddenSize
			return extracted{example: &examples[i], values: features.Values}, nil
		}
		if last = err; ctx.Err() != nil {
			break
		}
	}
	return extracted{}, fmt.Errorf("the probe has no features for any of the first tasks: %w", last)
}

// fill asks for every task of todo, several at once, and writes what comes back.
func (x *extractor) fill(ctx context.Context, w *features.Writer, todo []*labels.Example, first extracted) error {
	ctx, stop := context.WithCancelCause(ctx)
	results := make(chan extracted)
	var running sync.WaitGroup
	running.Go(func() {
		defer close(results)
		x.ask(ctx, todo, first, results)
	})
	defer running.Wait()
	defer stop(nil)

	done, inARow := 0, 0
	var failure error
	for r := range results {
		if failure != nil {
			continue // drained, so that the workers can end
		}
		err := r.err
		if err == nil {
			err = w.Append(r.example.Digest, r.values)
			if err != nil && !errors.Is(err, features.ErrNonFinite) {
				failure = err // the disk: no use to go on
				stop(err)
				continue
			}
		}
		if err != nil && ctx.Err() != nil {
			continue // given up, not failed
		}
		done++
		if err != nil {
			inARow++
			x.report.Failures = append(x.report.Failures, ExtractFailure{Line: r.example.Line, Digest: r.example.Digest, Err: err})
		} else {
			inARow = 0
			x.report.Extracted++
		}
		if inARow == failuresInARow {
			failure = fmt.Errorf("%d tasks in a row have failed, the last: %w", inARow, err)
			stop(failure)
			continue
		}
		x.progress(done, len(todo), len(x.report.Failures))
	}
	slices.SortFunc(x.report.Failures, func(a, b ExtractFailure) int { return a.Line - b.Line })
	if failure == nil && ctx.Err() != nil {
		failure = fmt.Errorf("stopped after %d of %d tasks: %w", done, len(todo), context.Cause(ctx))
	}
	return failure
}

// ask puts the tasks to the probe, as many at once as it takes, until ctx ends. The
// task whose features are known already is not put again.
func (x *extractor) ask(ctx context.Context, todo []*labels.Example, first extracted, results chan<- extracted) {
	next := make(chan *labels.Example)
	shape := probe.Shape{Layers: x.header.Layers, HiddenSize: x.header.HiddenSize}
	var workers sync.WaitGroup
	for range min(x.workers, len(todo)) {
		workers.Go(func() {
			for example := range next {
				if example == first.example {
					results <- first
					continue
				}
				f, err := x.try(ctx, example.Task, shape)
				results <- extracted{example: example, values: f.Values, err: err}
			}
		})
	}
feed:
	for _, example := range todo {
		select {
		case next <- example:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	workers.Wait()
}

// try asks for one task, and again after a failure that may pass.
func (x *extractor) try(ctx context.Context, task string, shape probe.Shape) (probe.Features, error) {
	for attempt := 0; ; attempt++ {
		answer, err := x.probe.Extract(ctx, probe.Request{Task: task, Shape: shape})
		if err == nil || !mayPass(err) || attempt == len(retryWaits) || !sleep(ctx, retryWaits[attempt]) {
			return answer.Features, err
		}
	}
}

// mayPass reports whether the same task may be answered a little later.
func mayPass(err error) bool {
	return slices.ContainsFunc([]error{probe.ErrOverloaded, probe.ErrCircuitOpen, probe.ErrTimeout, probe.ErrUnavailable},
		func(passing error) bool { return errors.Is(err, passing) })
}

// sleep waits, and reports whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
