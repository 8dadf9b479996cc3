package probe

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// errArtifactTime is the cause of an artifact that took too long.
var errArtifactTime = errors.New("artifact_timeout is over")

// VLLM is a probe backed by one vLLM server and the folder it shares. It is safe for concurrent use.
type VLLM struct {
	cfg      Config
	client   *client
	folder   *folder
	gate     *gate
	room     *room
	breaker  *breaker
	sweeper  *sweeper
	observer Observer
	log      *slog.Logger
	workers  *workers
	instance string // random, in the names of this process's artifacts
	health   health
	// unhealthy is set while vLLM's own health check fails.
	unhealthy atomic.Bool

	// The probe's own two ends, not those of any request: closing stops admission and the sweeper; halted cuts off
	// what was sent.
	closing, halted context.Context
	close, halt     context.CancelFunc

	mu      sync.Mutex // guards the order of running.Add and the end of admission
	running sync.WaitGroup
}

// Option changes how a probe is built.
type Option func(*VLLM)

// WithObserver lets o see what happens inside the probe.
func WithObserver(o Observer) Option { return func(v *VLLM) { v.observer = o } }

// WithLogger sends the probe's few log lines to l; without it there are none.
func WithLogger(l *slog.Logger) Option { return func(v *VLLM) { v.log = l } }

// New builds a probe and starts its background sweep. It sends nothing. [VLLM.Close] ends it.
func New(cfg Config, opts ...Option) (*VLLM, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("probe %s: %w", cfg.Name, err)
	}
	if cfg.MaxOutstandingBytes == 0 {
		cfg.MaxOutstandingBytes = outstandingFor(cfg.Endpoint, []Endpoint{cfg.Endpoint})
	}
	v := &VLLM{
		cfg:      cfg,
		health:   health{ejection: cfg.Breaker},
		gate:     newGate(cfg.MaxInFlight, cfg.MaxQueue, cfg.QueueTimeout),
		room:     newRoom(cfg.MaxOutstandingBytes),
		observer: NopObserver{},
		log:      slog.New(slog.DiscardHandler),
		workers:  newWorkers(runtime.GOMAXPROCS(0)),
		instance: randomHex(4),
	}
	for _, opt := range opts {
		opt(v)
	}
	v.log = v.log.With("probe", cfg.Name)
	v.breaker = newBreaker(cfg.Breaker, v.observer.Breaker)
	var err error
	if v.client, err = newClient(cfg); err != nil {
		return nil, fmt.Errorf("probe %s: %w", cfg.Name, err)
	}
	if v.folder, err = newFolder(cfg.Endpoint, cfg.MaxArtifactBytes); err != nil {
		return nil, fmt.Errorf("probe %s: %w", cfg.Name, err)
	}
	if v.folder.watch, err = newWatch(v.folder.dir); err != nil {
		v.log.Info("artifacts are found by looking alone", "error", err)
	}
	for _, warning := range v.Warnings() {
		v.log.Warn("hidden-states folder needs attention", "warning", warning)
	}
	v.closing, v.close = context.WithCancel(context.Background())
	v.halted, v.halt = context.WithCancel(context.Background())
	v.sweeper = &sweeper{folder: v.folder, cfg: cfg.Sweep, observer: v.observer, log: v.log}
	v.running.Go(func() { v.sweeper.run(v.closing) })
	if cfg.HealthInterval > 0 {
		v.running.Go(func() { v.watchHealth(v.closing, cfg.HealthInterval) })
	}
	return v, nil
}

// Extract asks vLLM for the hidden states of the task and returns their token means.
//
// ctx bounds only the wait in the queue: a request that is still queued when ctx ends is dropped, and the context's
// cause is returned, wrapped. Once sent, a request runs under the request and artifact timeouts whatever becomes of
// ctx, and Extract returns its outcome after the artifact was read and removed: vLLM releases before #56841 lose their
// engine when a queued request is aborted, and an artifact nobody waits for would stay.
func (v *VLLM) Extract(ctx context.Context, req Request) (Extraction, error) {
	out, err := v.extract(ctx, req)
	return out.Extraction, err
}

// outcome is an extraction with what only [VLLM.Check] reports.
type outcome struct {
	Extraction
	artifact ArtifactReport
	named    bool // the artifact's name holds our request id
}

func (v *VLLM) extract(ctx context.Context, req Request) (out outcome, err error) {
	if err := v.begin(); err != nil {
		return out, err
	}
	defer v.running.Done()

	held, err := v.queue(ctx, req, &out)
	if err != nil {
		return out, err
	}
	var found *claim // nil until there is an artifact to wait for
	defer func() { v.leave(held, found) }()

	// From here on the caller's end is not ours.
	work, cancel := v.detach(ctx)
	defer cancel()
	defer func() { v.health.note(out.HTTP+out.Artifact, err) }()

	requestID := requestIDPrefix + v.instance + "-" + randomHex(8)
	answer, err := v.send(work, req, requestID, &out)
	if err != nil {
		return out, err
	}
	found, err = v.collect(work, answer, req.Shape, requestID, &out)
	v.room.learn(len(req.Task), out.artifact)
	return out, err
}

// begin admits an extraction unless the probe is closing.
func (v *VLLM) begin() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closing.Err() != nil {
		return ErrClosed
	}
	v.running.Add(1)
	return nil
}

// place is what an extraction holds: a slot at vLLM and room in the folder.
type place struct{ leaveGate, leaveRoom func() }

// queue waits for a slot, and for room in the folder. It fails at once while the circuit is open.
func (v *VLLM) queue(ctx context.Context, req Request, out *outcome) (held place, err error) {
	start := time.Now()
	ctx, end := v.observer.Stage(ctx, StageQueue)
	defer func() {
		out.Queue = time.Since(start)
		end(err)
	}()
	if err := v.breaker.check(); err != nil {
		return held, err
	}
	ctx, cancel := cancelWith(ctx, v.closing)
	defer cancel()
	leaveGate, err := v.gate.enter(ctx)
	if err != nil {
		return held, err
	}
	leaveRoom, err := v.room.enter(ctx, v.room.estimate(req), v.cfg.QueueTimeout-time.Since(start))
	if err != nil {
		leaveGate()
		return held, err
	}
	return place{leaveGate: leaveGate, leaveRoom: leaveRoom}, nil
}

// slowToFree is the size from which giving an artifact's memory back takes longer than to have another goroutine do it.
const slowToFree = 1 << 20

// leave gives back what an extraction held. Its artifact has no name any more, or is the sweep's; the system frees its
// memory when it is closed, which takes 2 ms for 16 MB: the features do not wait for it, the room does.
func (v *VLLM) leave(held place, found *claim) {
	held.leaveGate()
	if found == nil || found.size < slowToFree {
		found.close()
		held.leaveRoom()
		return
	}
	v.running.Go(func() {
		found.close()
		held.leaveRoom()
	})
}

// detach returns a context that carries what ctx carries, but ends only with the returned function or when the probe
// is halted.
func (v *VLLM) detach(ctx context.Context) (context.Context, func()) {
	return cancelWith(context.WithoutCancel(ctx), v.halted)
}

// cancelWith returns a context that also ends, with the cause ErrClosed, when other ends.
func cancelWith(ctx, other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// send asks vLLM, unless the circuit breaker forbids it, and tells the breaker what came of it.
func (v *VLLM) send(ctx context.Context, req Request, requestID string, out *outcome) (ans answer, err error) {
	done, err := v.breaker.allow()
	if err != nil {
		return answer{}, err
	}
	start := time.Now()
	ctx, end := v.observer.Stage(ctx, StageHTTP)
	defer func() {
		out.HTTP = time.Since(start)
		done(err)
		end(err)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, v.cfg.RequestTimeout, errRequestTime)
	defer cancel()
	return v.client.ask(ctx, req, requestID, v.observer.Inject)
}

// collect waits for the artifact, pools it and removes it, also after a failure. The caller closes the claim, which is nil
// if there was nothing to claim.
func (v *VLLM) collect(ctx context.Context, ans answer, shape Shape, requestID string, out *outcome) (found *claim, err error) {
	start := time.Now()
	name, err := v.folder.resolve(ans.path)
	if err != nil {
		return nil, artifactError("path", err) // nothing outside the folder is touched
	}
	out.named = strings.HasPrefix(name, "chatcmpl-"+requestID)
	work, cancel := context.WithTimeoutCause(ctx, v.cfg.ArtifactTimeout, errArtifactTime)
	defer cancel()

	found, err = v.await(work, name)
	if err == nil {
		out.Features, err = v.pool(work, found, pooling{
			shape: shape, promptIDs: ans.promptIDs, zeros: v.cfg.ZeroVectors, workers: v.workers,
		})
	}
	out.Artifact = time.Since(start)

	gone, removeErr := found.remove()
	v.health.noteRemoval(v.log, removeErr)
	out.artifact = ArtifactReport{
		Bytes:  found.size,
		DType:  found.header.tensors[tensorHiddenStates].dtype,
		Tokens: out.Tokens,
		Locked: found.lock == lockHeld || found.lock == lockBusy,
		Left:   !gone,
	}
	v.observer.Artifact(ctx, out.artifact)
	return found, err
}

func (v *VLLM) await(ctx context.Context, name string) (c *claim, err error) {
	ctx, end := v.observer.Stage(ctx, StageArtifact)
	defer func() { end(err) }()
	c, err = v.folder.await(ctx, name)
	return c, fileError("waiting", err)
}

func (v *VLLM) pool(ctx context.Context, c *claim, p pooling) (features Features, err error) {
	ctx, end := v.observer.Stage(ctx, StagePool)
	defer func() { end(err) }()
	features, err = p.pool(ctx, c.file, c.header)
	return features, fileError("reading", err)
}

// fileError makes a file trouble an ErrArtifact; a lock that never came free and the probe's own end stay what they are.
func fileError(doing string, err error) error {
	if err == nil || errors.Is(err, ErrTimeout) || errors.Is(err, ErrClosed) {
		return err
	}
	return artifactError(doing, err)
}

// Status returns a snapshot of the probe.
func (v *VLLM) Status() Status {
	s := v.health.status()
	s.State = max(s.State, v.breaker.state())
	if v.unhealthy.Load() {
		s.State = StateDown
		if s.LastError == "" {
			s.LastError = "vLLM's health check fails"
		}
	}
	s.InFlight = int(v.gate.inFlight.Load())
	s.Queued = int(min(v.gate.queued.Load(), v.gate.maxQueue)) // refused ones count for a moment
	s.Capacity = v.cfg.MaxInFlight
	return s
}

// Close stops the sweep and admits nothing more; queued requests fail with ErrClosed. It waits for what was sent until
// ctx ends, then cuts it off, waits for its clean-up and returns the context's cause. Closing again waits again.
func (v *VLLM) Close(ctx context.Context) error {
	v.mu.Lock()
	v.close()
	v.mu.Unlock()

	cut := make(chan bool, 1)
	stop := context.AfterFunc(ctx, func() {
		cut <- v.gate.inFlight.Load() > 0
		v.halt()
	})
	v.running.Wait()
	interrupted := !stop() && <-cut
	v.halt()
	v.folder.watch.close()
	v.client.transport.CloseIdleConnections()
	if interrupted {
		return fmt.Errorf("closing probe %s: %w", v.cfg.Name, context.Cause(ctx))
	}
	return nil
}

// randomHex returns n random bytes as hex digits.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
