// Package prometheus checks what Prometheus is to read with Prometheus' own parsers:
// the alerts, the queries of the dashboard, and /metrics. It is a module of its own, so
// that Prometheus never touches the product.
package prometheus

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	golden    = "../../server/telemetry/testdata/metrics.txt"
	rulesFile = "../../deploy/prometheus/pointsman.rules.yaml"
	dashboard = "../../deploy/grafana/pointsman.json"
)

// fromScrape are the labels that Prometheus itself adds.
var fromScrape = []string{"instance", "job"}

// metrics are the labels of every series by its name, from the golden file of the
// product's own test.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{}
	line := regexp.MustCompile(`^(\w+) (\w+) \{(.*)\}$`)
	for text := range strings.Lines(string(content)) {
		match := line.FindStringSubmatch(strings.TrimSpace(text))
		if match == nil {
			t.Fatalf("%s: %q", golden, text)
		}
		labels := append(strings.Split(match[3], ","), fromScrape...)
		if match[2] != "histogram" {
			known[match[1]] = labels
			continue
		}
		known[match[1]+"_sum"], known[match[1]+"_count"] = labels, labels
		known[match[1]+"_bucket"] = append(slices.Clone(labels), "le")
	}
	return known
}

// problems says what a query asks for that there is not.
func problems(query string, known map[string][]string) []string {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	all := map[string]bool{}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		labels, ok := known[selector.Name]
		if !ok {
			found = append(found, "no such metric: "+selector.Name)
		}
		for _, l := range labels {
			all[l] = true
		}
		for _, m := range selector.LabelMatchers {
			if m.Name != "__name__" && !slices.Contains(labels, m.Name) {
				found = append(found, fmt.Sprintf("%s has no label %s", selector.Name, m.Name))
			}
		}
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok {
			for _, l := range a.Grouping {
				if !all[l] {
					found = append(found, "nothing in it has the label "+l)
				}
			}
		}
		return nil
	})
	return found
}

func TestRulesAreGood(t *testing.T) {
	content, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(content, false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	known := metrics(t)
	rules := 0
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			rules++
			for _, p := range problems(r.Expr, known) {
				t.Errorf("%s: %s", r.Alert, p)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%s does not say what it is and how bad", r.Alert)
			}
		}
	}
	if rules < 6 {
		t.Errorf("%d rules", rules)
	}
}

func TestDashboardAsksForWhatThereIs(t *testing.T) {
	content, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title, Type string
			ID          int
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(content, &board); err != nil {
		t.Fatal(err)
	}
	known := metrics(t)
	asked := map[string]bool{}
	ids := map[int]bool{}
	// As Grafana fills them in.
	variables := strings.NewReplacer("$__rate_interval", "5m", "$route", ".*", "$probe", ".*")
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("%s: id %d is there twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			for _, problem := range problems(variables.Replace(target.Expr), known) {
				t.Errorf("%s: %s\n%s", p.Title, problem, target.Expr)
			}
			for name := range known {
				if strings.Contains(target.Expr, strings.TrimSuffix(name, "_bucket")) {
					asked[name] = true
				}
			}
		}
	}
	for name := range known {
		if strings.HasPrefix(name, "pointsman_") && strings.HasSuffix(name, "_total") && !asked[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// TestProblemsAreFound shows that the checks above can fail.
func TestProblemsAreFound(t *testing.T) {
	known := metrics(t)
	for query, want := range map[string]bool{
		`sum by (route) (rate(pointsman_decisions_total[5m]))`:                           false,
		`sum by (rout) (rate(pointsman_decisions_total[5m]))`:                            true,
		`rate(pointsman_decision_total[5m])`:                                             true,
		`rate(pointsman_decisions_total{root="main"}[5m])`:                               true,
		`histogram_quantile(0.9, rate(pointsman_decision_duration_seconds_bucket[5m]))`:  false,
		`histogram_quantile(0.9, rate(pointsman_decision_duration_seconds_buckets[5m]))`: true,
		`pointsman_decision_duration_seconds`:                                            true,
		`rate(pointsman_decisions_total[5m]`:                                             true,
	} {
		if got := problems(query, known); (len(got) > 0) != want {
			t.Errorf("%s: %q", query, got)
		}
	}
}
