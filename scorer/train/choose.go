package train

import (
	"context"
	"fmt"
	"slices"
)

// ChoiceScore is what cross-validation found for one pair of settings: the mean
// over the folds of the loss on rows that neither fitted nor stopped anything.
type ChoiceScore struct {
	PCADim      int     `json:"pca_dim"`
	WeightDecay float64 `json:"weight_decay"`
	Loss        float64 `json:"loss"`
	Chosen      bool    `json:"chosen"`
}

// What is tried where the recipe leaves it open.
var (
	triedDims   = []int{25, 50, 100, 200, 400}
	triedDecays = []float64{1e-4, 1e-3, 1e-2}
)

// choose fills in what the recipe leaves to cross-validation. Every fold fits its
// own transform and components: rows that judge have touched nothing.
func (t *trainer) choose(ctx context.Context, rows []int) error {
	folds := t.data.folds(rows, t.recipe.Folds, t.recipe.Seed)
	smallest := len(rows)
	for _, fold := range folds {
		smallest = min(smallest, len(rows)-len(fold))
	}
	dims := []int{t.recipe.PCADim}
	if t.recipe.PCADim == 0 {
		limit := min(smallest-1, t.data.rows.Header().Dim())
		dims = slices.DeleteFunc(slices.Clone(triedDims), func(d int) bool { return d > limit })
		if len(dims) == 0 {
			dims = []int{limit}
		}
	}
	decays := []float64{t.recipe.WeightDecay}
	if t.recipe.WeightDecay < 0 {
		decays = triedDecays
	}
	for _, dim := range dims {
		for _, decay := range decays {
			t.choices = append(t.choices, ChoiceScore{PCADim: dim, WeightDecay: decay})
		}
	}
	total := len(folds) * len(t.choices)
	t.tell.tell(StageValidate, 0, total, "")
	for i, fold := range folds {
		rest := make([]int, 0, len(rows))
		for j, other := range folds {
			if j != i {
				rest = append(rest, other...)
			}
		}
		slices.Sort(rest)
		quiet := *t
		quiet.tell = nil
		f, err := quiet.fit(ctx, rest, fold, dims[len(dims)-1])
		if err != nil {
			return err
		}
		for c := range t.choices {
			loss, err := quiet.try(ctx, f, t.choices[c])
			if err != nil {
				return err
			}
			t.choices[c].Loss += loss / float64(len(folds))
			t.tell.tell(StageValidate, i*len(t.choices)+c+1, total,
				fmt.Sprintf("%d components, weight decay %g", t.choices[c].PCADim, t.choices[c].WeightDecay))
		}
	}
	best := 0
	for c, choice := range t.choices {
		if choice.Loss < t.choices[best].Loss {
			best = c
		}
	}
	t.choices[best].Chosen = true
	t.recipe.PCADim, t.recipe.WeightDecay = t.choices[best].PCADim, t.choices[best].WeightDecay
	return nil
}

// try trains one member on a fold and returns its loss on the rows left out. The
// epoch to stop at is found on a part of the fold's own training rows.
func (t *trainer) try(ctx context.Context, f *fitted, c ChoiceScore) (float64, error) {
	r := t.recipe
	r.WeightDecay = c.WeightDecay
	heads := len(t.data.heads)
	// Training rows of a fold are in the order of the data, not of any property.
	inner, stop := t.data.split(f.rows[0], r.TrainShare, r.Seed)
	at := make(map[int]int, len(f.rows[0]))
	for i, row := range f.rows[0] {
		at[row] = i
	}
	part := func(rows []int) batchData {
		d := batchData{x: newGeneral(len(rows), c.PCADim), want: t.data.labelsOf(rows)}
		for i, row := range rows {
			copy(d.x.Data[i*c.PCADim:][:c.PCADim], f.train.x.Data[at[row]*f.train.x.Stride:])
		}
		return d
	}
	judge := batchData{x: newGeneral(len(f.rows[1]), c.PCADim), want: f.validation.want}
	for i := range f.rows[1] {
		copy(judge.x.Data[i*c.PCADim:][:c.PCADim], f.validation.x.Data[i*f.validation.x.Stride:])
	}
	m, ok := trainMember(ctx, r, heads, part(inner), part(stop), r.Seed)
	if !ok || ctx.Err() != nil {
		return 0, ErrInterrupted
	}
	out := logits(m.weights, judge.x)
	sum, count := loss(out, judge.want, nil)
	return sum / float64(max(1, count)), nil
}
