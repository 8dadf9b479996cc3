package probe

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestExtractOutlivesItsCaller: a sent request runs on, its result is returned and its files are gone; the values of
// the caller's context still reach the observer.
func TestExtractOutlivesItsCaller(t *testing.T) {
	sent, answer := make(chan struct{}), make(chan struct{})
	var aborted atomic.Bool
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(sent)
		select {
		case <-answer:
		case <-r.Context().Done():
			aborted.Store(true)
		}
		serveFile(twoTokens())(w, r, f)
	})
	type key struct{}
	o := &recorder{}
	v := newProbe(t, f.config(), WithObserver(o))
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
	o.inject = func(ctx context.Context, _ http.Header) {
		if ctx.Value(key{}) != "kept" {
			t.Error("the context's values are lost")
		}
	}
	result := make(chan error, 1)
	go func() {
		_, err := v.Extract(ctx, Request{})
		result <- err
	}()
	<-sent
	cancel()
	select {
	case err := <-result:
		t.Fatalf("returned with its caller: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if got := v.Status(); got.InFlight != 1 {
		t.Errorf("status %+v", got)
	}
	close(answer)
	if err := <-result; err != nil || aborted.Load() {
		t.Errorf("error %v, aborted %v", err, aborted.Load())
	}
	wantNames(t, f.dir)
}

// TestExtractQueuedIsDropped: a request that was not sent yet goes with its caller, and vLLM never hears of it.
func TestExtractQueuedIsDropped(t *testing.T) {
	var requests atomic.Int64
	answer, sent := make(chan struct{}), make(chan struct{}, 1)
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		requests.Add(1)
		sent <- struct{}{}
		<-answer
		serveFile(twoTokens())(w, r, f)
	})
	cfg := f.config()
	cfg.MaxInFlight = 1
	v := newProbe(t, cfg)
	first := make(chan error, 1)
	go func() {
		_, err := v.Extract(t.Context(), Request{})
		first <- err
	}()
	<-sent
	cause := errors.New("all callers left")
	ctx, cancel := context.WithCancelCause(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := v.Extract(ctx, Request{})
		second <- err
	}()
	for v.Status().Queued == 0 {
		runtime.Gosched()
	}
	cancel(cause)
	if err := <-second; !errors.Is(err, cause) {
		t.Errorf("error %v, want the caller's cause", err)
	}
	close(answer)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// TestExtractSlotIsHeldUntilCleaned: with one slot, the folder never holds the files of two requests.
func TestExtractSlotIsHeldUntilCleaned(t *testing.T) {
	const slots = 3
	var most atomic.Int64
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		serveFile(twoTokens())(w, r, f)
		if n := int64(len(names(t, f.dir))); n > most.Load() {
			most.Store(n)
		}
	})
	cfg := f.config()
	cfg.MaxInFlight, cfg.MaxQueue, cfg.QueueTimeout = slots, 100, 30*time.Second
	cfg.Sweep.MinAge = time.Hour
	v := newProbe(t, cfg)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if _, err := v.Extract(t.Context(), Request{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := most.Load(); n < 1 || n > slots {
		t.Errorf("%d artifacts at a time, want at most %d", n, slots)
	}
	wantNames(t, f.dir)
}

func TestExtractCircuit(t *testing.T) {
	var requests atomic.Int64
	var status atomic.Int64
	status.Store(503)
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		requests.Add(1)
		if s := int(status.Load()); s != 200 {
			w.WriteHeader(s)
			return
		}
		serveFile(twoTokens())(w, r, f)
	})
	cfg := f.config()
	cfg.Breaker = Breaker{Failures: 2, OpenFor: 50 * time.Millisecond}
	v := newProbe(t, cfg)
	for range 2 {
		_, err := v.Extract(t.Context(), Request{})
		checkError(t, err, ErrUnavailable, "503")
	}
	_, err := v.Extract(t.Context(), Request{})
	checkError(t, err, ErrCircuitOpen, "")
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
	if s := v.Status(); s.State != StateDown || !strings.Contains(s.LastError, "503") {
		t.Errorf("status %+v", s)
	}
	status.Store(200)
	time.Sleep(60 * time.Millisecond)
	if _, err := v.Extract(t.Context(), Request{}); err != nil {
		t.Error(err)
	}
	if s := v.Status(); s.State != StateReady || s.LastError != "" {
		t.Errorf("status %+v", s)
	}
	// A refused task says nothing about the probe.
	status.Store(400)
	for range 3 {
		_, err := v.Extract(t.Context(), Request{})
		checkError(t, err, ErrRejected, "400")
	}
	if s := v.Status(); s.State != StateReady {
		t.Errorf("status %+v", s)
	}
}

func TestClose(t *testing.T) {
	sent, answer := make(chan struct{}, 2), make(chan struct{})
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		_, _ = io.Copy(io.Discard, r.Body)
		sent <- struct{}{}
		select {
		case <-answer:
			serveFile(twoTokens())(w, r, f)
		case <-r.Context().Done():
		}
	})
	cfg := f.config()
	cfg.MaxInFlight = 1
	extract := func(v *VLLM) chan error {
		result := make(chan error, 1)
		go func() {
			_, err := v.Extract(t.Context(), Request{})
			result <- err
		}()
		return result
	}

	t.Run("waits for what was sent", func(t *testing.T) {
		v := newProbe(t, cfg)
		first := extract(v)
		<-sent
		queued := extract(v)
		for v.Status().Queued == 0 {
			runtime.Gosched()
		}
		closed := make(chan error, 1)
		go func() { closed <- v.Close(t.Context()) }()
		if err := <-queued; !errors.Is(err, ErrClosed) {
			t.Errorf("queued: %v, want ErrClosed", err)
		}
		if _, err := v.Extract(t.Context(), Request{}); !errors.Is(err, ErrClosed) {
			t.Errorf("new: %v, want ErrClosed", err)
		}
		select {
		case err := <-closed:
			t.Errorf("closed before the sent request ended: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		answer <- struct{}{}
		if err := <-first; err != nil {
			t.Errorf("sent: %v", err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := v.Close(t.Context()); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
	t.Run("cuts off at the deadline", func(t *testing.T) {
		v := newProbe(t, cfg)
		first := extract(v)
		<-sent
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := v.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v, want the deadline", err)
		}
		checkError(t, <-first, ErrClosed, "")
	})
	t.Run("nothing to cut off", func(t *testing.T) {
		v := newProbe(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := v.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}
