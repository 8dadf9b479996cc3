package server

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/pointsman-dev/pointsman/scorer/drift"
	"github.com/pointsman-dev/pointsman/scorer/train"
	"github.com/pointsman-dev/pointsman/server/telemetry"
)

// liveScores compares a route's scores with those its checkpoint was made with, by
// head. A head that has nothing to be compared with is missing.
type liveScores map[string]*drift.Live

// watchScores begins to compare the scores of a route with the distributions in the
// train.json beside its checkpoint. It goes on with what previous, which may be nil,
// has counted of the same checkpoint. An error says why nothing is compared.
func watchScores(r *Route, dir string, previous *Route) (liveScores, error) {
	record, err := train.ReadRecord(dir)
	if err != nil {
		return nil, err
	}
	if record.Checkpoint != r.Checkpoint.Digest() {
		return nil, fmt.Errorf("the %s in %s is of another checkpoint, %s", train.RecordFile, dir, record.Checkpoint)
	}
	live := liveScores{}
	for _, h := range record.Heads {
		if !slices.ContainsFunc(r.Targets, func(t *Target) bool { return t.Head == h.Head }) {
			continue
		}
		if h.Scores.Count < drift.Least {
			return nil, fmt.Errorf("the %s in %s has %d scores of %q, too few to compare with: at least %d",
				train.RecordFile, dir, h.Scores.Count, h.Head, drift.Least)
		}
		live[h.Head] = drift.NewLive(h.Scores, time.Now())
		if previous == nil || previous.Checkpoint.Digest() != r.Checkpoint.Digest() {
			continue
		}
		if known := previous.live[h.Head]; known != nil && reflect.DeepEqual(known.Expected(), h.Scores) {
			live[h.Head] = known
		}
	}
	return live, nil
}

// add counts the scores of a decision of the route's own checkpoint: of every decision,
// cached or not, so that tasks that return weigh as they do in the traffic.
func (s liveScores) add(l *Learned) {
	if len(s) == 0 {
		return
	}
	now := time.Now()
	for i, target := range l.Targets {
		if live := s[target.Head]; live != nil {
			live.Add(l.Choice.Scores[i].Probability, now)
		}
	}
}

// shifts says how far the scores have moved, as far as there are enough.
func (s liveScores) shifts() []telemetry.HeadShift {
	var all []telemetry.HeadShift
	now := time.Now()
	for _, head := range slices.Sorted(maps.Keys(s)) {
		if psi, ok := s[head].PSI(now); ok {
			all = append(all, telemetry.HeadShift{Head: head, PSI: psi})
		}
	}
	return all
}
