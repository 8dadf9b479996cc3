package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"
)

// The ways an extraction fails, to be matched with errors.Is. Every error of [VLLM.Extract] is one of these, except
// that a request which was still queued when its context ended returns that context's cause.
var (
	// ErrOverloaded: the queue was full, or no slot came free within the queue timeout.
	ErrOverloaded = errors.New("probe overloaded")
	// ErrCircuitOpen: vLLM was unavailable several times in a row, and it is too soon to try again.
	ErrCircuitOpen = errors.New("probe circuit open")
	// ErrTimeout: no HTTP answer in time, or the artifact's lock never came free.
	ErrTimeout = errors.New("probe timeout")
	// ErrUnavailable: no connection, or status 5xx, 408, 425 or 429.
	ErrUnavailable = errors.New("probe unavailable")
	// ErrProtocol: the answer is not what vLLM with the hidden-state connector sends: a redirect, not JSON, no path.
	ErrProtocol = errors.New("probe protocol error")
	// ErrRejected: vLLM refused the request (any other 4xx), for example a prompt longer than the model's context.
	ErrRejected = errors.New("probe request rejected")
	// ErrArtifact: the artifact is missing, outside its folder, malformed, of the wrong shape or of unusable values.
	ErrArtifact = errors.New("probe artifact unusable")
	// ErrClosed: the probe is closed, or was closed before the extraction could end.
	ErrClosed = errors.New("probe closed")
)

// statusError returns the error for an HTTP status that is not 200.
func statusError(status int, detail string) error {
	kind := ErrRejected
	switch {
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		kind = ErrUnavailable
	case status < 400:
		// A redirect is never followed: it would carry the task and the key to a place nobody configured.
		kind = ErrProtocol
	}
	return fmt.Errorf("%w: vLLM answered status %d%s", kind, status, detail)
}

// artifactError wraps a file trouble. The path of an *fs.PathError is left out: vLLM chose the name.
func artifactError(doing string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrArtifact, doing, bare(err))
}

// bare takes the path off an error of the file system.
func bare(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
