package config

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJoinProblemsSortsAndDropsRepetitions(t *testing.T) {
	p := func(line, column int, path string) *Problem {
		return &Problem{File: "f", Line: line, Column: column, Path: path, Message: "m"}
	}
	err := joinProblems([]*Problem{p(2, 1, "b"), p(1, 9, "a"), p(10, 1, ""), p(1, 9, "a"), p(1, 2, "c"), p(1, 9, "A")})
	want := "f:1:2: c: m\nf:1:9: A: m\nf:1:9: a: m\nf:2:1: b: m\nf:10:1: m"
	if err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if joinProblems(nil) != nil {
		t.Error("no problems make no error")
	}
}

func TestProblemsFindsThemWrapped(t *testing.T) {
	a, b := &Problem{Path: "a", Message: "m"}, &Problem{Path: "b", Message: "m"}
	err := fmt.Errorf("load: %w", errors.Join(a, errors.New("other"), fmt.Errorf("more: %w", b)))
	if diff := cmp.Diff([]*Problem{a, b}, Problems(err)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if got := Problems(nil); got != nil {
		t.Errorf("Problems(nil) = %v", got)
	}
}
