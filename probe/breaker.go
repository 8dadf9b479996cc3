package probe

import (
	"errors"
	"fmt"

	"github.com/sony/gobreaker/v2"
)

// breaker stops the probe from asking a vLLM that does not answer. Failures are ErrUnavailable and HTTP timeouts, in a
// row; any other whole answer, a refusal too, shows that vLLM is alive and starts the count again.
type breaker struct {
	circuit *gobreaker.TwoStepCircuitBreaker[struct{}]
}

func newBreaker(cfg Breaker, changed func(State)) *breaker {
	return &breaker{gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1, // half open: one request tries
		Timeout:     cfg.OpenFor,
		ReadyToTrip: func(counts gobreaker.Counts) bool {
			return uint64(counts.ConsecutiveFailures) >= uint64(cfg.Failures)
		},
		IsSuccessful: func(err error) bool {
			return !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrTimeout)
		},
		OnStateChange: func(_ string, _, to gobreaker.State) { changed(stateOf(to)) },
		// A request that was cut off because the probe closes says nothing about vLLM.
		IsExcluded: func(err error) bool { return errors.Is(err, ErrClosed) },
	})}
}

// check fails while the circuit is open. It reserves nothing: it keeps requests that could not be sent out of the queue.
func (b *breaker) check() error {
	if b.circuit.State() == gobreaker.StateOpen {
		return fmt.Errorf("%w: vLLM was unavailable several times in a row", ErrCircuitOpen)
	}
	return nil
}

// allow is called directly before sending; done must be called with the outcome.
func (b *breaker) allow() (done func(error), err error) {
	if done, err = b.circuit.Allow(); err != nil {
		return nil, fmt.Errorf("%w: not yet known whether vLLM is back", ErrCircuitOpen)
	}
	return done, nil
}

// state is the circuit's part of the probe's state.
func (b *breaker) state() State { return stateOf(b.circuit.State()) }

func stateOf(s gobreaker.State) State {
	switch s {
	case gobreaker.StateOpen:
		return StateDown
	case gobreaker.StateHalfOpen:
		return StateDegraded
	default:
		return StateReady
	}
}
