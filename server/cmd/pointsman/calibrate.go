package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/pointsman-dev/pointsman/scorer/eval"
)

type calibrateCmd struct {
	sampleFlags

	StrongShare *float64 `placeholder:"S" help:"Wanted: this share of calls to the strong model." xor:"goal"`
	Quality     *float64 `placeholder:"Q" help:"Wanted: at least this share of right answers, at the least cost." xor:"goal"`
	Saving      *float64 `placeholder:"S" help:"Wanted: at least this saving against always-strong, at the best quality." xor:"goal"`
}

func (c *calibrateCmd) Run(ctx context.Context, std streams) error {
	samples, err := c.samples(ctx)
	if err != nil {
		return err
	}
	if len(samples) != 1 {
		return errors.New("calibrate takes one checkpoint")
	}
	sample := samples[0]
	tolerance, err := eval.Pick(sample, eval.Goal{StrongShare: c.StrongShare, Quality: c.Quality, Saving: c.Saving})
	if err != nil {
		return err
	}
	byTolerance, byWeight := eval.TradeOffs(tolerance)
	report, err := eval.MeasurePolicies(sample, c.options(byTolerance))
	if err != nil {
		return err
	}
	weight, _ := byWeight.QualityWeight()
	_, err = fmt.Fprintf(std.out, "# %s\n", eval.Describe(report, report.Policies[0]))
	for _, note := range report.Notes {
		_, _ = fmt.Fprintf(std.out, "# note: %s\n", note)
	}
	_, _ = fmt.Fprintf(std.out, "policy: { tolerance: %.10g }\n# the same for two targets:\n# policy: { quality_weight: %.10g }\n", tolerance, weight)
	return err
}
