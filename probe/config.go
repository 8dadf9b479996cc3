package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// Config says which vLLM a probe asks and how patient it is.
type Config struct {
	Name               string         // for logs
	Model              string         // the served model's name, sent to vLLM
	ChatTemplateKwargs map[string]any // sent as chat_template_kwargs when not empty
	Endpoint           Endpoint
	APIKey             string // sent as a bearer token when not empty

	MaxInFlight int // extractions between sending and clean-up at a time
	MaxQueue    int // extractions waiting for a slot; 0: none may wait

	QueueTimeout    time.Duration // longest wait for a slot
	RequestTimeout  time.Duration // from sending to the whole answer
	ArtifactTimeout time.Duration // from the answer to the pooled features

	MaxArtifactBytes int64 // a larger artifact is refused unread
	// MaxOutstandingBytes bounds the artifacts in the folder at a time, by estimate; 0: half of what its file system
	// holds (a share of that, if endpoints of a [Group] share it), and at most 32 GiB.
	MaxOutstandingBytes int64

	HealthInterval time.Duration // between two health checks of vLLM; 0: none
	ZeroVectors    ZeroVectors
	Breaker        Breaker // also when a [Group] passes an endpoint over
	Sweep          Sweep
}

// Endpoint is one vLLM server and the folder shared with it.
type Endpoint struct {
	BaseURL         string // with the version: http://127.0.0.1:8000/v1
	HiddenStatesDir string // vLLM's shared_storage_path, as this process sees it
	ReportedDir     string // the same folder as vLLM sees it, in the paths it reports; empty: HiddenStatesDir
}

// ZeroVectors says what becomes of an artifact in which all values of one token in one layer slot are zero. Some vLLM
// releases write zeros instead of hidden states, and say nothing (vLLM #46301, #51328).
type ZeroVectors int

// The treatments of all-zero vectors.
const (
	ZeroRefuse     ZeroVectors = iota // refuse the artifact
	ZeroAllowSlot0                    // allow them in layer slot 0: an embedding of a padding token may be zero
)

// Breaker says when the probe stops asking a vLLM that does not answer.
type Breaker struct {
	Failures int           // failures in a row that open the circuit
	OpenFor  time.Duration // how long nothing is sent before one request tries again
}

// Sweep says how the background sweep looks for files that no request removed.
type Sweep struct {
	Interval time.Duration // between two sweeps
	MinAge   time.Duration // younger files are left; more than any extraction can take
	All      bool          // also artifacts and locks that no Pointsman asked for; only for a dedicated folder
}

// DefaultConfig returns the defaults. Model, BaseURL and HiddenStatesDir have none.
func DefaultConfig() Config {
	return Config{
		MaxInFlight:      32,               // vLLM batches that many short prompts in one step or two
		MaxQueue:         64,               // two more rounds: later than that, the caller's deadline is gone
		QueueTimeout:     2 * time.Second,  // a router that waits longer costs more than it saves
		RequestTimeout:   60 * time.Second, // last resort: closing the connection aborts the request in vLLM
		ArtifactTimeout:  10 * time.Second, // network file systems were seen to stall for seconds
		MaxArtifactBytes: 8 << 30,          // 27 GB/M tokens: one 2048-wide layer of a million, or 40 of 25 thousand
		HealthInterval:   5 * time.Second,
		ZeroVectors:      ZeroRefuse,
		Breaker:          Breaker{Failures: 5, OpenFor: 10 * time.Second},
		Sweep:            Sweep{Interval: time.Minute, MinAge: 5 * time.Minute},
	}
}

// Validate reports everything that is wrong with the configuration, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Model != "", "model: must be set")
	errs = append(errs, c.Endpoint.validate())
	check(!strings.ContainsAny(c.APIKey, "\r\n\x00"), "api key: must not hold line breaks or NUL")
	if _, err := json.Marshal(c.ChatTemplateKwargs); err != nil {
		check(false, "chat_template_kwargs: cannot be written as JSON")
	}
	check(c.MaxInFlight > 0, "max_in_flight: must be positive, is %d", c.MaxInFlight)
	check(c.MaxQueue >= 0, "max_queue: must not be negative, is %d", c.MaxQueue)
	check(c.QueueTimeout > 0, "queue_timeout: must be positive, is %v", c.QueueTimeout)
	check(c.RequestTimeout > 0, "request_timeout: must be positive, is %v", c.RequestTimeout)
	check(c.ArtifactTimeout > 0, "artifact_timeout: must be positive, is %v", c.ArtifactTimeout)
	check(c.MaxArtifactBytes > 0, "max_artifact_bytes: must be positive, is %d", c.MaxArtifactBytes)
	check(c.MaxOutstandingBytes >= 0, "max_outstanding_bytes: must not be negative, is %d", c.MaxOutstandingBytes)
	check(c.HealthInterval >= 0, "health_interval: must not be negative, is %v", c.HealthInterval)
	check(c.ZeroVectors == ZeroRefuse || c.ZeroVectors == ZeroAllowSlot0, "zero_vectors: unknown value %d", c.ZeroVectors)
	check(c.Breaker.Failures > 0, "breaker.failures: must be positive, is %d", c.Breaker.Failures)
	check(c.Breaker.OpenFor > 0, "breaker.open_for: must be positive, is %v", c.Breaker.OpenFor)
	check(c.Sweep.Interval > 0, "sweep.interval: must be positive, is %v", c.Sweep.Interval)
	// A younger file may still belong to a running extraction, here or in another process on the same folder.
	budget := c.QueueTimeout + c.RequestTimeout + c.ArtifactTimeout
	check(c.Sweep.MinAge > budget,
		"sweep.min_age: must be more than queue_timeout + request_timeout + artifact_timeout (%v), is %v", budget, c.Sweep.MinAge)
	return errors.Join(errs...)
}

func (e Endpoint) validate() error {
	var errs []error
	u, err := url.Parse(e.BaseURL)
	switch {
	case e.BaseURL == "":
		errs = append(errs, errors.New("base_url: must be set"))
	case err != nil: // the error quotes the URL, which may hold a password
		errs = append(errs, errors.New("base_url: is not a URL"))
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		errs = append(errs, errors.New("base_url: must be http://HOST… or https://HOST…"))
	case u.User != nil, u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		errs = append(errs, errors.New("base_url: must not hold a user, a query or a fragment"))
	}
	if e.HiddenStatesDir == "" {
		errs = append(errs, errors.New("hidden_states_dir: must be set"))
	}
	if e.ReportedDir != "" && !filepath.IsAbs(e.ReportedDir) {
		errs = append(errs, errors.New("reported_dir: must be an absolute path"))
	}
	return errors.Join(errs...)
}
