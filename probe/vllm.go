package probe

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// VLLM is a probe backed by one vLLM server.
type VLLM struct{}

// Option changes how a probe is built.
type Option func(*VLLM)

// WithObserver lets o see what happens inside the probe.
func WithObserver(o Observer) Option { return func(*VLLM) {} }

// WithLogger sends the probe's few log lines to l; without it there are none.
func WithLogger(l *slog.Logger) Option { return func(*VLLM) {} }

// New builds a probe and starts its background sweep. Close ends it.
func New(cfg Config, opts ...Option) (*VLLM, error) { return &VLLM{}, cfg.Validate() }

// Extract asks vLLM for the hidden states of the task and returns their token means.
func (v *VLLM) Extract(ctx context.Context, req Request) (Extraction, error) {
	return Extraction{}, errors.New("not built yet")
}

// Status returns a snapshot of the probe.
func (v *VLLM) Status() Status { return Status{} }

// Close stops the probe.
func (v *VLLM) Close(ctx context.Context) error { return nil }

// Report is what Check found.
type Report struct {
	Extraction
	ArtifactReport
	NamedByRequest bool     // the artifact's name holds our request id, so that the sweep can tell it is ours
	Foreign        int      // artifacts and locks in the folder that no Pointsman asked for
	Warnings       []string // about the folder
	Total          time.Duration
}

// Check runs one canary through the path of Extract.
func (v *VLLM) Check(ctx context.Context, prompt string, shape Shape) (Report, error) {
	return Report{}, errors.New("not built yet")
}

// Warnings says what is wrong with the folder.
func (v *VLLM) Warnings() []string { return nil }
