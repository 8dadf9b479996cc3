package telemetry

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// golden holds every metric: name, type, labels. Dashboards and alerts are checked
// against it. UPDATE=1 writes it anew; a name that changes breaks somebody's
// dashboard, so it belongs in the changelog.
const golden = "testdata/metrics.txt"

func TestMetricNamesTypesAndLabels(t *testing.T) {
	tel, _ := newTelemetry(t)
	exercise(t, tel)
	var b strings.Builder
	for name, family := range sorted(families(t, scrape(t, tel.MetricsHandler(), ""))) {
		if strings.HasPrefix(name, "process_") { // those of the platform it runs on
			continue
		}
		fmt.Fprintf(&b, "%s %s {%s}\n", name, strings.ToLower(family.GetType().String()), strings.Join(labelNames(family), ","))
		if family.GetHelp() == "" {
			t.Errorf("%s has no description", name)
		}
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// TestEveryInstrumentIsExercised holds that the golden file misses none: every name in
// names.go is in it.
func TestEveryInstrumentIsExercised(t *testing.T) {
	names, err := os.ReadFile("names.go")
	if err != nil {
		t.Fatal(err)
	}
	known, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`metric\w+\s+= "([a-z_.]+)"`).FindAllSubmatch(names, -1)
	if len(found) < 20 {
		t.Fatalf("only %d names found", len(found))
	}
	for _, match := range found {
		if name := strings.ReplaceAll(string(match[1]), ".", "_"); !strings.Contains(string(known), "\n"+name) {
			t.Errorf("%s is not in %s", name, golden)
		}
	}
}

func TestMetricsPassPrometheusLinter(t *testing.T) {
	tel, _ := newTelemetry(t)
	exercise(t, tel)
	problems, err := promlint.New(strings.NewReader(scrape(t, tel.MetricsHandler(), ""))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestLabelsAreClosedSets tries every value of every enumeration and holds that all
// label values are short words: nothing that was sent can be one.
func TestLabelsAreClosedSets(t *testing.T) {
	tel, _ := newTelemetry(t)
	exercise(t, tel)
	series := 0
	for name, family := range families(t, scrape(t, tel.MetricsHandler(), "")) {
		for _, m := range family.GetMetric() {
			series++
			for _, l := range m.GetLabel() {
				if name != "target_info" && len(l.GetValue()) > 40 {
					t.Errorf("%s{%s=%q} is no word", name, l.GetName(), l.GetValue())
				}
			}
		}
	}
	const most = 400 // of one route, two targets, one probe
	if series > most {
		t.Errorf("%d series for one route and probe, want at most %d", series, most)
	}
}

func TestExemplarsHoldTraceIDs(t *testing.T) {
	tel, spans := newTelemetry(t)
	exercise(t, tel)
	text := scrape(t, tel.MetricsHandler(), "application/openmetrics-text; version=1.0.0")
	if !strings.HasSuffix(text, "# EOF\n") {
		t.Fatal("not OpenMetrics")
	}
	id := spans.GetSpans()[0].SpanContext.TraceID().String()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "pointsman_decision_duration_seconds_bucket") && strings.Contains(line, `trace_id="`+id+`"`) {
			return
		}
	}
	t.Errorf("no exemplar of the decisions' duration holds trace %s", id)
}

func sorted(in map[string]*dto.MetricFamily) func(func(string, *dto.MetricFamily) bool) {
	return func(yield func(string, *dto.MetricFamily) bool) {
		for _, name := range slices.Sorted(maps.Keys(in)) {
			if !yield(name, in[name]) {
				return
			}
		}
	}
}

func labelNames(family *dto.MetricFamily) []string {
	names := map[string]bool{}
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			names[l.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
