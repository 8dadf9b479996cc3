package server

import (
	"time"

	"github.com/pointsman-dev/pointsman/cache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/scorer"
)

// Request asks the [Decider] for one decision. It has been validated by the door
// it came through.
type Request struct {
	// ID will be the decision's: a UUIDv7.
	ID string
	// Route names the route; empty means the default.
	Route string
	// Input is what the decision is about.
	Input Input
	// TradeOff overrides the route's policy; nil leaves it.
	TradeOff *scorer.TradeOff
	// CachePolicy says how the caches are used.
	CachePolicy cache.Policy
	// Namespace separates tenants: scores are shared only within it.
	Namespace string
	// AllowedTargets names the targets to choose between; empty means all.
	AllowedTargets []string
	// MaxAge is the oldest acceptable age of cached scores; nil means any.
	MaxAge *time.Duration
	// May is what the caller may override; the configuration may allow less.
	May permission
	// Arrived is when the request came in; timing counts from it.
	Arrived time.Time
	// AnswerBy is when the answer must leave to reach the caller in time. Zero
	// means that the caller has no deadline.
	AnswerBy time.Time
}

// Decision is the answer to a [Request].
type Decision struct {
	ID     string
	Route  *Route
	Target *Target
	Basis  pointsmanv1.Basis
	// Reason is set when Basis is BACKUP or FALLBACK.
	Reason pointsmanv1.FallbackReason
	// TradeOff is the one that was used.
	TradeOff scorer.TradeOff
	// Learned is nil when nothing was learned.
	Learned *Learned
	// Shadow is the target that would have been chosen, in shadow mode.
	Shadow *Target
	Timing Timing
}

// Learned is what the ensemble and the policy had to say.
type Learned struct {
	Scores Scores
	// Computed is when the scores were computed, Origin where they came from.
	Computed time.Time
	Origin   cache.Origin
	// Targets are those that were allowed; Choice.Scores stands in their order.
	Targets []*Target
	Choice  scorer.Choice
}

// Scores is what is cached of a task: what the ensemble said of it. A decision
// is made from it anew for every request.
type Scores struct {
	Probabilities scorer.Probabilities
	// Tokens is how many tokens the probe model saw.
	Tokens int
	// Digest is the digest of the checkpoint that scored.
	Digest string
}

// Timing says where the time of one call went. A nil stage did not happen in it.
type Timing struct {
	Total                               time.Duration
	Queue, Wait, Probe, Artifact, Score *time.Duration
}

// add adds what another source took in the same call.
func (t *Timing) add(other Timing) {
	sum := func(to **time.Duration, more *time.Duration) {
		switch {
		case more == nil:
		case *to == nil:
			*to = more
		default:
			*to = new(**to + *more)
		}
	}
	sum(&t.Queue, other.Queue)
	sum(&t.Wait, other.Wait)
	sum(&t.Probe, other.Probe)
	sum(&t.Artifact, other.Artifact)
	sum(&t.Score, other.Score)
}
