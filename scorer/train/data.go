package train

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman-dev/pointsman/scorer/features"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

var (
	// ErrData reports examples that no checkpoint can be made from.
	ErrData = errors.New("the data does not do")
	// ErrInterrupted reports a training that was stopped before there was anything
	// to keep.
	ErrInterrupted = errors.New("interrupted before there was anything to keep")
)

// Rows gives feature vectors by row; [features.File] is one.
type Rows interface {
	Header() features.Header
	Len() int
	Digests() []features.Digest
	ReadRow(i int, dst []float32) error
}

// Data is judged examples joined with their features. Row i of it is row
// source[i] of the features.
type Data struct {
	rows   Rows
	source []int
	heads  []string
	labels []labels.Label // [rows, heads]
	groups []string
	digest []features.Digest
	// heldOut counts the examples that were set aside.
	heldOut int
	// dataDigest identifies the judged examples.
	dataDigest string
	warnings   []string
}

// minRows is the least number of rows to train on. With fewer, a handful of rows
// would decide when to stop; the field asks for 3,000 and more.
const (
	minRows    = 100
	fewRows    = 3000
	minOfClass = 10
)

// JoinOptions say what may be passed over.
type JoinOptions struct {
	// SkipMissing passes over examples that have no features, instead of failing.
	SkipMissing bool
}

// Join finds the features of every judged example. Examples without features are
// an [ErrData] that counts and names them, unless they may be skipped.
func Join(rows Rows, set *labels.Set, r Recipe, o JoinOptions) (*Data, error) {
	heads := r.Heads
	if len(heads) == 0 {
		heads = set.Models
	}
	columns, err := set.Columns(heads)
	if err != nil {
		return nil, fmt.Errorf("heads: %w", err)
	}
	at := make(map[features.Digest]int, rows.Len())
	for i, d := range rows.Digests() {
		if first, twice := at[d]; twice {
			return nil, fmt.Errorf("%w: features row %d is of the same task as row %d", ErrData, i, first)
		}
		at[d] = i
	}
	data := &Data{rows: rows, heads: slices.Clone(heads), dataDigest: set.Digest}
	var missing []int
	for _, e := range set.Examples {
		if int(e.Digest[0]) < r.HoldOut {
			data.heldOut++
			continue
		}
		row, ok := at[e.Digest]
		if !ok {
			missing = append(missing, e.Line)
			continue
		}
		data.source = append(data.source, row)
		data.groups = append(data.groups, e.Group)
		data.digest = append(data.digest, e.Digest)
		for _, c := range columns {
			data.labels = append(data.labels, e.Labels[c])
		}
	}
	if len(missing) > 0 {
		what := labels.Lines(missing) + " of the judged data have no features"
		if !o.SkipMissing || len(data.source) == 0 {
			return nil, fmt.Errorf("%w: %s: extract them too, or skip them", ErrData, what)
		}
		data.warnings = append(data.warnings, what+" and were skipped")
	}
	if unused := rows.Len() - len(data.source) - data.heldOut; unused > 0 && !o.SkipMissing {
		data.warnings = append(data.warnings, fmt.Sprintf("%d rows of features have no judged example and were not used", unused))
	}
	return data, nil
}

// Warnings are things about the data that the user should know.
func (d *Data) Warnings() []string { return slices.Clone(d.warnings) }

// Len returns the number of examples to train and validate on.
func (d *Data) Len() int { return len(d.source) }

// Heads returns the models to predict, in order.
func (d *Data) Heads() []string { return slices.Clone(d.heads) }

func (d *Data) label(row, head int) labels.Label { return d.labels[row*len(d.heads)+head] }

// split divides rows, positions in d, into a share and the rest, stratified by
// group. Which side a row falls on depends on its task, the seed and how many
// others its group has, not on the order of the file.
func (d *Data) split(rows []int, share float64, seed uint64) (first, second []int) {
	byGroup := map[string][]int{}
	for _, i := range rows {
		byGroup[d.groups[i]] = append(byGroup[d.groups[i]], i)
	}
	names := make([]string, 0, len(byGroup))
	for name := range byGroup {
		names = append(names, name)
	}
	slices.Sort(names)
	// What rounding leaves of one group is carried to the next, so that many small
	// groups still make the share.
	carry := 0.0
	for _, name := range names {
		members := d.shuffled(byGroup[name], seed)
		want := share*float64(len(members)) + carry
		n := min(max(int(want+0.5), 0), len(members))
		carry = want - float64(n)
		first = append(first, members[:n]...)
		second = append(second, members[n:]...)
	}
	slices.Sort(first)
	slices.Sort(second)
	return first, second
}

// folds divides rows into n parts of about equal size, stratified by group.
func (d *Data) folds(rows []int, n int, seed uint64) [][]int {
	ordered := d.shuffled(rows, seed)
	slices.SortStableFunc(ordered, func(a, b int) int { return strings.Compare(d.groups[a], d.groups[b]) })
	parts := make([][]int, n)
	for i, row := range ordered {
		parts[i%n] = append(parts[i%n], row)
	}
	for _, part := range parts {
		slices.Sort(part)
	}
	return parts
}

// shuffled orders rows by a hash of their tasks and the seed.
func (d *Data) shuffled(rows []int, seed uint64) []int {
	keys := make(map[int]uint64, len(rows))
	for _, i := range rows {
		keys[i] = mix(d.digest[i], seed)
	}
	out := slices.Clone(rows)
	slices.SortFunc(out, func(a, b int) int {
		return cmp.Or(cmp.Compare(keys[a], keys[b]), slices.Compare(d.digest[a][:], d.digest[b][:]))
	})
	return out
}

// mix is the first 8 bytes of SHA-256 over the seed and the digest.
func mix(d features.Digest, seed uint64) uint64 {
	h := features.DigestOf(fmt.Sprintf("%d/%s", seed, d))
	v := uint64(0)
	for _, b := range h[:8] {
		v = v<<8 | uint64(b)
	}
	return v
}

// check reports, at once, what makes training on these two parts impossible.
func (d *Data) check(train, validation []int, pcaDim int) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if d.Len() < minRows {
		fault("%d examples to train on, want at least %d (the field suggests some thousands)", d.Len(), minRows)
	}
	if limit := min(len(train)-1, d.rows.Header().Dim()); pcaDim > limit {
		fault("%d principal components from %d rows of %d features: at most %d", pcaDim, len(train), d.rows.Header().Dim(), limit)
	}
	for h, name := range d.heads {
		right, wrong, missing := 0, 0, 0
		for _, i := range train {
			switch d.label(i, h) {
			case labels.Right:
				right++
			case labels.Wrong:
				wrong++
			default:
				missing++
			}
		}
		if min(right, wrong) < minOfClass {
			fault("%q has %d right and %d wrong answers to train on (%d without a label), want at least %d of each",
				name, right, wrong, missing, minOfClass)
		}
		has := func(l labels.Label) bool {
			return slices.ContainsFunc(validation, func(i int) bool { return d.label(i, h) == l })
		}
		if !has(labels.Right) || !has(labels.Wrong) {
			fault("%q has not both a right and a wrong answer among the %d validation rows", name, len(validation))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %w", ErrData, errors.Join(faults...))
	}
	return nil
}
