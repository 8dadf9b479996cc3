package rediscache

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// guard stands between callers and Redis, and keeps each promise of not being held up by it: a limit for each exchange that holds
// whatever the client library does, a limit to how many are under way, and a breaker.
//
// When the breaker is open callers are refused at once. They are never used to try whether Redis is back; the probing goroutine does
// that, so nobody's call is slowed down by a Redis that is still dead.
type guard struct {
	opTimeout time.Duration
	openFor   time.Duration
	observer  Observer
	probe     func(context.Context) error
	relearn   func() // after an exchange found no answer: the layout of the cluster may have changed
	breaker   *gobreaker.CircuitBreaker[struct{}]
	slots     chan struct{}      // one for each exchange under way
	opened    chan struct{}      // the breaker has opened
	ctx       context.Context    //nolint:containedctx // of the probing goroutine and all exchanges, ended by close
	cancel    context.CancelFunc // of ctx
	running   sync.WaitGroup     // the probing goroutine and all exchanges

	mu      sync.Mutex
	current Status
}

// Status says whether Redis is in use.
type Status struct {
	Ready bool
	// Err is why Redis is not in use: one of this package's errors, wrapped. It is nil when Ready.
	Err   error
	Since time.Time
}

var errStarting = errors.New("not tried yet")

// slotsPerConnection is how many exchanges may be under way for each connection: one has it, and a few wait for their turn, which
// comes within their limit if Redis is well.
const slotsPerConnection = 8

// callerLeftError wraps an error of an exchange that ended because its caller's context did, or that was not sent because too many
// were queued. It says nothing about Redis.
type callerLeftError struct{ error }

func (e callerLeftError) Unwrap() error { return e.error }

func newGuard(cfg Config, observer Observer, probe func(context.Context) error, relearn func()) *guard {
	g := &guard{
		opTimeout: cfg.OpTimeout,
		openFor:   cfg.OpenFor,
		observer:  observer,
		probe:     probe,
		relearn:   relearn,
		slots:     make(chan struct{}, cfg.PoolSize*slotsPerConnection),
		opened:    make(chan struct{}, 1),
		current:   Status{Err: errStarting, Since: time.Now()},
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     cfg.OpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool { return int(c.ConsecutiveFailures) >= cfg.Failures },
		IsExcluded:  func(err error) bool { return errors.As(err, new(callerLeftError)) },
		OnStateChange: func(_ string, _, to gobreaker.State) { // called with the breaker's lock held
			if to == gobreaker.StateOpen {
				select {
				case g.opened <- struct{}{}:
				default:
				}
			}
		},
	})
	return g
}

func (g *guard) start() { g.running.Go(g.keepProbing) }

// place is where an exchange is carried out.
type place uint8

const (
	// here is the caller's goroutine, for an exchange that keeps to its context.
	here place = iota
	// apart is a goroutine of its own, because the client keeps to a context in most places and not in all: it may be waiting for a
	// lock while another connection is dialled, or asking a dead node for the cluster's layout.
	apart
)

// guarded carries out one exchange within limit, or fails at once if Redis is not in use.
func guarded[T any](
	ctx context.Context, g *guard, op string, limit time.Duration, where place, exchange func(context.Context) (T, error),
) (T, error) {
	begin := time.Now()
	var got T
	if g.breaker.State() != gobreaker.StateClosed {
		g.observer.Exchange(op, 0, ErrUnavailable)
		return got, ErrUnavailable
	}
	_, err := g.breaker.Execute(func() (struct{}, error) {
		var err error
		got, err = within(ctx, g, limit, where, exchange)
		return struct{}{}, err
	})
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		err = ErrUnavailable
	case err != nil && !errors.As(err, new(callerLeftError)) && g.breaker.State() != gobreaker.StateClosed:
		g.set(err)
	}
	g.observer.Exchange(op, time.Since(begin), err)
	return got, err
}

// within runs the exchange, for no longer than limit.
func within[T any](
	ctx context.Context, g *guard, limit time.Duration, where place, exchange func(context.Context) (T, error),
) (T, error) {
	var none T
	opCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case g.slots <- struct{}{}:
	case <-opCtx.Done():
		return none, g.blame(ctx, opCtx.Err())
	}
	if !g.begin() {
		<-g.slots
		return none, ErrUnavailable
	}
	var a answer[T]
	if where == here {
		a = exchangeOnce(opCtx, g, exchange)
	} else {
		a = exchangeApart(opCtx, cancel, g, exchange)
	}
	if a.err == nil {
		return a.got, nil
	}
	return none, g.blame(ctx, a.err)
}

// answer is what an exchange came to.
type answer[T any] struct {
	got T
	err error
}

// exchangeOnce carries out an exchange that was counted in.
func exchangeOnce[T any](ctx context.Context, g *guard, exchange func(context.Context) (T, error)) (a answer[T]) {
	defer g.running.Done()
	defer func() { <-g.slots }()
	a.err = ErrConnect
	defer func() { _ = recover() }() // a client library that panics must not take the process with it
	a.got, a.err = exchange(ctx)
	return a
}

// exchangeApart carries out an exchange that was counted in on a goroutine of its own. cancel ends ctx.
func exchangeApart[T any](ctx context.Context, cancel context.CancelFunc, g *guard, exchange func(context.Context) (T, error)) answer[T] {
	answered := make(chan answer[T], 1)
	go func() {
		stop := context.AfterFunc(g.ctx, cancel)
		defer stop()
		answered <- exchangeOnce(ctx, g, exchange)
	}()
	select {
	case a := <-answered:
		return a
	case <-ctx.Done():
	}
	select {
	case a := <-answered: // in the last moment
		return a
	default:
		return answer[T]{err: ctx.Err()}
	}
}

// begin counts an exchange in, unless the guard is being closed: nothing may be added to running once it is waited for.
func (g *guard) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return false
	}
	g.running.Add(1)
	return true
}

// blame says what an exchange failed of: its caller's own context, or Redis.
func (g *guard) blame(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, errQueueFull) {
		return callerLeftError{ErrTimeout}
	}
	err = classify(err)
	if !errors.Is(err, ErrReply) {
		g.relearn()
	}
	return err
}

// keepProbing tries Redis once at the start, which also makes the first connection, and whenever the breaker has opened, until it
// answers.
func (g *guard) keepProbing() {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		for !g.tryOnce() {
			pause.Reset(g.openFor)
			select {
			case <-pause.C:
			case <-g.ctx.Done():
				return
			}
		}
		select {
		case <-g.opened:
			pause.Reset(g.openFor)
		case <-g.ctx.Done():
			return
		}
		select {
		case <-pause.C:
		case <-g.ctx.Done():
			return
		}
	}
}

// tryOnce probes and says whether Redis is in use now.
func (g *guard) tryOnce() bool {
	_, err := g.breaker.Execute(func() (struct{}, error) {
		if err := g.probe(g.ctx); err != nil {
			return struct{}{}, g.blame(g.ctx, err)
		}
		return struct{}{}, nil
	})
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return false // not yet time to try
	case g.ctx.Err() != nil:
		return true
	}
	g.set(err)
	return err == nil
}

func (g *guard) status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current
}

// set records whether Redis is in use, and why not.
func (g *guard) set(err error) {
	g.mu.Lock()
	was := g.current
	g.current = Status{Ready: err == nil, Err: err, Since: was.Since}
	changed := was.Ready != g.current.Ready || was.Err == errStarting //nolint:errorlint // the one value
	if changed {
		g.current.Since = time.Now()
	}
	now := g.current
	g.mu.Unlock()
	if changed {
		g.observer.StateChanged(now)
	}
}

// close ends the probing and what is under way, and waits for both: an exchange ends with its context, or at the latest with the
// client's own time-outs for dialling, writing and reading.
func (g *guard) close() {
	g.mu.Lock()
	g.cancel()
	g.mu.Unlock()
	g.running.Wait()
}
