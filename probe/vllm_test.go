package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestExtract(t *testing.T) {
	var id string
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		id = r.Header.Get("X-Request-Id")
		writeFile(t, f.path(r)+lockSuffix, nil)
		serveFile(twoTokens(), 101, 102)(w, r, f)
	})
	v := newProbe(t, f.config())
	if got := v.Status(); got.State != StateReady || got.Capacity != 32 || got.Typical != 0 {
		t.Errorf("status before: %+v", got)
	}
	got, err := v.Extract(t.Context(), Request{Task: secretTask, Shape: Shape{2, 2}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Values, twoTokenMeans) || got.Tokens != 2 || got.Shape != (Shape{2, 2}) {
		t.Errorf("features %+v", got.Features)
	}
	if got.HTTP <= 0 || got.Artifact <= 0 {
		t.Errorf("times %v, %v", got.HTTP, got.Artifact)
	}
	if !requestIDForm.MatchString(id) {
		t.Errorf("request id %q", id)
	}
	wantNames(t, f.dir)
	if got := v.Status(); got.State != StateReady || got.Typical <= 0 || got.LastSuccess.IsZero() || got.InFlight != 0 {
		t.Errorf("status after: %+v", got)
	}
}

// TestExtractReportedDir: vLLM sees the folder under another path.
func TestExtractReportedDir(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		path := f.path(r)
		writeFile(t, path, twoTokens())
		reply(w, filepath.Join("/dev/shm/hs", filepath.Base(path)))
	})
	cfg := f.config()
	cfg.Endpoint.ReportedDir = "/dev/shm/hs/"
	if _, err := newProbe(t, cfg).Extract(t.Context(), Request{}); err != nil {
		t.Fatal(err)
	}
	wantNames(t, f.dir)
}

// TestExtractBadArtifacts: every bad file is refused and gone, with and without a lock.
func TestExtractBadArtifacts(t *testing.T) {
	files, err := filepath.Glob("testdata/bad_artifacts/*.safetensors")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, locked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/lock=%v", filepath.Base(file), locked), func(t *testing.T) {
				t.Parallel()
				f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
					if locked {
						writeFile(t, f.path(r)+lockSuffix, nil)
					}
					serveFile(content)(w, r, f)
				})
				v := newProbe(t, f.config())
				_, err := v.Extract(t.Context(), Request{Task: secretTask, Shape: Shape{2, 8}})
				checkError(t, err, ErrArtifact, "")
				if err != nil && strings.Contains(err.Error(), "chatcmpl") {
					t.Errorf("error %q holds the file's name", err)
				}
				wantNames(t, f.dir)
				if s := v.Status(); s.State != StateDegraded || s.LastError != err.Error() {
					t.Errorf("status %+v", s)
				}
			})
		}
	}
}

// TestExtractLeavesOthersAlone: paths that are not an artifact in the folder are refused, and nothing is touched.
func TestExtractLeavesOthersAlone(t *testing.T) {
	outside := t.TempDir()
	for _, path := range []string{
		filepath.Join(outside, "x.safetensors"), "../x.safetensors", "DIR/../x.safetensors", "DIR/x.bin", "DIR/sub/x.safetensors", "sub/x.safetensors", "/",
	} {
		t.Run(path, func(t *testing.T) {
			f := newFake(t, func(w http.ResponseWriter, _ *http.Request, f *fakeVLLM) {
				reply(w, strings.Replace(path, "DIR", f.dir, 1))
			})
			if err := os.Mkdir(filepath.Join(f.dir, "sub"), 0o700); err != nil {
				t.Fatal(err)
			}
			kept := []string{
				filepath.Join(outside, "x.safetensors"), filepath.Join(filepath.Dir(f.dir), "x.safetensors"),
				filepath.Join(f.dir, "x.bin"), filepath.Join(f.dir, "x.safetensors"), filepath.Join(f.dir, "sub/x.safetensors"),
			}
			for _, file := range kept {
				writeFile(t, file, twoTokens())
				writeFile(t, file+lockSuffix, nil)
			}
			_, err := newProbe(t, f.config()).Extract(t.Context(), Request{Task: secretTask})
			checkError(t, err, ErrArtifact, "path")
			for _, file := range kept {
				for _, name := range []string{file, file + lockSuffix} {
					if _, err := os.Stat(name); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// TestExtractDirectoryIsLeft: a directory with an artifact's name is nobody's artifact.
func TestExtractDirectoryIsLeft(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request, _ *fakeVLLM) { reply(w, "x.safetensors") })
	if err := os.Mkdir(filepath.Join(f.dir, "x.safetensors"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := newProbe(t, f.config()).Extract(t.Context(), Request{})
	checkError(t, err, ErrArtifact, "not a regular file")
	wantNames(t, f.dir, "x.safetensors")
}

func TestExtractLockHeldThenReleased(t *testing.T) {
	var writer sync.WaitGroup
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		path := f.path(r)
		release := holdLock(t, path+lockSuffix)
		writer.Add(1)
		time.AfterFunc(20*time.Millisecond, func() {
			defer writer.Done()
			writeFile(t, path, twoTokens())
			release()
		})
		reply(w, path)
	})
	defer writer.Wait()
	cfg := f.config()
	cfg.ArtifactTimeout = 5 * time.Second
	if _, err := newProbe(t, cfg).Extract(t.Context(), Request{}); err != nil {
		t.Fatal(err)
	}
	wantNames(t, f.dir)
}

func TestExtractLockNeverReleased(t *testing.T) {
	var path string
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		path = f.path(r)
		holdLock(t, path+lockSuffix)
		serveFile(twoTokens())(w, r, f)
	})
	cfg := f.config()
	cfg.Breaker.Failures = 1
	v := newProbe(t, cfg)
	_, err := v.Extract(t.Context(), Request{Task: secretTask})
	checkError(t, err, ErrTimeout, "lock")
	wantNames(t, f.dir, filepath.Base(path), filepath.Base(path)+lockSuffix)
	if v.Status().State == StateDown {
		t.Error("a slow writer opened the circuit: only HTTP timeouts count")
	}
}

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

// recorder is an observer that remembers.
type recorder struct {
	NopObserver
	mu        sync.Mutex
	stages    []string
	artifacts []ArtifactReport
	sweeps    []SweepReport
	inject    func(context.Context, http.Header)
}

func (o *recorder) Stage(ctx context.Context, s Stage) (context.Context, func(error)) {
	return ctx, func(err error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.stages = append(o.stages, fmt.Sprintf("%v:%v", s, err == nil))
	}
}

func (o *recorder) Artifact(_ context.Context, r ArtifactReport) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.artifacts = append(o.artifacts, r)
}

func (o *recorder) Swept(r SweepReport) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sweeps = append(o.sweeps, r)
}

// sweepCount returns how many sweeps were reported so far.
func (o *recorder) sweepCount() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.sweeps)
}

func (o *recorder) Inject(ctx context.Context, h http.Header) {
	if o.inject != nil {
		o.inject(ctx, h)
	}
}

func TestObserver(t *testing.T) {
	var header http.Header
	content := twoTokens()
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		header = r.Header
		serveFile(content)(w, r, f)
	})
	o := &recorder{inject: func(_ context.Context, h http.Header) { h.Set("Traceparent", "00-1") }}
	v := newProbe(t, f.config(), WithObserver(o))
	if _, err := v.Extract(t.Context(), Request{}); err != nil {
		t.Fatal(err)
	}
	_, err := v.Extract(t.Context(), Request{Shape: Shape{9, 9}})
	checkError(t, err, ErrArtifact, "checkpoint expects 9 of 9")
	if header.Get("Traceparent") != "00-1" {
		t.Error("the observer's header was not sent")
	}
	want := []string{"queue:true", "http:true", "artifact:true", "pool:true", "queue:true", "http:true", "artifact:true", "pool:false"}
	if !slices.Equal(o.stages, want) {
		t.Errorf("stages %v", o.stages)
	}
	reports := []ArtifactReport{
		{Bytes: int64(len(content)), DType: "F32", Tokens: 2}, {Bytes: int64(len(content)), DType: "F32"},
	}
	if !slices.Equal(o.artifacts, reports) {
		t.Errorf("artifacts %+v", o.artifacts)
	}
}

// TestUnremovableIsLoggedOnce: a decision does not notice, the operator does, once.
func TestUnremovableIsLoggedOnce(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may remove everything")
	}
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		_ = os.Chmod(f.dir, 0o700)
		serveFile(twoTokens())(w, r, f)
		_ = os.Chmod(f.dir, 0o500)
	})
	defer func() { _ = os.Chmod(f.dir, 0o700) }()
	var log bytes.Buffer
	o := &recorder{}
	v := newProbe(t, f.config(), WithObserver(o), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	for range 3 {
		if _, err := v.Extract(t.Context(), Request{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "cannot remove"); n != 1 {
		t.Errorf("logged %d times: %s", n, &log)
	}
	if len(o.artifacts) != 3 || !o.artifacts[2].Left {
		t.Errorf("artifacts %+v", o.artifacts)
	}
}

// TestRemovalFailuresAreLoggedOnce does the same with what not even root can remove.
func TestRemovalFailuresAreLoggedOnce(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request, _ *fakeVLLM) { reply(w, "x.safetensors") })
	if err := os.Mkdir(filepath.Join(f.dir, "x.safetensors"), 0o700); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	v := newProbe(t, f.config(), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	for range 3 {
		_, err := v.Extract(t.Context(), Request{})
		checkError(t, err, ErrArtifact, "")
	}
	if n := strings.Count(log.String(), "cannot remove"); n != 1 {
		t.Errorf("logged %d times: %s", n, &log)
	}
}

// TestMemory extracts an artifact of 2 GiB, a file of holes, and watches what memory the process holds. Its one layer
// slot is slot 0, where zeros can be allowed. Under the race detector the file is 64 MiB.
func TestMemory(t *testing.T) {
	const hidden = 4096
	tokens := 1 << 18
	if raceDetector || testing.Short() {
		tokens /= 32
	}
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		header := fmt.Sprintf(`{"hidden_states":{"dtype":"BF16","shape":[%d,1,%d],"data_offsets":[0,%d]}}`, tokens, hidden, 2*tokens*hidden)
		path := f.path(r)
		writeFile(t, path, append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...))
		if err := os.Truncate(path, int64(lengthBytes+len(header)+2*tokens*hidden)); err != nil {
			t.Errorf("no sparse files here: %v", err)
		}
		reply(w, path)
	})
	cfg := f.config()
	cfg.ZeroVectors = ZeroAllowSlot0
	cfg.ArtifactTimeout = time.Minute
	cfg.Sweep.MinAge = time.Hour
	v := newProbe(t, cfg)

	held := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.Sys - m.HeapReleased)
	}
	runtime.GC()
	before, most := held(), int64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				most = max(most, held())
			}
		}
	}()
	got, err := v.Extract(t.Context(), Request{})
	close(stop)
	<-stopped
	if err != nil || got.Tokens != tokens {
		t.Fatalf("%d tokens, error %v", got.Tokens, err)
	}
	const limit = 16 << 20
	if most-before > limit {
		t.Errorf("memory grew by %d bytes, want at most %d", most-before, limit)
	}
	t.Logf("%d MiB in %v, memory grew by %d KiB", 2*hidden*tokens>>20, got.Artifact, (most-before)>>10)
	wantNames(t, f.dir)
}
