package server

import (
	"strings"
	"testing"
	"time"
)

func TestAnswersLeaveBeforeTheDeadline(t *testing.T) {
	arrived := time.Unix(1000, 0)
	for _, c := range []struct{ remaining, margin, want time.Duration }{
		{time.Second, 5 * time.Millisecond, 995 * time.Millisecond},
		{20 * time.Millisecond, 5 * time.Millisecond, 15 * time.Millisecond},
		{8 * time.Millisecond, 5 * time.Millisecond, 6 * time.Millisecond}, // a quarter is less
		{time.Second, 0, time.Second},
		{time.Second, time.Second, 750 * time.Millisecond},
	} {
		got := DeadlineMargin(c.margin).answerBy(arrived, arrived.Add(c.remaining))
		if got != arrived.Add(c.want) {
			t.Errorf("%v left, margin %v: answer after %v, want %v", c.remaining, c.margin, got.Sub(arrived), c.want)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	const good = "gw-1.2_Z"
	for _, c := range []struct {
		name  string
		given []string
		kept  bool
	}{
		{"short and plain", []string{good}, true},
		{"as long as allowed", []string{strings.Repeat("a", maxRequestID)}, true},
		{"none", nil, false},
		{"empty", []string{""}, false},
		{"too long", []string{strings.Repeat("a", maxRequestID+1)}, false},
		{"a line feed", []string{"a\nb"}, false},
		{"a space", []string{"a b"}, false},
		{"not ASCII", []string{"é"}, false},
		{"several", []string{good, good}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := requestID(c.given, newID())
			if kept := len(c.given) > 0 && got == c.given[0]; kept != c.kept {
				t.Errorf("got %q", got)
			}
			if !plainID(got) {
				t.Errorf("%q is not plain", got)
			}
			if !c.kept && got == requestID(c.given, newID()) {
				t.Error("the made ids repeat")
			}
		})
	}
}
