package lexical

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman-dev/pointsman/probe"
)

func newProbe(t *testing.T, maxInFlight int) *Probe {
	t.Helper()
	p, err := New(maxInFlight)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestExtract(t *testing.T) {
	p := newProbe(t, 2)
	if s := p.Status(); s.State != probe.StateReady || !s.LastSuccess.IsZero() || s.Typical != 0 || s.Capacity != 2 {
		t.Errorf("before the first task: %+v", s)
	}
	for _, shape := range []probe.Shape{{}, Shape()} {
		got, err := p.Extract(t.Context(), probe.Request{Task: "What is 2+2?", Shape: shape})
		if err != nil {
			t.Fatal(err)
		}
		want, pieces := Encode("What is 2+2?")
		if !slices.Equal(got.Values, want) || got.Tokens != pieces || got.Shape != (probe.Shape{Layers: 1, HiddenSize: Dim}) {
			t.Errorf("%d tokens, shape %+v, or other features than Encode", got.Tokens, got.Shape)
		}
		if got.HTTP <= 0 || got.Queue != 0 || got.Artifact != 0 {
			t.Errorf("times: %v, %v, %v", got.HTTP, got.Queue, got.Artifact)
		}
	}
	if s := p.Status(); s.InFlight != 0 || s.LastSuccess.IsZero() || s.Typical <= 0 {
		t.Errorf("after it: %+v", s)
	}
}

func TestExtractRefuses(t *testing.T) {
	const secret = "a task that no error may quote"
	left := errors.New("left")
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(left)
	full := newProbe(t, 1)
	full.inFlight.Add(1)
	for _, c := range []struct {
		name  string
		probe *Probe
		ctx   context.Context
		shape probe.Shape
		want  error
	}{
		{"a caller that has left", newProbe(t, 1), gone, probe.Shape{}, left},
		{"another shape", newProbe(t, 1), t.Context(), probe.Shape{Layers: 2, HiddenSize: Dim / 2}, probe.ErrArtifact},
		{"too much at once", full, t.Context(), probe.Shape{}, probe.ErrOverloaded},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.probe.inFlight.Load()
			_, err := c.probe.Extract(c.ctx, probe.Request{Task: secret, Shape: c.shape})
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the error quotes the task: %v", err)
			}
			if c.probe.inFlight.Load() != before {
				t.Error("it still counts as under way")
			}
		})
	}
	if _, err := New(0); err == nil {
		t.Error("New(0) gives a probe that refuses everything")
	}
}
