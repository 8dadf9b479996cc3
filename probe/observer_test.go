package probe

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

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
