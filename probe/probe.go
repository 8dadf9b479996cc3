// Package probe turns a task's text into one feature vector: the mean, over the tokens of the prompt, of the hidden
// states that a vLLM server computed while it read that prompt.
//
// [VLLM] is its main type. One call of [VLLM.Extract] waits for a place in the gate, sends the task as a chat of one
// user message, waits for the artifact (the file in which vLLM leaves the hidden states), pools it as a stream, and
// removes it. The package knows vLLM's HTTP contract, its artifact and lock files, and nothing of checkpoints, scores,
// caches or decisions.
//
// No error and no log line of this package holds any text of a task, a token, a hidden state, a key, a file name that
// vLLM reported, or free text that it sent.
package probe

import (
	"fmt"
	"time"
)

// Request is what one extraction is about.
type Request struct {
	Task      string // sent as it is, as the only user message
	CacheSalt string // isolates vLLM's prefix cache; empty: not sent
	Shape     Shape  // what the checkpoint expects; the zero value accepts any
}

// Shape is the shape of the hidden states of one token: Layers slots of HiddenSize values.
type Shape struct {
	Layers     int
	HiddenSize int
}

// Features is one pooled feature vector.
type Features struct {
	// Values holds the token means, layer-major: Values[layer*HiddenSize+h], Layers*HiddenSize of them.
	Values []float32
	Shape
	Tokens int // tokens of the prompt that were averaged
}

// Extraction is the result of [VLLM.Extract]: the features, and where the time went.
type Extraction struct {
	Features
	Queue    time.Duration // waiting in the gate
	HTTP     time.Duration // from sending to vLLM's whole answer
	Artifact time.Duration // from the answer to the pooled features
}

// State is a probe's health as its own traffic shows it; nothing is sent to find out.
type State int

// The states of a probe.
const (
	StateReady    State = iota // the last extraction was good, or there was none yet
	StateDegraded              // the last extraction failed, or the circuit breaker is trying again
	StateDown                  // the circuit breaker is open: nothing is sent
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case StateReady:
		return "ready"
	case StateDegraded:
		return "degraded"
	case StateDown:
		return "down"
	default:
		return fmt.Sprintf("state(%d)", int(s))
	}
}

// Status is a snapshot of a probe.
type Status struct {
	State       State
	InFlight    int           // extractions holding a slot
	Queued      int           // extractions waiting for one
	Capacity    int           // slots
	Typical     time.Duration // typical time of a good extraction, without the queue; 0: none yet
	LastError   string        // the last failure, empty when the last extraction was good; safe to show
	LastSuccess time.Time     // zero: none yet
}
