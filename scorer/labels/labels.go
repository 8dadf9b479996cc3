package labels

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/pointsman-dev/pointsman/scorer/features"
)

// maxLineBytes bounds a line of JSON. A task is at most a few hundred KiB; a file
// of another kind shows as one endless line.
const maxLineBytes = 64 << 20

// ErrInvalid reports judged data that cannot be used.
var ErrInvalid = errors.New("judged data is not valid")

// Label says whether a model answered a task correctly.
type Label int8

// The three things a label can be. The zero value is missing.
const (
	Missing Label = iota
	Wrong
	Right
)

// Example is one task with what is known about it.
type Example struct {
	Task   string
	Digest features.Digest // of Task
	Group  string          // "" if the data has none
	Labels []Label         // a label for each of Set.Models, in that order
	Line   int             // where it stands first, from 1
}

// Set is what a file of judged examples holds.
type Set struct {
	Models   []string  // sorted
	Examples []Example // in the order in which the tasks first appear
	// Repeated counts the lines that said nothing new: tasks that stand in the file
	// more than once.
	Repeated int
	// Digest identifies the data by its bytes (those of the file as it is stored),
	// "sha256:" and 64 hex digits.
	Digest string
}

// Columns returns where the named models stand in Example.Labels, in the order of
// names. An unknown name is an error that lists the
// models there are.
func (s *Set) Columns(names []string) ([]int, error) {
	columns := make([]int, len(names))
	for i, name := range names {
		if columns[i] = slices.Index(s.Models, name); columns[i] < 0 {
			return nil, fmt.Errorf("%w: no labels for %q; the data has %q", ErrInvalid, name, s.Models)
		}
	}
	return columns, nil
}

// ReadFile reads judged examples from a file. The form, and whether it is
// compressed, are told from its contents.
func ReadFile(path string) (*Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("judged data: %w", err)
	}
	defer f.Close()
	set, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return set, nil
}

// Read reads judged examples. Everything that is wrong with them is reported in
// one [ErrInvalid].
func Read(r io.Reader) (*Set, error) {
	digest := sha256.New()
	text, err := decompress(bufio.NewReader(io.TeeReader(r, digest)))
	if err != nil {
		return nil, err
	}
	c := collector{byDigest: map[features.Digest]int{}, models: map[string]int{}}
	first, err := firstByte(text)
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: there is nothing in it", ErrInvalid)
	case err != nil:
		return nil, fmt.Errorf("read judged data: %w", err)
	case first == '{':
		err = c.readJSONLines(text)
	default:
		err = c.readCSV(text)
	}
	if err != nil {
		return nil, err
	}
	return c.finish(digest)
}

// decompress looks at the first bytes and takes off gzip.
func decompress(r *bufio.Reader) (*bufio.Reader, error) {
	magic, _ := r.Peek(2) // shorter is not gzip; the reader meets the error again
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return r, nil
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("read judged data: %w", err)
	}
	return bufio.NewReader(z), nil
}

// firstByte returns the first byte that is not white space and leaves it unread.
// The white space stays too: lines are counted from the top.
func firstByte(r *bufio.Reader) (byte, error) {
	for n := 1; ; n++ {
		ahead, err := r.Peek(n)
		if len(ahead) < n {
			if errors.Is(err, bufio.ErrBufferFull) {
				return 0, fmt.Errorf("%w: it begins with %d bytes of white space", ErrInvalid, n-1)
			}
			return 0, err
		}
		if b := ahead[n-1]; !unicode.IsSpace(rune(b)) {
			return b, nil
		}
	}
}

// collector gathers examples, and what is wrong with them.
type collector struct {
	examples []Example
	byDigest map[features.Digest]int // to the index in examples
	models   map[string]int          // to the column
	repeated int
	faults   faults
}

// add takes one line's judgement of a task, by one or several models.
func (c *collector) add(line int, task, group string, judged map[string]Label) {
	if strings.TrimSpace(task) == "" {
		c.faults.add("without a task", line)
		return
	}
	digest := features.DigestOf(task)
	at, seen := c.byDigest[digest]
	if !seen {
		at = len(c.examples)
		c.byDigest[digest] = at
		c.examples = append(c.examples, Example{Task: task, Digest: digest, Group: group, Line: line})
	}
	e := &c.examples[at]
	if seen && group != "" && e.Group != group {
		if e.Group != "" {
			c.faults.add("whose task has another group above", line)
		}
		e.Group = group
	}
	news := !seen
	for model, label := range judged {
		if strings.TrimSpace(model) == "" {
			c.faults.add("with an empty model name", line)
			continue
		}
		column, known := c.models[model]
		if !known {
			column = len(c.models)
			c.models[model] = column
		}
		for len(e.Labels) <= column {
			e.Labels = append(e.Labels, Missing)
		}
		switch {
		case label == Missing || e.Labels[column] == label:
		case e.Labels[column] == Missing:
			e.Labels[column] = label
			news = true
		default:
			c.faults.add(fmt.Sprintf("whose task has another label for the same model above (the first on line %d)", e.Line), line)
		}
	}
	if !news {
		c.repeated++
	}
}

// finish orders the models by name and reports what was wrong.
func (c *collector) finish(digest hash.Hash) (*Set, error) {
	if err := c.faults.err(); err != nil {
		return nil, err
	}
	if len(c.examples) == 0 || len(c.models) == 0 {
		return nil, fmt.Errorf("%w: %d tasks and %d models", ErrInvalid, len(c.examples), len(c.models))
	}
	set := &Set{Examples: c.examples, Repeated: c.repeated, Digest: fmt.Sprintf("sha256:%x", digest.Sum(nil))}
	for model := range c.models {
		set.Models = append(set.Models, model)
	}
	slices.Sort(set.Models)
	for i := range set.Examples {
		found := set.Examples[i].Labels
		sorted := make([]Label, len(set.Models))
		for column, model := range set.Models {
			if from := c.models[model]; from < len(found) {
				sorted[column] = found[from]
			}
		}
		set.Examples[i].Labels = sorted
	}
	return set, nil
}

// faults gathers lines by what is wrong with them.
type faults struct {
	order []string
	lines map[string][]int
}

func (f *faults) add(problem string, line int) {
	if f.lines == nil {
		f.lines = map[string][]int{}
	}
	kind := problem
	if _, seen := f.lines[kind]; !seen {
		f.order = append(f.order, kind)
	}
	f.lines[kind] = append(f.lines[kind], line)
}

// shown is how many lines, and how many kinds of fault, are named.
const shown = 8

func (f *faults) err() error {
	if len(f.order) == 0 {
		return nil
	}
	var parts []string
	for _, problem := range f.order[:min(shown, len(f.order))] {
		parts = append(parts, Lines(f.lines[problem])+" "+problem)
	}
	if more := len(f.order) - shown; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%w: %s", ErrInvalid, strings.Join(parts, "; "))
}

// Lines counts and names lines for a message: "3 lines (2, 5, 9)".
func Lines(numbers []int) string {
	if len(numbers) == 1 {
		return fmt.Sprintf("line %d", numbers[0])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d lines (", len(numbers))
	for i, n := range numbers[:min(shown, len(numbers))] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, n)
	}
	if len(numbers) > shown {
		b.WriteString(", …")
	}
	b.WriteString(")")
	return b.String()
}
