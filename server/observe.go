package server

import (
	"context"
	"log/slog"
)

// logObserver tells the log of what nobody should miss.
type logObserver struct{ log *slog.Logger }

// Stage implements [DecisionObserver].
func (logObserver) Stage(ctx context.Context, _ Stage) (context.Context, func(error)) {
	return ctx, func(error) {}
}

// Panicked implements [DecisionObserver].
func (o logObserver) Panicked(ctx context.Context, route string, stack []byte) {
	o.log.ErrorContext(ctx, "a decision panicked", "route", route, "stack", string(stack))
}

// nopObserver is an [OperationObserver] that nobody listens to.
type nopObserver struct{}

// Refused implements [DoorObserver].
func (nopObserver) Refused(context.Context) {}

// Reloaded implements [OperationObserver].
func (nopObserver) Reloaded(context.Context, error) {}
