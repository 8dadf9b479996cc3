package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman-dev/pointsman/server"
)

// check writes the world's configuration, with something replaced, and checks it.
func (w *world) check(t *testing.T, asJSON bool, replace ...string) (code int, report string) {
	t.Helper()
	path := filepath.Join(w.root, "pointsman.yaml")
	if err := os.WriteFile(path, []byte(strings.NewReplacer(replace...).Replace(w.yaml)), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	code, err := server.Check(t.Context(), server.CheckOptions{ConfigPath: path, JSON: asJSON}, &out)
	if err != nil {
		t.Error(err)
	}
	return code, out.String()
}

// TestCheckSaysEachThingOnce: what is wrong with a folder is seen by the server that
// would be started, and by the canary too.
func TestCheckSaysEachThingOnce(t *testing.T) {
	w := start(t, setup{})
	if err := os.Chmod(w.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	one := "endpoints: ["
	other := `endpoints: [ { base_url: "http://127.0.0.1:1/v1", hidden_states_dir: "` + filepath.Join(w.root, "missing") + `" },`
	for _, asJSON := range []bool{false, true} {
		code, report := w.check(t, asJSON)
		if n := strings.Count(report, "lets every user in"); code != server.ExitGood || n != 1 {
			t.Errorf("exit code %d; the folder's mode is told %d times:\n%s", code, n, report)
		}
		code, report = w.check(t, asJSON, one, other)
		if code != server.ExitFailing {
			t.Errorf("exit code %d", code)
		}
		for _, finding := range []string{"lets every user in", "better create it"} {
			if n := strings.Count(report, finding); n != 1 {
				t.Errorf("%q is told %d times of one of two endpoints:\n%s", finding, n, report)
			}
		}
	}
}

// TestCheckReportsToMachinesWhatApplies: nothing of vLLM about a probe that asks no
// vLLM, and nothing of words about one that does.
func TestCheckReportsToMachinesWhatApplies(t *testing.T) {
	words := filepath.Join(t.TempDir(), "words")
	saveLexicalCheckpoint(t, words)
	w := start(t, setup{routeYAML: "backup: { probe: words, checkpoint: \"" + words + "\" }", moreYAML: "  words: { kind: lexical }"})
	code, report := w.check(t, true)
	var parts struct{ Probes []map[string]any }
	if err := json.Unmarshal([]byte(report), &parts); err != nil || code != server.ExitGood || len(parts.Probes) != 2 {
		t.Fatalf("%v, exit code %d:\n%s", err, code, report)
	}
	for i, want := range [][]string{
		{"artifact_bytes", "artifact_time", "dtype", "endpoint", "foreign_files", "hidden_size", "http_time", "layers", "locked", "max_outstanding_bytes", "name", "tokens"},
		{"encoding_time", "hidden_size", "layers", "name", "tokens"},
	} {
		var got []string
		for field := range parts.Probes[i] {
			got = append(got, field)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("probe %v: %q, want %q", parts.Probes[i]["name"], got, want)
		}
	}
	_, report = w.check(t, false)
	for _, want := range []string{"MiB of hidden states at a time", "encoded in"} {
		if strings.Count(report, want) != 1 {
			t.Errorf("not said once: %q\n%s", want, report)
		}
	}
}

// TestCheckPlacesMistakesForMachines: an editor can go to where each is.
func TestCheckPlacesMistakesForMachines(t *testing.T) {
	w := start(t, setup{})
	code, report := w.check(t, true, "cost: 0.25", "cost: -1", "tier: weak", "tier: small")
	var got struct {
		Errors   []string
		Problems []struct {
			File, Path, Message string
			Line, Column        int
		}
	}
	if err := json.Unmarshal([]byte(report), &got); err != nil {
		t.Fatal(err)
	}
	if code != server.ExitBroken || len(got.Errors) != 2 || len(got.Problems) != 2 {
		t.Fatalf("exit code %d:\n%s", code, report)
	}
	lines := strings.Split(strings.NewReplacer("cost: 0.25", "cost: -1", "tier: weak", "tier: small").Replace(w.yaml), "\n")
	for i, want := range []struct{ path, value string }{{"routes.main.targets[1].tier", "small"}, {"routes.main.targets[1].cost", "-1"}} {
		p := got.Problems[i]
		if p.Path != want.path || p.Message == "" || !strings.HasPrefix(lines[p.Line-1][p.Column-1:], want.value) || filepath.Base(p.File) != "pointsman.yaml" {
			t.Errorf("%+v, want %q", p, want)
		}
		if !strings.Contains(got.Errors[i], p.Message) {
			t.Errorf("error %q, problem %q", got.Errors[i], p.Message)
		}
	}
	// What is not in the file has no place in it.
	if code, report = w.check(t, true, filepath.Join(w.root, "router"), filepath.Join(w.root, "missing")); code != server.ExitBroken || strings.Contains(report, `"problems"`) {
		t.Errorf("exit code %d:\n%s", code, report)
	}
}
