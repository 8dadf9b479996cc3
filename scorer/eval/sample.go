package eval

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// ErrSample reports a sample that cannot be measured.
var ErrSample = errors.New("cannot be measured")

// ErrFewLabels reports a sample of which only the trade-offs can be measured.
var ErrFewLabels = errors.New("too few labels")

// Sample is predictions for tasks whose answers were judged.
type Sample struct {
	Name          string           // of the router, for people
	Digest        string           // of its checkpoint; may be empty
	Heads         []string         // what is predicted
	Probabilities [][]float64      // [heads][rows], each in [0,1]
	Labels        [][]labels.Label // [heads][rows]
	Groups        []string         // [rows], or nil
	// Tasks numbers the task of each row, so that rows of one task are resampled
	// together; nil: every row is another task.
	Tasks []int

	Strong, Weak         int     // heads
	StrongCost, WeakCost float64 // of a call, in one unit; 0 <= weak < strong

	// GroupRates is the share of right answers by group and head that was known
	// beforehand, from the training record. Without it the group prior is taken from
	// the sample itself, leaving each row out.
	GroupRates map[string]map[string]float64
	// Notes are passed on to the report.
	Notes []string
}

// Rows returns the number of rows.
func (s *Sample) Rows() int { return len(s.Probabilities[0]) }

// minPaired is the least number of rows with both labels; with fewer, resamples
// often lack one class altogether.
const minPaired = 20

// validate reports what is wrong with a sample; one whose routing is judged needs
// labels.
func (s *Sample) validate(routed bool) error {
	if err := s.checkSizes(); err != nil {
		return fmt.Errorf("%w: %w", ErrSample, err)
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for h, name := range s.Heads {
		bad := slices.IndexFunc(s.Probabilities[h], func(p float64) bool { return !(p >= 0 && p <= 1) })
		if bad >= 0 {
			fault("probability of head %q in row %d is %v, want 0 to 1", name, bad, s.Probabilities[h][bad])
		}
	}
	if s.Strong == s.Weak || min(s.Strong, s.Weak) < 0 || max(s.Strong, s.Weak) >= len(s.Heads) {
		fault("strong and weak are heads %d and %d of %d, want two different ones", s.Strong, s.Weak, len(s.Heads))
	}
	if !(s.WeakCost >= 0 && s.WeakCost < s.StrongCost) || math.IsInf(s.StrongCost, 0) {
		fault("costs are %v for weak and %v for strong, want 0 <= weak < strong", s.WeakCost, s.StrongCost)
	}
	if len(faults) == 0 && routed {
		if n := len(s.paired()); n < minPaired {
			fault("%w: %d of %d rows are judged for both %q and %q, want at least %d", ErrFewLabels, n, s.Rows(), s.Heads[s.Strong], s.Heads[s.Weak], minPaired)
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %w", ErrSample, errors.Join(faults...))
	}
	return nil
}

// checkSizes reports the first part of a sample that does not fit the others.
func (s *Sample) checkSizes() error {
	heads := len(s.Heads)
	if heads < 2 || len(s.Probabilities) != heads || len(s.Labels) != heads {
		return fmt.Errorf("%d heads, with probabilities for %d and labels for %d; want two or more", heads, len(s.Probabilities), len(s.Labels))
	}
	rows := s.Rows()
	for h, name := range s.Heads {
		if len(s.Probabilities[h]) != rows || len(s.Labels[h]) != rows {
			return fmt.Errorf("head %q has %d probabilities and %d labels, want %d", name, len(s.Probabilities[h]), len(s.Labels[h]), rows)
		}
	}
	if s.Groups != nil && len(s.Groups) != rows || s.Tasks != nil && len(s.Tasks) != rows {
		return fmt.Errorf("%d groups and %d task numbers for %d rows", len(s.Groups), len(s.Tasks), rows)
	}
	return nil
}

// paired returns the rows with a label for both the strong and the weak head.
func (s *Sample) paired() []int {
	var rows []int
	for i := range s.Rows() {
		if s.Labels[s.Strong][i] != labels.Missing && s.Labels[s.Weak][i] != labels.Missing {
			rows = append(rows, i)
		}
	}
	return rows
}

// groupNames returns the groups there are, sorted, without the empty one.
func (s *Sample) groupNames() []string {
	names := slices.Clone(s.Groups)
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(n string) bool { return n == "" })
}

// priorOf returns, for every row, what its group alone says of a head.
func (s *Sample) priorOf(head int) []float64 {
	type tally struct{ right, count float64 }
	groups := map[string]*tally{}
	var all tally
	for i, l := range s.Labels[head] {
		if l == labels.Missing {
			continue
		}
		g := groups[s.group(i)]
		if g == nil {
			g = &tally{}
			groups[s.group(i)] = g
		}
		g.count++
		all.count++
		if l == labels.Right {
			g.right++
			all.right++
		}
	}
	overall := all.right / max(1, all.count)
	out := make([]float64, s.Rows())
	for i := range out {
		if s.GroupRates != nil {
			rate, known := s.GroupRates[s.group(i)][s.Heads[head]]
			if !known {
				rate = overall
			}
			out[i] = rate
			continue
		}
		t := tally{}
		if g := groups[s.group(i)]; g != nil {
			t = *g
		}
		if l := s.Labels[head][i]; l != labels.Missing {
			t.count--
			if l == labels.Right {
				t.right--
			}
		}
		// One row's worth of the overall rate, so that a group of one has an answer.
		out[i] = (t.right + overall) / (t.count + 1)
	}
	return out
}

func (s *Sample) group(row int) string {
	if s.Groups == nil {
		return ""
	}
	return s.Groups[row]
}
