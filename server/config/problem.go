package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in the configuration.
type Problem struct { //nolint:errname // A mistake to be shown, first of all; that it is an error too is plumbing.
	File string `json:"file"`
	// Line and Column count from 1; both are 0 for a Config that was not read from
	// a file. A missing key is placed where the section that lacks it begins.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Path leads to the value, such as routes.main.targets[1].cost; empty for the
	// file as a whole.
	Path string `json:"path"`
	// Message says what is wrong, what the limit is and what to do.
	Message string `json:"message"`
}

// Error returns file:line:column: path: message.
func (p *Problem) Error() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems returns every Problem in err, in the order of the file.
func Problems(err error) []*Problem {
	var found []*Problem
	collectProblems(err, &found)
	return found
}

func collectProblems(err error, into *[]*Problem) {
	switch wrapped := err.(type) { //nolint:errorlint // It walks the tree itself.
	case *Problem:
		*into = append(*into, wrapped)
	case interface{ Unwrap() []error }:
		for _, e := range wrapped.Unwrap() {
			collectProblems(e, into)
		}
	case interface{ Unwrap() error }:
		collectProblems(wrapped.Unwrap(), into)
	}
}

// joinProblems sorts by position, drops repetitions (an alias used twice repeats
// its mistakes) and joins the rest into one error; nil for none.
func joinProblems(problems []*Problem) error {
	slices.SortStableFunc(problems, func(a, b *Problem) int {
		return cmp.Or(
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Message, b.Message),
		)
	})
	problems = slices.CompactFunc(problems, func(a, b *Problem) bool { return *a == *b })
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return errors.Join(errs...)
}
