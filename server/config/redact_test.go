package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// everything is a file that gives every key a value other than its default.
const everything = `
grpc:
  listen: ":1"
  max_task_bytes: 2MiB
  max_message_bytes: 3MB
  deadline_margin: 1ms
  reflection: false
  tls: {cert_file: c, key_file: k, client_ca_file: a}
  health: false
  auth: {tokens_file: t, open_health: true}
  connections: {max: 1, max_streams: 2, max_idle: 3s, max_age: 4s, min_ping: 5s, handshake: 6s}
  max_in_flight: 7
  overrides: {trade_off: false, refresh: false, bypass: false}
admin: {listen: "[::1]:2"}
default_route: a
readiness: {require_probe: true, canary: true}
reload: {watch: false}
routes:
  a: &a
    probe: p
    checkpoint: c
    targets:
      - {name: s, tier: strong, model: "1", head: "true", cost: 2.5}
      - {name: w, model: m, head: h, cost: 1e-9}
    policy: {quality_weight: 0.6}
    mode: shadow
    task_from: latest_user
    task_envelope: terminus
    fallback: w
    decide_timeout: 1m
    backup: {probe: words, checkpoint: c2}
  b: {<<: *a, policy: {tolerance: 0}}
probes:
  p:
    kind: vllm
    encoder: e
    served_model: s
    revision: "7"
    chat_template_kwargs: {enable_thinking: false, n: 1, x: 0.5, l: [a, null], m: {k: "1"}}
    endpoints: [{base_url: "https://h/v1/", hidden_states_dir: d, reported_dir: /r}]
    api_key_env: KEY
    max_in_flight: 1
    max_queue: 0
    queue_timeout: 1s
    request_timeout: 2s
    artifact_timeout: 3s
    max_artifact_bytes: 1GB
    max_prompt_bytes: 9KiB
    max_outstanding_bytes: 3GiB
    health_interval: 0s
    zero_vectors: allow_slot_0
    breaker: {failures: 2, open_for: 3s}
    sweep: {interval: 4s, min_age: 7s, all: true}
  words: {kind: lexical, revision: "1", max_in_flight: 9}
cache:
  ttl: 90s
  secret_env: KEY
  local: {max_entries: 1}
  redis:
    url: "rediss://h:1/2"
    username: u
    password_env: KEY
    sentinel_username: s
    sentinel_password_env: KEY
    op_timeout: 10ms
    tls: {ca_file: ca, cert_file: c, key_file: k, server_name: n}
log: {level: debug, format: text}
record: {file: r, max_bytes: 1MiB, max_files: 2, queue: 3, secret_env: KEY}
shutdown: {drain_delay: 0s, timeout: 1s}
`

// The effective configuration is itself a configuration with the same meaning,
// and shows no secret.
func TestRedactedReadsBack(t *testing.T) {
	const secret = "open sesame open"
	documented, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]string{"everything": everything, "documented": string(documented), "minimal": withLines("", "", "")} {
		t.Run(name, func(t *testing.T) {
			opts := env("KEY", secret, "VLLM_API_KEY", secret, "POINTSMAN_CACHE_SECRET", secret)
			file := filepath.Join(t.TempDir(), "p.yaml")
			want, err := Parse(file, []byte(in), opts)
			if err != nil {
				t.Fatal(err)
			}
			out, err := want.Redacted()
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(out, []byte(secret)) || strings.Contains(string(out), redacted) {
				t.Errorf("the effective configuration shows a secret or its place:\n%s", out)
			}
			got, err := Parse(file, out, opts)
			if err != nil {
				t.Fatalf("%v in\n%s", err, out)
			}
			if name != "everything" { // an empty mapping and none are the same
				dropEmptyKwargs(want)
				dropEmptyKwargs(got)
			}
			if diff := cmp.Diff(want, got, secrets); diff != "" {
				t.Errorf("read back (-want +got):\n%s\n%s", diff, out)
			}
		})
	}
}

func dropEmptyKwargs(c *Config) {
	for name, p := range c.Probes {
		if len(p.ChatTemplateKwargs) == 0 {
			p.ChatTemplateKwargs = nil
			c.Probes[name] = p
		}
	}
}
