package cache

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errLoad = errors.New("load failed")

// newLadder builds a ladder of strings with small limits and closes it at the end of the test, or of the synctest bubble.
func newLadder(t *testing.T, deps Deps[string]) *Ladder[string] {
	t.Helper()
	l, err := New(Config{TTL: time.Hour, MaxEntries: 1000, ComputeTimeout: time.Minute, LeaseTTL: 5 * time.Second}, deps)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

// keyOf returns a key for name.
func keyOf(name string) Key {
	k, err := NewKeyer(nil)
	if err != nil {
		panic(err)
	}
	return k.Key(KeyFields{Task: name})
}

type counter = atomic.Int64

// always returns a computation that takes the given time, whatever becomes of its context, and counts its runs.
func always(runs *counter, takes time.Duration, value string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		runs.Add(1)
		time.Sleep(takes)
		return value, nil
	}
}

// never is a computation that must not run.
func never(t *testing.T) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		t.Error("computed, want no computation")
		return "", nil
	}
}

// want checks a result's value and origin.
func want(t *testing.T, got Result[string], err error, value string, origin Origin) {
	t.Helper()
	if err != nil {
		t.Errorf("got error %v, want %q", err, value)
		return
	}
	if got.Value != value || got.Origin != origin {
		t.Errorf("got %q from origin %d, want %q from %d", got.Value, got.Origin, value, origin)
	}
}

// wantErr checks that err is target.
func wantErr(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("got error %v, want %v", err, target)
	}
}
