package eval

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/pointsman-dev/pointsman/scorer"
)

func pageReports(t *testing.T) []*Report {
	t.Helper()
	var reports []*Report
	for _, name := range []string{"first", `<script>alert("x")</script> & more`} {
		s := synthetic(400, 3)
		s.Name, s.Heads[0], s.Groups[0] = name, name+" head", name
		s.Notes = []string{name}
		report, err := Measure(s, Options{Resamples: 30, Policies: []scorer.TradeOff{scorer.QualityWeight(0.8)}})
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, report)
	}
	return reports
}

func TestPageStandsAlone(t *testing.T) {
	var page bytes.Buffer
	if err := WriteHTML(&page, pageReports(t)); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if found := regexp.MustCompile(`(?i)<script|<link|<img|src=|href=|url\(|@import|http`).FindString(text); found != "" {
		t.Errorf("the page reaches for %q", found)
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") || strings.Contains(text, "%!") {
		t.Error("a figure is not a number")
	}
	// Every drawing is well-formed.
	for i, drawing := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(text, -1) {
		for decoder := xml.NewDecoder(strings.NewReader(drawing)); ; {
			if _, err := decoder.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("drawing %d: %v", i, err)
			}
		}
	}
}

// A report without labels, without groups or of trade-offs alone prints too.
func TestEveryWriterTakesEveryReport(t *testing.T) {
	bare := synthetic(100, 1)
	bare.Groups = nil
	for h := range bare.Labels {
		clear(bare.Labels[h])
	}
	policies, err := MeasurePolicies(bare, Options{Resamples: 10, Policies: []scorer.TradeOff{scorer.Tolerance(0.1)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, reports := range map[string][]*Report{"whole": pageReports(t), "trade-offs alone": {policies}} {
		for kind, write := range map[string]func(io.Writer, []*Report) error{"table": WriteTable, "JSON": WriteJSON, "page": WriteHTML} {
			var out bytes.Buffer
			if err := write(&out, reports); err != nil || out.Len() == 0 {
				t.Errorf("%s as %s: %d bytes, %v", name, kind, out.Len(), err)
			}
			if kind == "JSON" && !json.Valid(out.Bytes()) {
				t.Errorf("%s: not JSON", name)
			}
		}
	}
	if !strings.Contains(policies.Notes[len(policies.Notes)-1], "100 % of the rows have no label") {
		t.Errorf("notes %q", policies.Notes)
	}
}
