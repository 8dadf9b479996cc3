package server

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman-dev/pointsman/server/config"
)

// parseConfig is a valid configuration with something replaced.
func parseConfig(t *testing.T, replace ...string) *config.Config {
	t.Helper()
	const text = `
grpc: { max_task_bytes: 1MiB, max_in_flight: 100 }
cache: { ttl: 1h }
log: { level: info, format: json }
routes:
  main:
    probe: p
    checkpoint: ./router
    targets:
      - { name: strong, model: m/strong, head: strong, cost: 1 }
      - { name: weak, model: m/weak, head: weak, cost: 0.25 }
probes:
  p:
    encoder: pointsman/demo
    queue_timeout: 2s
    request_timeout: 60s
    artifact_timeout: 10s
    endpoints: [ { base_url: "http://127.0.0.1:1/v1", hidden_states_dir: ./states } ]
`
	cfg, err := config.Parse("pointsman.yaml", []byte(strings.NewReplacer(replace...).Replace(text)), config.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestWhatNeedsARestart(t *testing.T) {
	tokens := []string{"grpc: {", "grpc: { auth: { tokens_file: tokens },"}
	for _, c := range []struct {
		name            string
		before, replace []string
		want            []string
	}{
		{"nothing changed", nil, nil, nil},
		{"a probe may take longer", nil, []string{"request_timeout: 60s", "request_timeout: 4m"}, nil},
		{"level and task size", nil, []string{"level: info", "level: debug", "1MiB", "2MiB"}, nil},
		{"other tokens", tokens, []string{"grpc: {", "grpc: { auth: { tokens_file: other },"}, nil},
		{"tokens at all", nil, tokens, []string{"grpc"}}, // they are taken over, but not what bounds a stranger's connection
		{"decisions under way", nil, []string{"max_in_flight: 100", "max_in_flight: 200"}, []string{"grpc"}},
		{"life of scores and form of the log", nil, []string{"ttl: 1h", "ttl: 2h", "format: json", "format: text"}, []string{"cache", "log"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := needRestart(parseConfig(t, c.before...), parseConfig(t, c.replace...)); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestAReloadTakesLongerTimeoutsOver holds that how long scores may be computed follows
// the configuration of the probe: the cache, which is never replaced, is told with each
// call.
func TestAReloadTakesLongerTimeoutsOver(t *testing.T) {
	router := filepath.Join(t.TempDir(), "router")
	if err := saveDemoCheckpoint(router); err != nil {
		t.Fatal(err)
	}
	parse := func(t *testing.T, replace ...string) *config.Config {
		t.Helper()
		return parseConfig(t, append(replace, "./router", router, "./states", t.TempDir(), "pointsman/demo", demoEncoder)...)
	}
	s, err := New(parse(t), slog.New(slog.DiscardHandler), Offline())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		name    string
		replace []string
		want    time.Duration
	}{
		{"at the start", nil, 77 * time.Second},
		{"longer", []string{"request_timeout: 60s", "request_timeout: 4m"}, 257 * time.Second},
		{"a second endpoint", []string{"endpoints: [", `endpoints: [ { base_url: "http://127.0.0.1:2/v1", hidden_states_dir: ` + t.TempDir() + " },"}, 149 * time.Second},
		{"shorter", []string{"artifact_timeout: 10s", "artifact_timeout: 1s"}, 68 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := s.Reload(t.Context(), parse(t, c.replace...)); err != nil {
				t.Fatal(err)
			}
			if got := s.decider.snapshot.Load().routes["main"].computeTimeout; got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			if got := s.readiness().Reload.NeedRestart; got != nil {
				t.Errorf("%q need a restart", got)
			}
		})
	}
}
