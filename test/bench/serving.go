package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// servingRow is what one way of being answered takes.
type servingRow struct {
	Name      string  `json:"name"`
	PerSecond float64 `json:"per_second"` // closed loop, median of the rounds
	// The open loop: rate, and medians of the rounds' quantiles.
	Rate   float64       `json:"rate"`
	P50    time.Duration `json:"p50"`
	P99    time.Duration `json:"p99"`
	P999   time.Duration `json:"p999"`
	Late   time.Duration `json:"late"`   // p99 of how late the calls were sent
	CPU    time.Duration `json:"cpu"`    // of the server, a call
	Allocs float64       `json:"allocs"` // of the server, gRPC's included, a call
	Bytes  float64       `json:"bytes"`  // allocated by the server, a call
	Heap   uint64        `json:"heap"`   // in use after a collection
}

// way is a way of being answered, while it is measured.
type way struct {
	servingRow

	server  *process
	prompts []string
	do      call
	look    func(*pointsmanv1.DecideResponse) // at an answer
	strays  *atomic.Int64                     // calls answered in another way

	closed          []float64
	p50, p99, p999  []time.Duration
	late            []time.Duration
	cpu             []time.Duration
	allocs, alloced []float64
}

// hitTasks is how many tasks the callers take turns with: enough that a local cache of
// hardly any entries never has the next.
const hitTasks = 500

// promptOf is a task of a few hundred bytes, as a short prompt is.
func promptOf(i int) string {
	return fmt.Sprintf("Task %d: %s", i, strings.Repeat("explain in a few words what this function does and why it may be slow. ", 4))
}

// servingShape is that of a usual checkpoint, which the servers hold in memory.
var servingShape = shape{4, 4096}

// serving measures cached answers beside the bare echo.
func (b *bench) serving(ctx context.Context, r *report) (err error) {
	p := &processes{dir: b.dir, server: b.Server}
	defer func() { err = errors.Join(err, p.stop()) }()
	ways, err := b.ways(ctx, p)
	if err != nil {
		return err
	}
	for round := range b.Rounds + 1 { // the first warms up
		for _, w := range ways {
			if err := w.steady(func() error { return w.runClosed(ctx, b, round > 0) }); err != nil {
				return fmt.Errorf("%s: %w", w.Name, err)
			}
			b.sayf("  %-19s closed loop %d/%d: %.0f/s", w.Name, round, b.Rounds, w.PerSecond)
		}
	}
	capacity := median(ways[0].closed)
	for _, w := range ways {
		w.PerSecond = median(w.closed)
		w.Rate = min(capacity, w.PerSecond) / 2
		if w.PerSecond > 0.6*capacity { // at the echo's rate, so that the tails can be compared
			w.Rate = capacity / 2
		}
	}
	for round := range b.Rounds {
		for _, w := range ways {
			if err := w.steady(func() error { return w.runOpen(ctx, b) }); err != nil {
				return fmt.Errorf("%s: %w", w.Name, err)
			}
			b.sayf("  %-19s open loop %d/%d: p99 %s", w.Name, round+1, b.Rounds, brief(w.p99[round]))
		}
	}
	for _, w := range ways {
		w.P50, w.P99, w.P999, w.Late = median(w.p50), median(w.p99), median(w.p999), median(w.late)
		w.CPU, w.Allocs, w.Bytes = median(w.cpu), median(w.allocs), median(w.alloced)
		s, err := w.server.read(ctx, true)
		if err != nil {
			return err
		}
		w.Heap = s.HeapBytes
		r.Serving = append(r.Serving, w.servingRow)
	}
	return b.callers(ctx, r, ways)
}

// callers shows how throughput grows with the callers.
func (b *bench) callers(ctx context.Context, r *report, ways []*way) error {
	counts := []int{1, 8, 200}
	if b.Quick {
		counts = []int{1}
	}
	for _, n := range counts {
		row := callersRow{Callers: n}
		for i, w := range ways[:2] {
			var rates []float64
			for range b.Rounds {
				l, err := closedLoop(ctx, w.do, n, b.Closed/2)
				if err != nil {
					return err
				}
				rates = append(rates, l.perSecond())
			}
			if i == 0 {
				row.Echo = median(rates)
			} else {
				row.LocalHit = median(rates)
			}
		}
		r.Callers = append(r.Callers, row)
		b.sayf("  %d callers: echo %.0f/s, local hit %.0f/s", n, row.Echo, row.LocalHit)
	}
	return nil
}

// ways starts what is measured: the bare echo, the local hit, and what else there is.
func (b *bench) ways(ctx context.Context, p *processes) ([]*way, error) {
	checkpoint, artifacts := filepath.Join(b.ram, "serving"), filepath.Join(b.ram, "serving-artifacts")
	if err := errors.Join(saveCheckpoint(checkpoint, servingShape, usual), os.Mkdir(artifacts, 0o700)); err != nil {
		return nil, err
	}
	sim, err := p.sim(ctx, "sim", artifacts, servingShape, 0)
	if err != nil {
		return nil, err
	}
	cfg := serverConfig{name: "local", sim: sim.addr, artifacts: artifacts, checkpoint: checkpoint, maxEntries: 65536}
	local, err := p.pointsman(ctx, cfg)
	if err != nil {
		return nil, err
	}
	toLocal, err := p.connect(local.addr, b.Conns)
	if err != nil {
		return nil, err
	}
	if err := fill(ctx, toLocal, hitTasks); err != nil {
		return nil, err
	}
	hit, err := toLocal.decide(ctx, 0, promptOf(0))
	if err != nil {
		return nil, err
	}
	bare, err := b.echo(ctx, p, "bare echo", hit, checkpoint, false)
	if err != nil {
		return nil, err
	}
	contract, err := b.echo(ctx, p, "echo, trailers, log", hit, checkpoint, true)
	if err != nil {
		return nil, err
	}
	ways := []*way{ //nolint:prealloc // four at most
		bare,
		newWay("local hit", local, toLocal, hitTasks, pointsmanv1.Origin_ORIGIN_LOCAL_CACHE),
		contract,
	}
	redis, err := p.redis(ctx)
	if err != nil {
		b.sayf("  no shared hits: %v", err)
		return ways, nil
	}
	cfg.name, cfg.maxEntries, cfg.redis = "shared", 1, redis.addr
	shared, err := p.pointsman(ctx, cfg)
	if err != nil {
		return nil, err
	}
	toShared, err := p.connect(shared.addr, b.Conns)
	if err != nil {
		return nil, err
	}
	if err := fill(ctx, toShared, hitTasks); err != nil {
		return nil, err
	}
	return append(ways, newWay("shared hit", shared, toShared, hitTasks, pointsmanv1.Origin_ORIGIN_SHARED_CACHE)), nil
}

// echo starts a server that always gives the same answer: alone, or with the contract's
// trailers and a line in a log.
func (b *bench) echo(ctx context.Context, p *processes, name string, answer *pointsmanv1.DecideResponse, checkpoint string, contract bool) (*way, error) {
	server, err := p.echo(ctx, strings.ReplaceAll(name, " ", "-"), answer, checkpoint, contract)
	if err != nil {
		return nil, err
	}
	to, err := p.connect(server.addr, b.Conns)
	if err != nil {
		return nil, err
	}
	return newWay(name, server, to, hitTasks, answer.GetOrigin()), nil
}

// fill has the first n tasks computed.
func fill(ctx context.Context, to clients, n int) error {
	var next atomic.Int64
	const callers = 8
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[c] == nil; i = int(next.Add(1)) - 1 {
				_, errs[c] = to.decide(ctx, i, promptOf(i))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// newWay is to ask a server about n tasks in turn. The answers' origin should be the
// given one.
func newWay(name string, server *process, to clients, n int, origin pointsmanv1.Origin) *way {
	prompts := make([]string, n)
	for i := range prompts {
		prompts[i] = promptOf(i)
	}
	w := &way{server: server, prompts: prompts, strays: new(atomic.Int64)}
	w.Name = name
	w.look = func(resp *pointsmanv1.DecideResponse) {
		if resp.GetOrigin() != origin {
			w.strays.Add(1)
		}
	}
	w.do = func(ctx context.Context, i int) error {
		resp, err := to.ask(ctx, i, prompts[i%n])
		if err == nil {
			w.look(resp)
		}
		return err
	}
	return w
}

// checkStrays fails if so many of the calls were answered in another way that the
// measurement is of something else.
func (w *way) checkStrays(calls int) error {
	const few = 50 // one in so many: on a busy machine Redis is late now and then
	if n := int(w.strays.Swap(0)); n > calls/few+few {
		return fmt.Errorf("%w: %d of %d calls", errStrays, n, calls)
	}
	return nil
}

var errStrays = errors.New("too many answers came from elsewhere")

// steady repeats a loop that was disturbed, a few times.
func (w *way) steady(run func() error) error {
	const tries = 6
	var err error
	for range tries {
		if err = run(); !errors.Is(err, errStrays) {
			return err
		}
	}
	return err
}

// runClosed runs one closed loop and notes what it cost the server.
func (w *way) runClosed(ctx context.Context, b *bench, counts bool) error {
	if b.Profile != "" {
		path := filepath.Join(b.Profile, strings.ReplaceAll(w.Name, " ", "-")+".pprof")
		done := make(chan error, 1)
		go func() { done <- w.server.profile(ctx, path, b.Closed) }()
		defer func() {
			if err := <-done; err != nil {
				b.sayf("  %v", err)
			}
		}()
	}
	before, err := w.server.read(ctx, true)
	if err != nil {
		return err
	}
	l, err := closedLoop(ctx, w.do, b.Callers, b.Closed)
	if err != nil {
		return err
	}
	after, err := w.server.read(ctx, false)
	if err != nil {
		return err
	}
	w.PerSecond = l.perSecond()
	if !counts {
		w.strays.Store(0)
		return nil
	}
	if err := w.checkStrays(l.calls); err != nil {
		return err
	}
	w.closed = append(w.closed, l.perSecond())
	w.cpu = append(w.cpu, (after.CPU-before.CPU)/time.Duration(l.calls))
	w.allocs = append(w.allocs, float64(after.Mallocs-before.Mallocs)/float64(l.calls))
	w.alloced = append(w.alloced, float64(after.Bytes-before.Bytes)/float64(l.calls))
	return nil
}

// runOpen runs one open loop.
func (w *way) runOpen(ctx context.Context, b *bench) (err error) {
	client, err := dialWire(ctx, w.server.addr, b.Conns, w.prompts, w.look)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.close()) }()
	var (
		l  *load
		wg sync.WaitGroup
	)
	wg.Go(func() { l, err = openLoop(ctx, client, preciseSleep(), w.Rate, b.Open) }) // the sleep is the goroutine's own
	wg.Wait()
	if err != nil {
		return err
	}
	if err := w.checkStrays(l.calls / answerSample); err != nil {
		return err
	}
	w.p50 = append(w.p50, l.latencies.quantile(0.5))
	w.p99 = append(w.p99, l.latencies.quantile(0.99))
	w.p999 = append(w.p999, l.latencies.quantile(0.999))
	w.late = append(w.late, l.late.quantile(0.99))
	return nil
}
