package eval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/pointsman-dev/pointsman/scorer/labels"
)

const maxRecordLine = 4 << 20 // an entry of a hundred targets takes 20 KiB

// Decision is what an evaluation needs of one entry of a decision record.
type Decision struct {
	ID         string `json:"decision_id"`
	Route      string `json:"route"`
	TaskDigest string `json:"task_digest"`
	Checkpoint string `json:"checkpoint_digest"`
	// Targets holds the scores, in the route's order. An entry without any (a
	// fallback, or a rule) has nothing to replay.
	Targets []DecisionTarget `json:"targets"`
	Line    int              `json:"-"`
}

// DecisionTarget is one target's score.
type DecisionTarget struct {
	Target      string  `json:"target"`
	Head        string  `json:"head"`
	Probability float64 `json:"probability"`
	Cost        float64 `json:"cost"`
}

// ReadDecisions reads a decision record: JSON lines, of which fields it does not
// know are ignored. A last line that was cut off, as a rotated or a live file has,
// is passed over; any other that cannot be read is an error.
func ReadDecisions(r io.Reader) ([]Decision, error) {
	var out []Decision
	var bad []int
	line, err := eachLine(r, func(line int, text []byte) {
		var d Decision
		if json.Unmarshal(text, &d) != nil {
			bad = append(bad, line)
			return
		}
		d.Line = line
		out = append(out, d)
	})
	if err != nil {
		return nil, fmt.Errorf("decision record: %w", err)
	}
	if len(bad) == 1 && bad[0] == line && len(out) > 0 {
		bad = nil
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("%w: decision record: %s that are not entries", ErrSample, labels.Lines(bad))
	}
	return out, nil
}

// Outcomes says how answers turned out, by decision or by task.
type Outcomes struct {
	byID, byTask map[string]map[string]labels.Label
}

// ReadOutcomes reads outcomes: JSON lines with labels by target or head, and what
// they are of:
//
//	{"decision_id": "…", "labels": {"strong": 1}}
//	{"task_digest": "…", "labels": {"strong": 1, "weak": 0}}
//
// Several lines of one decision or task are put together; if they disagree, that
// is an error.
func ReadOutcomes(r io.Reader) (*Outcomes, error) {
	o := &Outcomes{byID: map[string]map[string]labels.Label{}, byTask: map[string]map[string]labels.Label{}}
	problems := map[string][]int{}
	var order []string
	fault := func(line int, problem string) {
		if problems[problem] == nil {
			order = append(order, problem)
		}
		problems[problem] = append(problems[problem], line)
	}
	_, err := eachLine(r, func(line int, text []byte) {
		var row struct {
			ID     string                     `json:"decision_id"`
			Task   string                     `json:"task_digest"`
			Labels map[string]json.RawMessage `json:"labels"`
		}
		if json.Unmarshal(text, &row) != nil {
			fault(line, "that are not an object of decision_id or task_digest, and labels")
			return
		}
		into, key := o.byID, row.ID
		if key == "" {
			into, key = o.byTask, row.Task
		}
		if key == "" {
			fault(line, "without decision_id and task_digest")
			return
		}
		if into[key] == nil {
			into[key] = map[string]labels.Label{}
		}
		for name, raw := range row.Labels {
			label, ok := labels.Parse(string(raw))
			if !ok {
				fault(line, "with a label that is not 0, 1, true, false or null")
				continue
			}
			if before := into[key][name]; label != labels.Missing && before != labels.Missing && before != label {
				fault(line, "with another label than above for the same answer")
			}
			if label != labels.Missing {
				into[key][name] = label
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("outcomes: %w", err)
	}
	var faults []error
	for _, problem := range order {
		faults = append(faults, fmt.Errorf("%s %s", labels.Lines(problems[problem]), problem))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: outcomes: %w", ErrSample, errors.Join(faults...))
	}
	return o, nil
}

// of returns the label of a decision's target.
func (o *Outcomes) of(d Decision, t DecisionTarget) labels.Label {
	if o == nil {
		return labels.Missing
	}
	for _, found := range []map[string]labels.Label{o.byID[d.ID], o.byTask[d.TaskDigest]} {
		for _, name := range []string{t.Target, t.Head} {
			if l := found[name]; l != labels.Missing {
				return l
			}
		}
	}
	return labels.Missing
}

// ReplayOptions say which decisions are replayed.
type ReplayOptions struct {
	Route        string // empty: the only one there is
	Strong, Weak string // targets; empty: the dearest and the cheapest
}

// Replay makes a sample of the decisions of one route, with what outcomes are
// known (nil: none). What was chosen then plays no part: the scores say what any
// trade-off would have chosen. Costs are means over the decisions.
func Replay(decisions []Decision, outcomes *Outcomes, o ReplayOptions) (*Sample, error) {
	route, err := onlyRoute(decisions, o.Route)
	if err != nil {
		return nil, err
	}
	s := &Sample{Name: "route " + route, Strong: 0, Weak: 1}
	s.Probabilities, s.Labels = make([][]float64, 2), make([][]labels.Label, 2)
	tasks := map[string]int{}
	checkpoints := map[string]int{}
	unscored, known := 0, 0
	roles := [2]string{o.Strong, o.Weak}
	for _, d := range decisions {
		if d.Route != route {
			continue
		}
		if len(d.Targets) < 2 {
			unscored++
			continue
		}
		if s.Heads == nil {
			roles = rolesOf(d.Targets, roles)
			s.Heads = roles[:]
		}
		pair, ok := pairOf(d.Targets, roles)
		if !ok {
			unscored++
			continue
		}
		key := d.TaskDigest
		if key == "" {
			key = "decision " + d.ID
		}
		if _, seen := tasks[key]; !seen {
			tasks[key] = len(tasks)
		}
		s.Tasks = append(s.Tasks, tasks[key])
		checkpoints[d.Checkpoint]++
		s.Digest = d.Checkpoint
		s.StrongCost += pair[0].Cost
		s.WeakCost += pair[1].Cost
		for h, target := range pair {
			label := outcomes.of(d, target)
			if label != labels.Missing {
				known++
			}
			s.Probabilities[h] = append(s.Probabilities[h], target.Probability)
			s.Labels[h] = append(s.Labels[h], label)
		}
	}
	n := len(s.Tasks)
	if n == 0 {
		return nil, fmt.Errorf("%w: no decision of route %q has scores for two targets (%d without)", ErrSample, route, unscored)
	}
	s.StrongCost /= float64(n)
	s.WeakCost /= float64(n)
	s.Notes = append(s.Notes, fmt.Sprintf("%d decisions on %d tasks, %d outcomes", n, len(tasks), known))
	if unscored > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d decisions without scores for both targets were left out", unscored))
	}
	if len(checkpoints) > 1 {
		s.Notes = append(s.Notes, fmt.Sprintf("the decisions were scored by %d checkpoints; replay each on its own to compare them", len(checkpoints)))
	}
	return s, nil
}

func onlyRoute(decisions []Decision, wanted string) (string, error) {
	seen := map[string]bool{}
	for _, d := range decisions {
		seen[d.Route] = true
	}
	if wanted != "" {
		if !seen[wanted] {
			return "", fmt.Errorf("%w: the record has no decision of route %q", ErrSample, wanted)
		}
		return wanted, nil
	}
	if len(seen) != 1 {
		return "", fmt.Errorf("%w: the record has decisions of %d routes: say which", ErrSample, len(seen))
	}
	return decisions[0].Route, nil
}

// rolesOf fills in the strong and the weak target: the dearest and the cheapest, of
// equally cheap ones the later, as the policy breaks ties.
func rolesOf(targets []DecisionTarget, roles [2]string) [2]string {
	dearest, cheapest := targets[0], targets[0]
	for _, t := range targets[1:] {
		if t.Cost > dearest.Cost {
			dearest = t
		}
		if t.Cost <= cheapest.Cost {
			cheapest = t
		}
	}
	if roles[0] == "" {
		roles[0] = dearest.Target
	}
	if roles[1] == "" {
		roles[1] = cheapest.Target
	}
	return roles
}

func pairOf(targets []DecisionTarget, roles [2]string) (pair [2]DecisionTarget, ok bool) {
	found := 0
	for _, t := range targets {
		for h, name := range roles {
			if t.Target == name {
				pair[h] = t
				found++
			}
		}
	}
	return pair, found == len(roles)
}

// eachLine calls f with every line that is not blank, and returns the last one's
// number.
func eachLine(r io.Reader, f func(line int, text []byte)) (last int, err error) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxRecordLine)
	for line := 1; scanner.Scan(); line++ {
		if text := bytes.TrimSpace(scanner.Bytes()); len(text) > 0 {
			f(line, text)
			last = line
		}
	}
	return last, scanner.Err()
}
