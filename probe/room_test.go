package probe

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRoomEstimates(t *testing.T) {
	r := newRoom(1 << 40)
	req := Request{Task: strings.Repeat("x", 1000), Shape: Shape{Layers: 2, HiddenSize: 10}}
	if got := r.estimate(Request{Task: req.Task}); got != 0 {
		t.Errorf("knowing nothing: %d", got)
	}
	if got, want := r.estimate(req), int64((64+500)*2*10*4); got != want {
		t.Errorf("at first: %d, want %d", got, want)
	}
	r.learn(1000, ArtifactReport{Tokens: 800, Bytes: 800 * 50})
	if got, want := r.estimate(req), int64((64+800)*50); got != want {
		t.Errorf("after a dense one: %d, want %d", got, want)
	}
	for range 200 {
		r.learn(1000, ArtifactReport{Tokens: 250, Bytes: 250 * 50})
	}
	if got := r.estimate(req); got < (64+250)*50 || got > (64+255)*50 {
		t.Errorf("after many plain ones: %d", got)
	}
	r.learn(10, ArtifactReport{Tokens: 60, Bytes: 60 * 50}) // all template
	if got := r.estimate(req); got > (64+255)*50 {
		t.Errorf("after a short one: %d", got)
	}
}

func TestRoomIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(100)
		if _, err := r.enter(t.Context(), 101, time.Second); !errors.Is(err, ErrOverloaded) {
			t.Errorf("never fits: %v", err)
		}
		leave, err := r.enter(t.Context(), 60, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.enter(t.Context(), 60, time.Second); !errors.Is(err, ErrOverloaded) {
			t.Errorf("too late: %v", err)
		}
		gone, cancel := context.WithCancelCause(t.Context())
		left := errors.New("left")
		cancel(left)
		if _, err := r.enter(gone, 60, time.Second); !errors.Is(err, left) {
			t.Errorf("a caller that left: %v", err)
		}
		go func() { time.Sleep(time.Millisecond); leave() }()
		again, err := r.enter(t.Context(), 60, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		again()
	})
}
