package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/pointsman-dev/pointsman/scorer"
)

// scoringRow is what scoring one decision takes.
type scoringRow struct {
	Shape    string        `json:"shape"`
	PCA      int           `json:"pca"`
	Members  int           `json:"members"`
	Heads    int           `json:"heads"`
	Weights  int64         `json:"weights"`  // bytes of the transform
	One      time.Duration `json:"one"`      // one decision alone, with all processors
	OneCore  time.Duration `json:"one_core"` // the same with one
	Eight    time.Duration `json:"eight"`    // eight at once, with all, until the last is done
	Choosing time.Duration `json:"choosing"`
}

type scoringSize struct {
	shape

	ensemble
}

func (b *bench) checkpoints() []scoringSize {
	// The four sizes that matter, then growth with members and with heads.
	sizes := []scoringSize{
		{shape{1, 2048}, usual},
		{shape{4, 4096}, usual},
		{shape{40, 2048}, usual},
		{shape{36, 4096}, usual},
		{shape{1, 2048}, ensemble{usual.pca, usual.trunk, 1, 3}},
		{shape{1, 2048}, ensemble{usual.pca, usual.trunk, 64, 3}},
		{shape{1, 2048}, ensemble{usual.pca, usual.trunk, 8, 24}},
	}
	if b.Quick {
		sizes = []scoringSize{sizes[0], sizes[1]}
	}
	return sizes
}

func (b *bench) scoring(ctx context.Context, r *report) error {
	for i, size := range b.checkpoints() {
		b.sayf("  %v, %d members, %d heads", size.shape, size.members, size.heads)
		row, err := b.score(ctx, filepath.Join(b.ram, fmt.Sprintf("checkpoint-%d", i)), size)
		if err != nil {
			return err
		}
		r.Scoring = append(r.Scoring, row)
	}
	return nil
}

func (b *bench) score(ctx context.Context, dir string, size scoringSize) (scoringRow, error) {
	row := scoringRow{
		Shape: size.String(), PCA: size.pca, Members: size.members, Heads: size.heads,
		Weights: 4 * int64(size.pca) * int64(size.layers) * int64(size.hidden),
	}
	if err := saveCheckpoint(dir, size.shape, size.ensemble); err != nil {
		return row, err
	}
	checkpoint, err := scorer.Load(dir)
	if err != nil {
		return row, err
	}
	features := make([]float32, size.layers*size.hidden)
	for i := range features {
		features[i] = float32(i%13) - 6
	}
	probabilities, err := checkpoint.Score(features)
	if err != nil {
		return row, err
	}
	candidates := []scorer.Candidate{{Head: 0, Cost: 1}, {Head: 1, Cost: 0.25}}
	medians, err := turns(ctx, 2*b.Rounds,
		func() (time.Duration, error) { return scoreAtOnce(checkpoint, features, 1) },
		func() (time.Duration, error) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			return scoreAtOnce(checkpoint, features, 1)
		},
		func() (time.Duration, error) { return scoreAtOnce(checkpoint, features, 8) },
		func() (time.Duration, error) {
			const times = 100
			began := time.Now()
			for range times {
				if _, err := scorer.Choose(probabilities, candidates, scorer.Tolerance(0.2)); err != nil {
					return 0, err
				}
			}
			return time.Since(began) / times, nil
		})
	if err != nil {
		return row, err
	}
	row.One, row.OneCore, row.Eight, row.Choosing = medians[0], medians[1], medians[2], medians[3]
	return row, nil
}

// scoreAtOnce scores n decisions that arrive together, and says when the last is done.
func scoreAtOnce(checkpoint *scorer.Checkpoint, features []float32, n int) (time.Duration, error) {
	var wg sync.WaitGroup
	failed := make(chan error, n)
	began := time.Now()
	for range n {
		wg.Go(func() {
			if _, err := checkpoint.Score(features); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	select {
	case err := <-failed:
		return 0, err
	default:
		return took, nil
	}
}
