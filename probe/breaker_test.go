package probe

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(Breaker{Failures: 3, OpenFor: 10 * time.Second}, func(State) {})
		send := func(err error) {
			t.Helper()
			done, allowErr := b.allow()
			if allowErr != nil {
				t.Fatal(allowErr)
			}
			done(err)
		}
		wrapped := fmt.Errorf("%w: refused", ErrUnavailable)

		// Only failures in a row count, and every other whole answer starts the count again.
		for _, other := range []error{nil, ErrRejected, ErrProtocol} {
			send(wrapped)
			send(ErrTimeout)
			send(other)
		}
		send(wrapped)
		send(ErrClosed) // says nothing either way
		send(ErrTimeout)
		if err := b.check(); err != nil {
			t.Fatalf("opened early: %v", err)
		}
		send(wrapped)
		if err := b.check(); !errors.Is(err, ErrCircuitOpen) {
			t.Fatalf("after three failures in a row: %v, want ErrCircuitOpen", err)
		}
		if _, err := b.allow(); !errors.Is(err, ErrCircuitOpen) || b.state() != StateDown {
			t.Fatalf("open: %v, %v", err, b.state())
		}

		time.Sleep(10*time.Second + 1)
		if err := b.check(); err != nil || b.state() != StateDegraded {
			t.Fatalf("time is over: %v, %v", err, b.state())
		}
		done, err := b.allow()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.allow(); !errors.Is(err, ErrCircuitOpen) {
			t.Errorf("a second one was let through: %v", err)
		}
		done(wrapped)
		if err := b.check(); !errors.Is(err, ErrCircuitOpen) {
			t.Errorf("the trial failed: %v, want ErrCircuitOpen", err)
		}

		time.Sleep(10*time.Second + 1)
		send(ErrRejected)
		if b.state() != StateReady {
			t.Errorf("the trial was answered: %v, want ready", b.state())
		}
	})
}
