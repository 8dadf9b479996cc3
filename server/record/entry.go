package record

import "time"

// Entry is one line. Fields are only ever added; README.md documents them.
type Entry struct {
	Time       time.Time `json:"time"`
	DecisionID string    `json:"decision_id"`
	RequestID  string    `json:"request_id,omitempty"`
	Route      string    `json:"route"`
	// Mode is SERVE or SHADOW.
	Mode   string `json:"mode"`
	Target string `json:"target"`
	// Tier is STRONG or WEAK; empty for a target without one.
	Tier  string `json:"tier,omitempty"`
	Basis string `json:"basis"`
	// Reason is set when Basis is BACKUP or FALLBACK.
	Reason string `json:"reason,omitempty"`
	// Origin is where the scores came from; empty without scores.
	Origin string `json:"origin,omitempty"`
	// One of QualityWeight and Tolerance is the trade-off that was used.
	QualityWeight *float64 `json:"quality_weight,omitempty"`
	Tolerance     *float64 `json:"tolerance,omitempty"`
	// Targets are those that were allowed, in the route's order, which breaks ties.
	// Empty without scores.
	Targets []Target `json:"targets,omitempty"`
	// Confidence is nil for one member, and without scores.
	Confidence *float64 `json:"confidence,omitempty"`
	// Margin is nil without scores.
	Margin *float64 `json:"margin,omitempty"`
	// ShadowTarget is what would have been chosen, in shadow mode.
	ShadowTarget     string `json:"shadow_target,omitempty"`
	CheckpointDigest string `json:"checkpoint_digest,omitempty"`
	// TaskDigest is [Writer.Digest] of the task; empty if no task was looked at.
	TaskDigest string `json:"task_digest,omitempty"`
	TaskTokens int    `json:"task_tokens,omitempty"`
	Timing     Timing `json:"timing"`
}

// Target is one target with its scores.
type Target struct {
	Target      string  `json:"target"`
	Head        string  `json:"head"`
	Probability float64 `json:"probability"`
	// Stddev is nil for one member.
	Stddev  *float64 `json:"stddev,omitempty"`
	Cost    float64  `json:"cost"`
	Utility float64  `json:"utility"`
}

// Timing is where the time went, in seconds. A stage that did not happen in this call
// is nil.
type Timing struct {
	Total    float64  `json:"total"`
	Queue    *float64 `json:"queue,omitempty"`
	Wait     *float64 `json:"wait,omitempty"`
	Probe    *float64 `json:"probe,omitempty"`
	Artifact *float64 `json:"artifact,omitempty"`
	Score    *float64 `json:"score,omitempty"`
}
