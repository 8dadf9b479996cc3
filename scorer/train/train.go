package train

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"gonum.org/v1/gonum/blas/blas32"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// Options are what a training may be given besides its recipe.
type Options struct {
	Progress Progress
	Clock    Clock
}

// Result is a trained checkpoint that has not been written yet.
type Result struct {
	Manifest scorer.Manifest
	Tensors  scorer.Tensors
	Record   Record
}

// Train runs a recipe on data. When ctx ends it keeps the best so far: with at
// least one epoch of one member done the result is whole and says that it was
// interrupted, else the error is [ErrInterrupted]. Data that does not do is an
// [ErrData] with everything that is wrong with it.
func Train(ctx context.Context, data *Data, r Recipe, o Options) (*Result, error) {
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("recipe: %w", err)
	}
	all := make([]int, data.Len())
	for i := range all {
		all[i] = i
	}
	trainRows, validationRows := data.split(all, r.TrainShare, r.Seed)
	if err := data.check(trainRows, validationRows, r.PCADim); err != nil {
		return nil, err
	}
	t := trainer{data: data, recipe: r, tell: o.Progress}
	if r.crossValidated() {
		if err := t.choose(ctx, trainRows); err != nil {
			return nil, err
		}
	}
	fitted, err := t.fit(ctx, trainRows, validationRows, t.recipe.PCADim)
	if err != nil {
		return nil, err
	}
	members := t.members(ctx, fitted, t.recipe.Members)
	if len(members) == 0 {
		return nil, ErrInterrupted
	}
	return t.result(fitted, members, ctx.Err() != nil, o.Clock)
}

// trainer carries what the steps of a training share.
type trainer struct {
	data    *Data
	recipe  Recipe
	tell    Progress
	choices []ChoiceScore
}

// fitted is the transform and the components found on the training rows, with
// both parts in their coordinates.
type fitted struct {
	transform         transform
	components        components
	train, validation batchData
	rows              [2][]int // positions in data: training, validation
}

// fit standardises, finds the components and projects. The features are let go.
func (t *trainer) fit(ctx context.Context, trainRows, validationRows []int, pcaDim int) (*fitted, error) {
	table, err := newTable(ctx, t.data, trainRows, t.tell)
	if err != nil {
		return nil, err
	}
	f := &fitted{rows: [2][]int{trainRows, validationRows}}
	if f.transform, err = table.moments(ctx, t.recipe.Scaling); err != nil {
		return nil, err
	}
	table.standardise(f.transform)
	if f.components, err = principal(ctx, table, pcaDim, t.recipe.Seed, t.tell); err != nil {
		return nil, err
	}
	if f.train.x, err = f.components.project(ctx, table); err != nil {
		return nil, err
	}
	table, err = newTable(ctx, t.data, validationRows, nil)
	if err != nil {
		return nil, err
	}
	table.standardise(f.transform)
	if f.validation.x, err = f.components.project(ctx, table); err != nil {
		return nil, err
	}
	f.train.want, f.validation.want = t.data.labelsOf(trainRows), t.data.labelsOf(validationRows)
	return f, nil
}

func (d *Data) labelsOf(rows []int) []labels.Label {
	out := make([]labels.Label, 0, len(rows)*len(d.heads))
	for _, i := range rows {
		out = append(out, d.labels[i*len(d.heads):][:len(d.heads)]...)
	}
	return out
}

// members trains n networks, as many at a time as there are processors. What is
// returned is in the order of the seeds and does not depend on their number.
func (t *trainer) members(ctx context.Context, f *fitted, n int) []trained {
	var (
		mu    sync.Mutex
		done  int
		found []trained
		wait  sync.WaitGroup
		next  = make(chan uint64)
	)
	t.tell.tell(StageMembers, 0, n, "")
	for range min(n, runtime.GOMAXPROCS(0)) {
		wait.Go(func() {
			for seed := range next {
				m, ok := trainMember(ctx, t.recipe, len(t.data.heads), f.train, f.validation, seed)
				mu.Lock()
				done++
				if ok {
					found = append(found, m)
					t.tell.tell(StageMembers, done, n, fmt.Sprintf("seed %d: loss %.4f at epoch %d", seed, m.Validation, m.BestEpoch))
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		next <- t.recipe.Seed + uint64(i)
	}
	close(next)
	wait.Wait()
	slices.SortFunc(found, func(a, b trained) int { return cmp.Compare(a.Seed, b.Seed) })
	return found
}

// result keeps the best members, calibrates them and puts the checkpoint together.
func (t *trainer) result(f *fitted, all []trained, interrupted bool, clock Clock) (*Result, error) {
	kept := keepBest(all, t.recipe.Keep)
	header := t.data.rows.Header()
	res := &Result{
		Manifest: scorer.Manifest{
			Encoder: header.Encoder, Layers: header.Layers, HiddenSize: header.HiddenSize,
			PCADim: t.recipe.PCADim, TrunkHidden: t.recipe.Trunk, EnsembleSize: len(kept),
			OutputNames: t.data.Heads(), VLLMLayerIDs: header.VLLMLayerIDs,
		},
		Tensors: scorer.Tensors{
			ScalerMean: f.transform.mean, ScalerScale: f.transform.scale,
			// Standardised training rows have mean 0: nothing is left to take off.
			PCAMean:       make([]float32, header.Dim()),
			PCAComponents: f.components.rows.Data,
		},
		Record: Record{
			Format: recordFormat, Created: clock.now().UTC(), Interrupted: interrupted,
			Versions: versions(), Recipe: t.recipe, Choices: t.choices,
			Data: DataRecord{
				Digest: t.data.dataDigest, Encoder: header.Encoder, ProbeRevision: header.ProbeRevision,
				Layers: header.Layers, HiddenSize: header.HiddenSize,
			},
			Split:      SplitRecord{Train: len(f.rows[0]), Validation: len(f.rows[1]), HeldOut: t.data.heldOut},
			Variance:   f.components.share(),
			GroupRates: t.data.groupRates(),
			Warnings:   t.data.Warnings(),
		},
	}
	res.Record.Recipe.Heads = t.data.Heads()
	if n := t.data.Len(); n < fewRows {
		res.Record.Warnings = append(res.Record.Warnings, fmt.Sprintf("%d examples are few: the field suggests %d and more", n, fewRows))
	}
	for _, m := range all {
		res.Record.Members = append(res.Record.Members, m.Member)
	}
	outputs := make([]blas32.General, 0, len(kept)) // [validation rows, heads], a member each
	for _, m := range kept {
		res.Tensors.Members = append(res.Tensors.Members, m.weights)
		outputs = append(outputs, logits(m.weights, f.validation.x))
	}
	for h := range t.data.heads {
		record := t.data.calibrateHead(h, outputs, f)
		for _, m := range res.Tensors.Members {
			fold(m, h, 1/record.Temperature, record.Bias)
		}
		res.Record.Heads = append(res.Record.Heads, record)
	}
	return res, nil
}

// share is the part of the variance that the components hold.
func (c components) share() float64 {
	sum := 0.0
	for _, v := range c.variances {
		sum += v
	}
	if c.total == 0 {
		return 0
	}
	return min(1, sum/c.total)
}
