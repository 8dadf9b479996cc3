package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/eval"
	"github.com/pointsman-dev/pointsman/scorer/features"
	"github.com/pointsman-dev/pointsman/scorer/labels"
	"github.com/pointsman-dev/pointsman/scorer/train"
)

// sampleFlags say what evaluate and calibrate work on: checkpoints on judged
// examples, or a decision record.
type sampleFlags struct {
	Checkpoint []string `placeholder:"FOLDER" sep:"none" help:"A checkpoint; several are compared."`
	Data       string   `placeholder:"FILE" help:"Judged examples, as for train."`
	Features   string   `placeholder:"FILE" help:"Their features, as extract writes them."`
	All        bool     `help:"Take every example, also those that the checkpoint was trained on, which flatter it."`

	Decisions string `placeholder:"FILE" help:"A decision record instead, as serve writes it."`
	Outcomes  string `placeholder:"FILE" help:"How its answers turned out: JSON lines of decision_id or task_digest, and labels by target."`
	Route     string `placeholder:"NAME" help:"The route of the record. Default: the only one."`

	Strong     string  `placeholder:"NAME" help:"The strong head, or target of a record. Default: the one that is right more often, or the dearest."`
	Weak       string  `placeholder:"NAME" help:"The weak one. Default: the other, or the cheapest."`
	StrongCost float64 `default:"1" help:"Cost of a strong call, in any unit (${default}); a record has its own."`
	WeakCost   float64 `default:"0.25" help:"Cost of a weak call (${default})."`
	Resamples  int     `default:"1000" help:"Of the bootstrap behind the intervals (${default})."`
	Seed       uint64  `default:"1" help:"Of the bootstrap (${default})."`
}

// samples scores what the flags name.
func (f *sampleFlags) samples(ctx context.Context) ([]*eval.Sample, error) {
	fromRecord := f.Decisions != ""
	fromData := len(f.Checkpoint) > 0 || f.Data != "" || f.Features != ""
	switch {
	case fromRecord && fromData:
		return nil, errors.New("give either --decisions, or --checkpoint with --data and --features")
	case fromRecord:
		sample, err := f.replay()
		return []*eval.Sample{sample}, err
	case len(f.Checkpoint) == 0 || f.Data == "" || f.Features == "":
		return nil, errors.New("give --checkpoint, --data and --features, or --decisions")
	}
	set, err := labels.ReadFile(f.Data)
	if err != nil {
		return nil, err
	}
	file, err := features.Open(f.Features)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var out []*eval.Sample
	for _, dir := range f.Checkpoint {
		sample, err := f.score(ctx, dir, file, set)
		if err != nil {
			return nil, fmt.Errorf("checkpoint %s: %w", dir, err)
		}
		out = append(out, sample)
	}
	return out, nil
}

// score scores judged examples by one checkpoint: those that its training held
// out, if its record says which.
func (f *sampleFlags) score(ctx context.Context, dir string, file *features.File, set *labels.Set) (*eval.Sample, error) {
	checkpoint, err := scorer.Load(dir)
	if err != nil {
		return nil, err
	}
	record, err := train.ReadRecord(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var (
		pick func(labels.Example) bool
		note string
	)
	switch {
	case record == nil:
		note = "the checkpoint has no train.json: whether it was trained on these examples is not known"
	case record.Data.Digest != set.Digest:
	case f.All || record.Recipe.HoldOut == 0:
		note = "the checkpoint was trained on examples of this data: the figures flatter it"
	default:
		pick = func(e labels.Example) bool { return int(e.Digest[0]) < record.Recipe.HoldOut }
		note = fmt.Sprintf("on the examples that training held out: SHA-256 begins with a byte below %d", record.Recipe.HoldOut)
	}
	roles := eval.Roles{Strong: f.Strong, Weak: f.Weak, StrongCost: f.StrongCost, WeakCost: f.WeakCost}
	sample, err := eval.Score(ctx, checkpoint, file, set, roles, pick)
	if err != nil {
		return nil, err
	}
	sample.Name = dir
	if note != "" {
		sample.Notes = append(sample.Notes, note)
	}
	if record != nil {
		sample.GroupRates = record.GroupRates
	}
	return sample, nil
}

// replay reads a decision record with its outcomes.
func (f *sampleFlags) replay() (*eval.Sample, error) {
	decisions, err := readFrom(f.Decisions, eval.ReadDecisions)
	if err != nil {
		return nil, err
	}
	var outcomes *eval.Outcomes
	if f.Outcomes != "" {
		if outcomes, err = readFrom(f.Outcomes, eval.ReadOutcomes); err != nil {
			return nil, err
		}
	}
	return eval.Replay(decisions, outcomes, eval.ReplayOptions{Route: f.Route, Strong: f.Strong, Weak: f.Weak})
}

// options are how the flags want a sample measured.
func (f *sampleFlags) options(policies ...scorer.TradeOff) eval.Options {
	return eval.Options{Resamples: f.Resamples, Seed: f.Seed, Policies: policies}
}
