package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman-dev/pointsman/server"
)

type extractCmd struct {
	Config       string `required:"" placeholder:"FILE" help:"The configuration file, for its probes."`
	Probe        string `placeholder:"NAME" help:"The probe to ask; the only one if left out."`
	Data         string `required:"" placeholder:"FILE" help:"Judged examples, as train reads them."`
	Out          string `required:"" placeholder:"FILE" help:"The features to write, or to go on with."`
	VLLMLayerIDs []int  `name:"vllm-layer-ids" placeholder:"ID,ID" help:"The layers that vLLM was launched to extract, noted for the checkpoint."`
}

func (c *extractCmd) Run(ctx context.Context, std streams) error {
	bar := newProgressBar(std.err)
	var began time.Time
	report, err := server.Extract(ctx, server.ExtractOptions{
		ConfigPath: c.Config, Probe: c.Probe, Data: c.Data, Out: c.Out, VLLMLayerIDs: c.VLLMLayerIDs,
		Progress: func(done, total, failed int) {
			if began.IsZero() {
				began = time.Now()
			}
			bar.show("extract", done, total, pace(done, failed, time.Since(began)))
		},
	})
	bar.end()
	if report != nil {
		printExtracted(std, c.Out, report)
	}
	if err != nil {
		return fmt.Errorf("extract: %w", err)
	}
	return nil
}

// pace is how fast it goes, and what went wrong so far.
func pace(done, failed int, took time.Duration) string {
	note := ""
	if took > time.Second {
		note = fmt.Sprintf("%.1f/s", float64(done)/took.Seconds())
	}
	if failed > 0 {
		note += fmt.Sprintf("  %d failed", failed)
	}
	return note
}

// shownFailures is how many failures are listed one by one.
const shownFailures = 50

func printExtracted(std streams, out string, r *server.ExtractReport) {
	for _, w := range r.Warnings {
		_, _ = fmt.Fprintf(std.err, "pointsman: %s\n", w)
	}
	for _, f := range r.Failures[:min(shownFailures, len(r.Failures))] {
		_, _ = fmt.Fprintf(std.err, "line %d (task %.12s…): %v\n", f.Line, f.Digest, f.Err)
	}
	if more := len(r.Failures) - shownFailures; more > 0 {
		_, _ = fmt.Fprintf(std.err, "and %d more\n", more)
	}
	if r.Header.Encoder == "" {
		return // it did not come that far
	}
	_, _ = fmt.Fprintf(std.out, "%s: %d tasks (%d lines repeat one), %d layers x %d of %s: %d extracted, %d were there, %d failed\n",
		out, r.Tasks, r.Repeated, r.Header.Layers, r.Header.HiddenSize, r.Header.Encoder, r.Extracted, r.Present, len(r.Failures))
}
