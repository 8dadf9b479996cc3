package cache

import "time"

// Policy says which caches a call may read, join and write.
type Policy uint8

// The policies.
const (
	Default      Policy = iota // reads, joins and writes
	Bypass                     // own computation: reads nothing, is joined by nobody, writes nothing
	Refresh                    // reads nothing, joins only another Refresh, writes
	OnlyIfCached               // reads, and neither joins nor computes
)

func (p Policy) reads() bool    { return p == Default || p == OnlyIfCached }
func (p Policy) writes() bool   { return p != Bypass }
func (p Policy) computes() bool { return p != OnlyIfCached }

// Reach says how far a call may go for its value. Callers short of time use it to take what is at hand and start nothing.
type Reach uint8

// The reaches, each containing the ones after it.
const (
	ReachCompute Reach = iota // may start a computation
	ReachJoin                 // may read both caches and join a computation running in this process
	ReachLocal                // may look in the local cache
)

// Options are those of one call. The zero value is the ordinary one.
type Options struct {
	Policy Policy
	Reach  Reach
	// MaxAge is the oldest acceptable value at the time of the call; nil accepts any that a cache still holds. An older one is a
	// miss in every layer. A computation still running is always young enough.
	MaxAge *time.Duration
	// Checkpoint is the digest of what makes the value. It is written beside a shared value and checked when one is read.
	Checkpoint string
	// Source names what computes the value (a probe), for Ladder.ReleaseLeases.
	Source string
	// ComputeTimeout bounds the computation that this call starts, how long the lease on it is renewed, and how long this call's
	// process waits for another's; 0: Config.ComputeTimeout. Whoever joins a computation of this process joins its limit too.
	ComputeTimeout time.Duration
}

// Entry is a value and when its computation ended. Its age counts from then in every layer.
type Entry[V any] struct {
	Value    V
	Computed time.Time
}

// Origin says where a call's value came from.
type Origin uint8

// The origins.
const (
	Computed     Origin = iota // by this call
	Local                      // the local cache
	Shared                     // the shared cache
	JoinedLocal                // a computation of this process that another call had started
	JoinedShared               // a computation of another process that this call waited for
)

// Result is what a call got.
type Result[V any] struct {
	Entry[V]
	Origin Origin
	Wait   time.Duration // spent waiting for another's computation; 0 if this call did not wait
}
