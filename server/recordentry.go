package server

import (
	"time"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/server/record"
)

// recordEntry is a decision as the decision record has it.
func recordEntry(dec *Decision, requestID, taskDigest string) record.Entry {
	e := record.Entry{
		Time:       time.Now().UTC(),
		DecisionID: dec.ID,
		RequestID:  requestID,
		Route:      dec.Route.Name,
		Mode:       enumName(dec.Route.Mode),
		Target:     dec.Target.Name,
		Basis:      enumName(dec.Basis),
		TaskDigest: taskDigest,
		Timing: record.Timing{
			Total:    dec.Timing.Total.Seconds(),
			Queue:    inSeconds(dec.Timing.Queue),
			Wait:     inSeconds(dec.Timing.Wait),
			Probe:    inSeconds(dec.Timing.Probe),
			Artifact: inSeconds(dec.Timing.Artifact),
			Score:    inSeconds(dec.Timing.Score),
		},
	}
	if dec.Target.Tier != pointsmanv1.Tier_TIER_UNSPECIFIED {
		e.Tier = enumName(dec.Target.Tier)
	}
	if dec.Reason != reasonNone {
		e.Reason = enumName(dec.Reason)
	}
	if dec.Shadow != nil {
		e.ShadowTarget = dec.Shadow.Name
	}
	if w, ok := dec.TradeOff.QualityWeight(); ok {
		e.QualityWeight = &w
	} else if t, ok := dec.TradeOff.Tolerance(); ok {
		e.Tolerance = &t
	}
	learned := dec.Learned
	if learned == nil {
		return e
	}
	e.Origin = enumName(originToProto(learned.Origin))
	e.Confidence, e.Margin = learned.Choice.Confidence, &learned.Choice.Margin
	e.CheckpointDigest = learned.Scores.Digest
	e.TaskTokens = learned.Scores.Tokens
	e.Targets = make([]record.Target, len(learned.Targets))
	for i, target := range learned.Targets {
		s := &learned.Choice.Scores[i]
		e.Targets[i] = record.Target{
			Target: target.Name, Head: target.Head,
			Probability: s.Probability, Stddev: s.Stddev, Cost: target.Cost, Utility: s.Utility,
		}
	}
	return e
}

// inSeconds is a stage's time in seconds, nil if it did not happen.
func inSeconds(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	return new(d.Seconds())
}
