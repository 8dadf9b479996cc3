package eval

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// week writes a shadow route's decision record for a week of traffic, with tasks
// that return, and the outcomes of each answer; known says which outcomes are told.
// It returns what the tolerance really saves and gives up, by the true
// probabilities.
func week(seed uint64, n int, tolerance float64, known func(i, head int) bool) (record, outcomes string, saving, loss float64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	var decisions, results strings.Builder
	type task struct{ strong, weak float64 }
	var tasks []task
	strongCalls := 0.0
	for i := range n {
		at := rng.IntN(n)
		if at >= len(tasks) {
			at = len(tasks)
			strong := 0.5 + 0.5*rng.Float64()
			tasks = append(tasks, task{strong, strong * rng.Float64()})
		}
		x := tasks[at]
		entry := map[string]any{
			"time": fmt.Sprintf("2026-01-%02dT00:00:00Z", 5+i*7/n), "decision_id": fmt.Sprint("d", i), "route": "main", "mode": "SHADOW",
			"target": "big", "basis": "SHADOW", "shadow_target": "cheap", "task_digest": fmt.Sprint("t", at), "checkpoint_digest": "sha256:x",
			"targets": []map[string]any{
				{"target": "big", "head": "model-b", "probability": x.strong, "stddev": 0.01, "cost": 2.0, "utility": x.strong},
				{"target": "cheap", "head": "model-c", "probability": x.weak, "cost": 0.5, "utility": x.weak},
			},
		}
		text, _ := json.Marshal(entry)
		decisions.Write(append(text, '\n'))
		result := map[string]any{}
		for h, p := range []float64{x.strong, x.weak} {
			right := 0
			if rng.Float64() < p {
				right = 1
			}
			if known(i, h) {
				result[[]string{"big", "model-c"}[h]] = right // a target's name, or a head's
			}
		}
		if len(result) > 0 {
			text, _ = json.Marshal(map[string]any{"decision_id": fmt.Sprint("d", i), "labels": result})
			results.Write(append(text, '\n'))
		}
		if ChoosesStrong(scorer.Tolerance(tolerance), x.strong, x.weak) {
			strongCalls++
		} else {
			loss += (x.strong - x.weak) / float64(n)
		}
	}
	share := strongCalls / float64(n)
	return decisions.String(), results.String(), 1 - (0.5+share*1.5)/2, loss
}

func replay(t *testing.T, record, outcomes string) *Sample {
	t.Helper()
	decisions, err := ReadDecisions(strings.NewReader(record))
	if err != nil {
		t.Fatal(err)
	}
	known, err := ReadOutcomes(strings.NewReader(outcomes))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Replay(decisions, known, ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What would tolerance 0.2 have saved, at what quality, plus or minus what? With
// every outcome, and with those of the served target alone, as a shadow route has
// them.
func TestReplayAWeekOfShadowTraffic(t *testing.T) {
	if raceEnabled {
		t.Skip("takes a minute under the race detector, and starts no goroutine")
	}
	const tolerance = 0.2
	for _, c := range []struct {
		name  string
		known func(i, head int) bool
	}{
		{"all outcomes", func(int, int) bool { return true }},
		{"of the served target", func(_, head int) bool { return head == 0 }},
		{"of some", func(i, _ int) bool { return i%3 == 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			covered := 0
			for seed := range uint64(8) {
				record, outcomes, saving, loss := week(seed, 800, tolerance, c.known)
				s := replay(t, record, outcomes)
				report, err := MeasurePolicies(s, Options{Resamples: 200, Policies: []scorer.TradeOff{scorer.Tolerance(tolerance)}})
				if err != nil {
					t.Fatal(err)
				}
				p := report.Policies[0]
				if math.Abs(p.Saving.Value-saving) > 1e-9 || p.Saving.High-p.Saving.Low < 1e-3 {
					t.Errorf("saving %+v, want %v", p.Saving, saving)
				}
				if p.Loss.High-p.Loss.Low > 0.1 || math.Abs(p.Loss.Value-loss) > 0.05 {
					t.Errorf("quality given up %+v, want %v", p.Loss, loss)
				}
				if p.Loss.Low <= loss && loss <= p.Loss.High {
					covered++
				}
			}
			if covered < 6 { // of 8, at 95 % each
				t.Errorf("the interval holds the truth in %d of 8 weeks", covered)
			}
		})
	}
}

func TestReplayMeasuresRoutingWithBothOutcomes(t *testing.T) {
	record, outcomes, _, _ := week(1, 500, 0.2, func(int, int) bool { return true })
	report, err := Measure(replay(t, record, outcomes), Options{Resamples: 20})
	if err != nil {
		t.Fatal(err)
	}
	if report.Strong != "big" || report.Weak != "cheap" || report.StrongCost != 2 || report.WeakCost != 0.5 || report.Paired != 500 {
		t.Errorf("%+v", report)
	}
	record, outcomes, _, _ = week(1, 500, 0.2, func(_, head int) bool { return head == 0 })
	if _, err := Measure(replay(t, record, outcomes), Options{Resamples: 20}); !errors.Is(err, ErrFewLabels) {
		t.Errorf("with one outcome: %v", err)
	}
}

func TestOutcomesByTask(t *testing.T) {
	record, _, _, _ := week(1, 100, 0.2, func(int, int) bool { return false }) //nolint:dogsled // the record alone
	s := replay(t, record, `{"task_digest":"t0","labels":{"big":1,"cheap":0}}`)
	found := 0
	for i, l := range s.Labels[0] {
		if l != labels.Missing {
			found++
			if s.Tasks[i] != s.Tasks[0] || s.Labels[1][i] != labels.Wrong {
				t.Errorf("row %d has an outcome of another task", i)
			}
		}
	}
	if found == 0 {
		t.Error("no outcome was found")
	}
}

func TestReadDecisions(t *testing.T) {
	const good = `{"decision_id":"a","route":"r","targets":[{"target":"x"},{"target":"y"}]}` + "\n"
	for _, c := range []struct {
		name, text string
		want       int
		fault      string
	}{
		{"empty", "", 0, ""},
		{"unknown fields", `{"later":1,"route":"r"}`, 1, ""},
		{"cut off at the end", good + good + `{"decision_id":"b"`, 2, ""},
		{"broken before the end", good + "private text\n" + good, 0, "line 2 that are not entries"},
		{"not a record at all", "private text\n", 0, "line 1"},
	} {
		got, err := ReadDecisions(strings.NewReader(c.text))
		if len(got) != c.want || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %d decisions, %v", c.name, len(got), err)
		}
		if err != nil && strings.Contains(err.Error(), "private") {
			t.Errorf("%s: the message repeats the file", c.name)
		}
	}
}

func TestReplayRefuses(t *testing.T) {
	for _, c := range []struct {
		name, record, want string
		options            ReplayOptions
	}{
		{"no scores", `{"route":"r","basis":"FALLBACK"}`, "no decision of route \"r\" has scores", ReplayOptions{}},
		{"two routes", `{"route":"r"}` + "\n" + `{"route":"s"}`, "2 routes", ReplayOptions{}},
		{"unknown route", `{"route":"r"}`, "no decision of route", ReplayOptions{Route: "s"}},
		{"unknown target", `{"route":"r","targets":[{"target":"a","cost":1},{"target":"b"}]}`, "no decision", ReplayOptions{Strong: "c"}},
		{"nothing", "", "0 routes", ReplayOptions{}},
	} {
		decisions, err := ReadDecisions(strings.NewReader(c.record))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Replay(decisions, nil, c.options); !errors.Is(err, ErrSample) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, outcomes := range []string{"private", `{"labels":{"a":1}}`, `{"decision_id":"d","labels":{"a":7}}`, `{"decision_id":"d","labels":{"a":1}}` + "\n" + `{"decision_id":"d","labels":{"a":0}}`} {
		if _, err := ReadOutcomes(strings.NewReader(outcomes)); !errors.Is(err, ErrSample) || strings.Contains(err.Error(), "private") {
			t.Errorf("%q: %v", outcomes, err)
		}
	}
}
