package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pointsman-dev/pointsman/scorer/features"
	"github.com/pointsman-dev/pointsman/scorer/labels"
	"github.com/pointsman-dev/pointsman/scorer/train"
)

type trainCmd struct {
	Data        string   `required:"" placeholder:"FILE" help:"Judged examples: JSON lines of task, group and labels, or CSV of question, model and isCorrect; .gz too."`
	Features    string   `required:"" placeholder:"FILE" help:"Their features, as extract writes them."`
	Out         string   `required:"" placeholder:"FOLDER" help:"The checkpoint to write; must not be there yet."`
	Head        []string `placeholder:"MODEL" sep:"none" help:"A model to predict; repeat it in the order of the outputs. Default: every model of the data, by name."`
	HoldOut     int      `default:"0" placeholder:"N" help:"Set the tasks aside whose SHA-256 begins with a byte below N, for evaluate; 51 is a fifth (${default})."`
	SkipMissing bool     `help:"Pass over examples that have no features."`

	TrainShare     float64   `default:"0.85" help:"Share of the rest to fit weights on, stratified by group (${default})."`
	Scaling        string    `enum:"each,common" default:"each" help:"Scale every feature by its own deviation (each), or all by one number (common: for hashed counts)."`
	PCADim         string    `name:"pca-dim" default:"200" placeholder:"N|auto" help:"Principal components; auto: by cross-validation (${default})."`
	Trunk          string    `default:"256,128" placeholder:"W,W|none" help:"Widths of the hidden layers; none: a logistic regression (${default})."`
	Dropout        []float64 `placeholder:"P,P" help:"Share dropped after each hidden layer. Default: 0.3 after the first, 0.2 after the others."`
	LearningRate   float64   `default:"0.001" help:"Of Adam (${default})."`
	WeightDecay    string    `default:"0.0001" placeholder:"X|auto" help:"L2 penalty; auto: by cross-validation (${default})."`
	BatchSize      int       `default:"512" help:"Rows a step (${default})."`
	Epochs         int       `default:"150" help:"At most (${default})."`
	Patience       int       `default:"15" help:"Epochs without improvement before stopping (${default})."`
	MinImprovement float64   `default:"0.0001" help:"What counts as an improvement of the validation loss (${default})."`
	Members        int       `default:"10" help:"Networks to train (${default})."`
	Keep           int       `default:"5" help:"Best of them to keep (${default})."`
	Folds          int       `default:"4" help:"Of a cross-validation (${default})."`
	Seed           uint64    `default:"42" help:"Of everything that is drawn (${default})."`
	LayerReport    bool      `help:"Only say how well each layer of the features separates right from wrong answers."`
}

func (c *trainCmd) Run(ctx context.Context, std streams) (err error) {
	recipe, err := c.recipe()
	if err != nil {
		return err
	}
	if err := recipe.Validate(); err != nil {
		return fmt.Errorf("recipe: %w", err)
	}
	if err := train.CheckTarget(c.Out); err != nil {
		return err
	}
	set, err := labels.ReadFile(c.Data)
	if err != nil {
		return err
	}
	file, err := features.Open(c.Features)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data, err := train.Join(file, set, recipe, train.JoinOptions{SkipMissing: c.SkipMissing})
	if err != nil {
		return err
	}
	for _, warning := range data.Warnings() {
		_, _ = fmt.Fprintln(std.err, "pointsman: "+warning)
	}
	bar := newProgressBar(std.err)
	options := train.Options{Progress: func(stage train.Stage, done, total int, note string) { bar.show(string(stage), done, total, note) }}
	if c.LayerReport || file.Header().Layers > 1 {
		layers, err := train.Layers(ctx, data, options.Progress)
		bar.end()
		if err != nil {
			return err
		}
		printLayers(std, layers, data.Heads(), file.Header().VLLMLayerIDs)
		if c.LayerReport {
			return nil
		}
	}
	result, err := train.Train(ctx, data, recipe, options)
	bar.end()
	if err != nil {
		return err
	}
	if err := result.Save(c.Out); err != nil {
		return err
	}
	printTrained(std, c.Out, &result.Record)
	return nil
}

// recipe reads the flags that are not numbers alone.
func (c *trainCmd) recipe() (train.Recipe, error) {
	r := train.Recipe{
		Heads: c.Head, HoldOut: c.HoldOut, TrainShare: c.TrainShare, Scaling: train.Scaling(c.Scaling), Dropout: c.Dropout,
		LearningRate: c.LearningRate, BatchSize: c.BatchSize, Epochs: c.Epochs, Patience: c.Patience,
		MinImprovement: c.MinImprovement, Members: c.Members, Keep: c.Keep, Folds: c.Folds, Seed: c.Seed,
	}
	var faults []error
	if c.PCADim != "auto" {
		n, err := strconv.Atoi(c.PCADim)
		if err != nil || n < 1 {
			faults = append(faults, fmt.Errorf("--pca-dim is %q, want a number from 1 up, or auto", c.PCADim))
		}
		r.PCADim = n
	}
	r.WeightDecay = -1
	if c.WeightDecay != "auto" {
		decay, err := strconv.ParseFloat(c.WeightDecay, 64)
		if err != nil || !(decay >= 0) {
			faults = append(faults, fmt.Errorf("--weight-decay is %q, want a number from 0 up, or auto", c.WeightDecay))
		}
		r.WeightDecay = decay
	}
	if c.Trunk != "none" {
		for width := range strings.SplitSeq(c.Trunk, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(width))
			if err != nil {
				faults = append(faults, fmt.Errorf("--trunk is %q, want widths, as 256,128, or none", c.Trunk))
				break
			}
			r.Trunk = append(r.Trunk, n)
		}
	}
	if c.Dropout == nil {
		for i := range r.Trunk {
			r.Dropout = append(r.Dropout, []float64{0.3, 0.2}[min(i, 1)])
		}
	}
	return r, errors.Join(faults...)
}

func printTrained(std streams, out string, r *train.Record) {
	_, _ = fmt.Fprintf(std.out, "%s: %d members of %d, %d components (%.0f %% of the variance), from %d rows, stopped by %d, %d held out\n",
		out, len(keptOf(r)), len(r.Members), r.Recipe.PCADim, 100*r.Variance, r.Split.Train, r.Split.Validation, r.Split.HeldOut)
	for _, choice := range r.Choices {
		if choice.Chosen {
			_, _ = fmt.Fprintf(std.out, "cross-validation chose %d components and weight decay %g (loss %.4f)\n", choice.PCADim, choice.WeightDecay, choice.Loss)
		}
	}
	for _, h := range r.Heads {
		_, _ = fmt.Fprintf(std.out, "  %s: validation AUC %.3f, loss %.4f; temperature %.3f, bias %+.3f: ECE %.4f, was %.4f\n",
			h.Head, h.AUC, h.Loss, h.Temperature, h.Bias, h.After, h.Before)
	}
	for _, warning := range r.Warnings {
		_, _ = fmt.Fprintf(std.out, "  note: %s\n", warning)
	}
	if r.Interrupted {
		_, _ = fmt.Fprintln(std.out, "  interrupted: this is the best so far")
	}
	_, _ = fmt.Fprintf(std.out, "checkpoint %s\n", r.Checkpoint)
}

func keptOf(r *train.Record) (kept []train.Member) {
	for _, m := range r.Members {
		if m.Kept {
			kept = append(kept, m)
		}
	}
	return kept
}

func printLayers(std streams, layers []train.LayerReport, heads []string, ids []int) {
	_, _ = fmt.Fprintln(std.out, "layer  effective dimensions  separability of "+strings.Join(heads, ", "))
	for i, l := range layers {
		name := strconv.Itoa(i)
		if ids != nil {
			name = strconv.Itoa(ids[i])
		}
		_, _ = fmt.Fprintf(std.out, "%5s  %20.1f ", name, l.EffectiveDimension)
		for _, f := range l.Fisher {
			_, _ = fmt.Fprintf(std.out, " %.5f", f)
		}
		_, _ = fmt.Fprintln(std.out)
	}
}
