package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/eval"
)

type evaluateCmd struct {
	sampleFlags

	Tolerance     []float64 `placeholder:"T" help:"A tolerance to report on besides 0, 0.05, …, 1."`
	QualityWeight []float64 `placeholder:"W" help:"A quality weight to report on."`
	JSON          string    `name:"json" placeholder:"FILE" help:"Write everything as JSON; - is standard output, instead of the table."`
	HTML          string    `name:"html" placeholder:"FILE" help:"Write a page with plots."`
}

func (c *evaluateCmd) Run(ctx context.Context, std streams) error {
	samples, err := c.samples(ctx)
	if err != nil {
		return err
	}
	var policies []scorer.TradeOff
	for _, t := range c.Tolerance {
		policies = append(policies, scorer.Tolerance(t))
	}
	for _, w := range c.QualityWeight {
		policies = append(policies, scorer.QualityWeight(w))
	}
	var reports []*eval.Report
	for _, sample := range samples {
		report, err := measure(sample, c.options(policies...))
		if err != nil {
			return err
		}
		reports = append(reports, report)
	}
	if c.JSON == "-" {
		err = eval.WriteJSON(std.out, reports)
	} else {
		err = eval.WriteTable(std.out, reports)
	}
	if c.JSON != "" && c.JSON != "-" {
		err = errors.Join(err, writeReport(c.JSON, reports, eval.WriteJSON))
	}
	if c.HTML != "" {
		err = errors.Join(err, writeReport(c.HTML, reports, eval.WriteHTML))
	}
	return err
}

// measure measures a sample; one without the labels that routing is judged by, on
// its trade-offs alone.
func measure(sample *eval.Sample, options eval.Options) (*eval.Report, error) {
	report, err := eval.Measure(sample, options)
	if !errors.Is(err, eval.ErrFewLabels) {
		return report, err
	}
	sample.Notes = append(sample.Notes, "too few rows are judged for both models: only the trade-offs are measured")
	return eval.MeasurePolicies(sample, options)
}

// writeReport writes a file beside path and renames it.
func writeReport(path string, reports []*eval.Report, write func(io.Writer, []*eval.Report) error) error {
	var text bytes.Buffer
	if err := write(&text, reports); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	defer os.Remove(f.Name()) // nothing is there after the rename
	_, err = f.Write(text.Bytes())
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return os.Rename(f.Name(), path)
}

// readFrom reads a file with one of the package's readers.
func readFrom[T any](path string, read func(io.Reader) (T, error)) (T, error) {
	var none T
	f, err := os.Open(path)
	if err != nil {
		return none, err
	}
	defer f.Close()
	out, err := read(f)
	if err != nil {
		return none, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}
