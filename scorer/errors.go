package scorer

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrShape reports values whose number does not fit what they are used
	// with: features for another checkpoint, probabilities of another size, a
	// head that does not exist.
	ErrShape = errors.New("wrong shape")
	// ErrNonFinite reports a NaN or an infinity, in the features or in what was
	// computed from them.
	ErrNonFinite = errors.New("not finite")
	// ErrRange reports a number outside the interval it must lie in.
	ErrRange = errors.New("out of range")
)

// CheckpointError says which part of a checkpoint is at fault.
type CheckpointError struct {
	File    string // name within the folder
	Part    string // field or tensor; empty: the file as a whole
	Problem string // what was found and what is expected
	Err     error  // the cause, if another package reported it
}

func (e *CheckpointError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	b.WriteString(": ")
	if e.Part != "" {
		b.WriteString(e.Part)
		b.WriteByte(' ')
	}
	b.WriteString(e.Problem)
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(clip(e.Err.Error()))
	}
	return b.String()
}

func (e *CheckpointError) Unwrap() error { return e.Err }

// maxQuoted bounds what an error repeats of a file: long enough to recognise
// the place, short enough that a hostile file cannot fill a log.
const maxQuoted = 200

func clip(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoted], "") + "..."
}

func fieldError(field string, value any, want string) error {
	return &CheckpointError{
		File:    manifestFile,
		Part:    field,
		Problem: "is " + clip(fmt.Sprint(value)) + ", want " + want,
	}
}
