package eval

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/features"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// Rows gives feature vectors by row; [features.File] is one.
type Rows interface {
	Header() features.Header
	Len() int
	Digests() []features.Digest
	ReadRow(i int, dst []float32) error
}

// Roles names the two heads that a sample is routed between, and what they cost.
type Roles struct {
	Strong, Weak         string // heads; empty: told from the share of right answers
	StrongCost, WeakCost float64
}

// Score scores the judged examples that pick accepts, every one if it is nil, as
// the service would: the sample's probabilities are those that it serves.
func Score(ctx context.Context, c *scorer.Checkpoint, rows Rows, set *labels.Set, roles Roles, pick func(labels.Example) bool) (*Sample, error) {
	m, h := c.Manifest(), rows.Header()
	if h.Encoder != m.Encoder || h.Layers != m.Layers || h.HiddenSize != m.HiddenSize {
		return nil, fmt.Errorf("%w: of encoder %q with %d layers of %d, the checkpoint takes %q with %d of %d",
			features.ErrOtherProbe, h.Encoder, h.Layers, h.HiddenSize, m.Encoder, m.Layers, m.HiddenSize)
	}
	heads := c.Heads()
	columns, err := set.Columns(heads)
	if err != nil {
		return nil, fmt.Errorf("heads do not match: %w", err)
	}
	at := make(map[features.Digest]int, rows.Len())
	for i, d := range rows.Digests() {
		at[d] = i
	}
	s := &Sample{Digest: c.Digest(), Heads: heads, StrongCost: roles.StrongCost, WeakCost: roles.WeakCost}
	s.Labels = make([][]labels.Label, len(heads))
	var source, missing []int
	grouped := false
	for _, e := range set.Examples {
		if pick != nil && !pick(e) {
			continue
		}
		row, ok := at[e.Digest]
		if !ok {
			missing = append(missing, e.Line)
			continue
		}
		source = append(source, row)
		s.Groups = append(s.Groups, e.Group)
		grouped = grouped || e.Group != ""
		for head, column := range columns {
			s.Labels[head] = append(s.Labels[head], e.Labels[column])
		}
	}
	if !grouped {
		s.Groups = nil
	}
	if len(source) == 0 {
		return nil, fmt.Errorf("%w: no judged example with features (%d without)", ErrSample, len(missing))
	}
	if len(missing) > 0 {
		s.Notes = append(s.Notes, labels.Lines(missing)+" of the judged data have no features and were left out")
	}
	if err := s.assign(roles); err != nil {
		return nil, err
	}
	s.Probabilities, err = scoreAll(ctx, c, rows, source)
	return s, err
}

// assign finds the strong and the weak head.
func (s *Sample) assign(roles Roles) error {
	s.Strong, s.Weak = -1, -1
	for h, name := range s.Heads {
		if name == roles.Strong {
			s.Strong = h
		}
		if name == roles.Weak {
			s.Weak = h
		}
	}
	switch {
	case roles.Strong != "" && s.Strong < 0:
		return fmt.Errorf("%w: no head %q, the checkpoint has %q", ErrSample, roles.Strong, s.Heads)
	case roles.Weak != "" && s.Weak < 0:
		return fmt.Errorf("%w: no head %q, the checkpoint has %q", ErrSample, roles.Weak, s.Heads)
	case s.Strong >= 0 && s.Weak >= 0:
		return nil
	case len(s.Heads) != 2:
		return fmt.Errorf("%w: the checkpoint has the heads %q: say which are the strong and the weak one", ErrSample, s.Heads)
	case s.Strong >= 0:
		s.Weak = 1 - s.Strong
	case s.Weak >= 0:
		s.Strong = 1 - s.Weak
	default:
		weights := ones(len(s.Labels[0]))
		if rate(weights, s.Labels[1]) > rate(weights, s.Labels[0]) {
			s.Strong, s.Weak = 1, 0
		} else {
			s.Strong, s.Weak = 0, 1
		}
	}
	return nil
}

// scoreAll scores rows on every processor: [heads][rows].
func scoreAll(ctx context.Context, c *scorer.Checkpoint, rows Rows, source []int) ([][]float64, error) {
	out := make([][]float64, len(c.Heads()))
	for h := range out {
		out[h] = make([]float64, len(source))
	}
	workers := runtime.GOMAXPROCS(0)
	failures := make([]error, workers)
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			row := make([]float32, rows.Header().Dim())
			for i := w; i < len(source); i += workers {
				if err := ctx.Err(); err != nil {
					failures[w] = err
					return
				}
				if err := rows.ReadRow(source[i], row); err != nil {
					failures[w] = err
					return
				}
				p, err := c.Score(row)
				if err != nil {
					failures[w] = fmt.Errorf("features row %d: %w", source[i], err)
					return
				}
				for h := range out {
					out[h][i] = p.Mean(h)
				}
			}
		})
	}
	wait.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
