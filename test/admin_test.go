package test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
	"github.com/pointsman-dev/pointsman/server/record"
)

// put sends a body to the admin port.
func (w *world) put(t *testing.T, path, body string) (code int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.admin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestTheLogLevelIsSetAtRunTime(t *testing.T) {
	w := start(t, setup{moreYAML: "log: { level: error }"})
	w.decide(t, task("Not logged."))
	if code, body := w.put(t, "/loglevel", "info"); code != http.StatusOK || !strings.Contains(body, "INFO") {
		t.Errorf("%d %s", code, body)
	}
	w.decide(t, task("Logged."))
	for _, wrong := range []string{"", "loud", strings.Repeat("info", 1000)} {
		if code, _ := w.put(t, "/loglevel", wrong); code != http.StatusBadRequest {
			t.Errorf("level %.10q: %d, want 400", wrong, code)
		}
	}
	w.stop()
	if got := strings.Count(w.log.String(), `"msg":"rpc"`); got != 1 {
		t.Errorf("%d calls are logged, want 1:\n%s", got, w.log.String())
	}
}

// TestLogLinesNameTheCallersTrace holds also where nothing is exported.
func TestLogLinesNameTheCallersTrace(t *testing.T) {
	w := start(t, setup{})
	traceID := newTraceID()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+traceID+"-"+gatewaySpan+"-01")
	if _, err := w.client.Decide(ctx, task("Traced elsewhere.")); err != nil {
		t.Fatal(err)
	}
	w.stop()
	if !strings.Contains(w.log.String(), `"trace_id":"`+traceID+`"`) {
		t.Errorf("no line names trace %s:\n%s", traceID, w.log.String())
	}
	if got := w.sim.Requests()[0].Header.Get("Traceparent"); !strings.Contains(got, traceID) {
		t.Errorf("vLLM was told traceparent %q", got)
	}
}

// TestTheDecisionRecord holds that a line is written for every decision, and that it
// has what another trade-off's choice is computed from.
func TestTheDecisionRecord(t *testing.T) {
	w := start(t, setup{
		routeYAML: "mode: shadow",
		moreYAML:  "record: { file: decisions.jsonl }",
	})
	const text = "Record this."
	first := w.decide(t, task(text))
	second := w.decide(t, task(text))
	w.sim.SetFault(vllmsim.NaN())
	failed := w.decide(t, task("Fail."))
	w.stop()

	content, err := os.ReadFile(filepath.Join(w.root, "decisions.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var entries []record.Entry
	decoder := json.NewDecoder(strings.NewReader(string(content)))
	decoder.DisallowUnknownFields()
	for decoder.More() {
		var e record.Entry
		if err := decoder.Decode(&e); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if len(entries) != 3 {
		t.Fatalf("%d entries, want 3:\n%s", len(entries), content)
	}
	for i, resp := range []*pointsmanv1.DecideResponse{first, second, failed} {
		e := entries[i]
		if e.DecisionID != resp.GetDecisionId() || e.Target != resp.GetTarget() || e.Route != "main" || e.Mode != "SHADOW" {
			t.Errorf("entry %d is %+v for %v", i, e, resp)
		}
		if e.ShadowTarget != resp.GetShadowTarget() || "ORIGIN_"+e.Origin != resp.GetOrigin().String() && e.Origin != "" {
			t.Errorf("entry %d is %+v for %v", i, e, resp)
		}
	}
	e := entries[0]
	for i, s := range first.GetScores() {
		got := e.Targets[i]
		if got.Target != s.GetTarget() || got.Head != s.GetHead() || got.Probability != s.GetProbability() ||
			got.Cost != s.GetCost() || got.Utility != s.GetUtility() || *got.Stddev != s.GetProbabilityStddev() {
			t.Errorf("target %d is %+v, want %v", i, got, s)
		}
	}
	if e.CheckpointDigest != first.GetCheckpointDigest() || e.TaskTokens != int(first.GetTaskTokens()) ||
		*e.Tolerance != 0.2 || *e.Margin != first.GetMargin() || e.Timing.Probe == nil {
		t.Errorf("%+v for %v", e, first)
	}
	if e.TaskDigest == "" || e.TaskDigest != entries[1].TaskDigest || e.TaskDigest == entries[2].TaskDigest {
		t.Error("the digest does not tell tasks apart")
	}
	if entries[2].Reason != "PROBE_ARTIFACT" || entries[2].Targets != nil || entries[2].Basis != "FALLBACK" {
		t.Errorf("the fallback is recorded as %+v", entries[2])
	}
}
