package vllmsim

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// DType is the safetensors name of the number format of the hidden states.
// The empty value means [BF16].
type DType string

// The formats vLLM's cache-only attention backend supports.
const (
	BF16 DType = "BF16"
	F16  DType = "F16"
	F32  DType = "F32"
)

// orDefault is d, or BF16 where it is empty.
func (d DType) orDefault() DType {
	if d == "" {
		return BF16
	}
	return d
}

// size is the width of one value in bytes; 0 for an unknown format.
func (d DType) size() int {
	switch d {
	case BF16, F16:
		return 2
	case F32:
		return 4
	default:
		return 0
	}
}

// defaultMaxModelLen is the context of Qwen3-8B, the model the protocol is
// most often run with.
const defaultMaxModelLen = 40960

// Config describes the server that is played.
type Config struct {
	// Dir is where artifacts are written; it is made when the first one is.
	Dir string
	// ReportedDir is that folder as the server's answers call it, for a client
	// in another container. Empty: Dir, made absolute.
	ReportedDir string

	// Model is the served model's name; a request for another one gets 404.
	Model string
	// MaxModelLen is the context in tokens, prompt and output together.
	// 0: 40960.
	MaxModelLen int
	// Layers and HiddenSize shape the artifact: [tokens, Layers, HiddenSize].
	Layers, HiddenSize int
	// DType is the format of the hidden states. Empty: BF16.
	DType DType

	// Regime is the version of the protocol. Zero: RegimeC.
	Regime Regime
	// Latency passes between scheduling a request and answering it.
	Latency time.Duration
	// WriteDelay passes between the answer and the writing of the file in
	// regimes B and C. Regime A writes before it answers and has no use for it.
	WriteDelay time.Duration
	// MaxConcurrent is how many requests are scheduled at a time; the others
	// wait, without a lock, as in vLLM's queue. 0: any number.
	MaxConcurrent int

	// APIKey guards everything below /v1. Empty: no key is asked for.
	APIKey string
	// NoRandomSuffix leaves the 8 random characters out of the artifact's name
	// (VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1).
	NoRandomSuffix bool
}

// withDefaults fills what was left empty.
func (c Config) withDefaults() (Config, error) {
	if c.MaxModelLen == 0 {
		c.MaxModelLen = defaultMaxModelLen
	}
	c.DType = c.DType.orDefault()
	if c.Regime == 0 {
		c.Regime = RegimeC
	}
	if c.Dir == "" {
		return c, nil // Validate says so; filepath.Abs would make it the working folder
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("make dir absolute: %w", err)
	}
	c.Dir = dir
	if c.ReportedDir == "" {
		c.ReportedDir = dir
	}
	return c, nil
}

// Validate reports everything that is wrong with the configuration.
func (c Config) Validate() error {
	c, err := c.withDefaults()
	errs := []error{err}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Dir != "", "dir is empty: set the folder artifacts are written to")
	check(c.Model != "", "model is empty: set the served model's name")
	check(strings.TrimSpace(c.APIKey) == c.APIKey, "api key starts or ends with white space")
	check(c.Layers > 0, "layers is %d: must be at least 1", c.Layers)
	check(c.HiddenSize > 0, "hidden size is %d: must be at least 1", c.HiddenSize)
	check(c.MaxModelLen >= 2, "max model len is %d: must be at least 2, one token in and one out", c.MaxModelLen)
	check(c.DType.size() > 0, "dtype is %q: must be BF16, F16 or F32", c.DType)
	check(c.Regime >= RegimeA && c.Regime <= RegimeC, "regime is %d: must be RegimeA, RegimeB or RegimeC", int(c.Regime))
	check(c.Latency >= 0, "latency is %v: must not be negative", c.Latency)
	check(c.WriteDelay >= 0, "write delay is %v: must not be negative", c.WriteDelay)
	check(c.MaxConcurrent >= 0, "max concurrent is %d: must not be negative", c.MaxConcurrent)
	return errors.Join(errs...)
}
