package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// env is a LookupEnv with exactly these variables.
func env(pairs ...string) LoadOptions {
	vars := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		vars[pairs[i]] = pairs[i+1]
	}
	return LoadOptions{LookupEnv: func(name string) (string, bool) {
		value, found := vars[name]
		return value, found
	}}
}

// secrets compares configurations with what their secrets hold.
var secrets = cmp.Comparer(func(a, b Secret) bool { return a == b })

func wantMinimal(dir string) *Config {
	c := Default()
	c.DefaultRoute = "main"
	c.Routes = map[string]Route{"main": {
		Probe:      "qwen",
		Checkpoint: filepath.Join(dir, "router"),
		Targets: []Target{
			{Name: "strong", Tier: TierStrong, Model: "provider/strong-model", Head: "opus-4.7", Cost: 1},
			{Name: "weak", Tier: TierWeak, Model: "provider/weak-model", Head: "nemotron-3-super", Cost: 0.25},
		},
		Policy:        Policy{Tolerance: new(0.2)},
		Mode:          "serve",
		TaskFrom:      "first_user",
		Fallback:      "strong",
		DecideTimeout: Duration(2 * time.Second),
	}}
	c.Probes = map[string]Probe{"qwen": {
		Kind:             "vllm",
		Encoder:          "Qwen/Qwen3-8B",
		ServedModel:      "Qwen/Qwen3-8B",
		Endpoints:        []Endpoint{{BaseURL: "http://127.0.0.1:8000/v1", HiddenStatesDir: "/dev/shm/pointsman"}},
		MaxPromptBytes:   1048576,
		HealthInterval:   5_000_000_000,
		MaxInFlight:      32,
		MaxQueue:         64,
		QueueTimeout:     Duration(2 * time.Second),
		RequestTimeout:   Duration(60 * time.Second),
		ArtifactTimeout:  Duration(10 * time.Second),
		MaxArtifactBytes: 8589934592,
		ZeroVectors:      "refuse",
		Breaker:          Breaker{Failures: 5, OpenFor: Duration(10 * time.Second)},
		Sweep:            Sweep{Interval: Duration(time.Minute), MinAge: Duration(5 * time.Minute)},
	}}
	return c
}

func TestLoadMinimalFile(t *testing.T) {
	got, err := LoadWith("testdata/minimal.yaml", env())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantMinimal(dir), got, secrets); diff != "" {
		t.Errorf("minimal file (-want +got):\n%s", diff)
	}
}

// The example of the documentation writes every default out, so it differs from
// the minimal file only where it says something else.
func TestLoadDocumentedFile(t *testing.T) {
	got, err := LoadWith("testdata/full.yaml", env("VLLM_API_KEY", "sesame", "POINTSMAN_CACHE_SECRET", "0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	want := wantMinimal(dir)
	route := want.Routes["main"]
	route.Policy = Policy{QualityWeight: new(0.75)}
	want.Routes["main"] = route
	probe := want.Probes["qwen"]
	probe.ChatTemplateKwargs = map[string]any{}
	probe.APIKeyEnv, probe.APIKey = "VLLM_API_KEY", NewSecret("sesame")
	want.Probes["qwen"] = probe
	want.Cache.SecretEnv, want.Cache.Secret = "POINTSMAN_CACHE_SECRET", NewSecret("0123456789abcdef")
	want.Cache.Redis = &Redis{URL: "redis://127.0.0.1:6379/0", OpTimeout: Duration(25 * time.Millisecond)}
	if diff := cmp.Diff(want, got, secrets); diff != "" {
		t.Errorf("documented file (-want +got):\n%s", diff)
	}
}

func TestALexicalProbeNeedsNothingElse(t *testing.T) {
	c, err := Parse("/etc/p.yaml", []byte(withLines("    backup: {probe: words, checkpoint: small}\n", "", "  words: {kind: lexical}\n")), env())
	if err != nil {
		t.Fatal(err)
	}
	p := c.Probes["words"]
	if p.Encoder != LexicalEncoder || p.ServedModel != "" || p.MaxInFlight != 32 {
		t.Errorf("got %+v", p)
	}
	if b := c.Routes["main"].Backup; b == nil || *b != (Backup{Probe: "words", Checkpoint: "/etc/small"}) {
		t.Errorf("backup %+v", b)
	}
}

func TestLoadMissingFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"))
	if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "read configuration: ") {
		t.Errorf("got %v, want a wrapped fs.ErrNotExist", err)
	}
	if got := Problems(err); len(got) != 0 {
		t.Errorf("a missing file is no mistake in the file, got %v", got)
	}
}

// base is a good configuration with room for one more line in each section.
const base = `routes:
  main:
    probe: qwen
    checkpoint: router
    targets:
      - {name: strong, tier: strong, model: s, head: h1, cost: 1}
      - {name: weak, tier: weak, model: w, head: h2, cost: 0.1}
%[1]sprobes:
  qwen:
    encoder: e
    endpoints: [{base_url: "http://h:1/v1", hidden_states_dir: /d}]
%[2]s%[3]s`

// withLines puts lines into base: the route's from line 8, the probe's four
// lines below those, then any other section.
func withLines(route, probe, rest string) string { return fmt.Sprintf(base, route, probe, rest) }

func TestParseProblems(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string // without the file's name
	}{
		{"empty", "", []string{"1:1: the file is empty: it needs at least the sections routes and probes"}},
		{"only comments", "# nothing\n\n", []string{"1:1: the file is empty: it needs at least the sections routes and probes"}},
		{"only a marker", "---\n", []string{"1:1: the file is empty: it needs at least the sections routes and probes"}},
		{"a list", "- a\n", []string{"1:1: must be a mapping with sections such as routes and probes, not a list"}},
		{"two documents", withLines("", "", "---\nlog: {}\n"), []string{"12:1: a second YAML document begins here: a configuration is one document"}},
		{"no sections", "log: {level: info}\n", []string{
			"1:1: probes: is missing: the probes by name: where hidden states come from",
			"1:1: routes: is missing: the routes by name: what is chosen between, and how",
		}},
		{"empty sections", "routes: {}\nprobes:\n", []string{
			"1:9: routes: must not be empty: the routes by name: what is chosen between, and how",
			"2:8: probes: must not be empty: the probes by name: where hidden states come from",
		}},

		// Syntax.
		{"unclosed list", "a: [1,\nb: 2\n", []string{"2:1: not valid YAML: did not find expected ',' or ']'"}},
		{"tab", "a:\n  b: 1\n\tc: 2\n", []string{"3:1: not valid YAML: found a tab character that violates indentation: indent with spaces, not tabs"}},
		{"bad indentation", "log:\n  level: info\n format: json\n", []string{"3:2: not valid YAML: did not find expected key"}},
		{"unknown alias", "a: 1\nb: [*there]\n", []string{"2:5: not valid YAML: the alias has no anchor of its name before it"}},
		{"control character", "a: 1\nb: \x01\n", []string{"2:1: not valid YAML: control characters are not allowed"}},

		// Keys.
		{"unknown key with a near one", withLines("", "    max_in_fligth: 3\n", ""), []string{
			"12:5: probes.qwen.max_in_fligth: unknown key; did you mean max_in_flight?",
		}},
		{"unknown key without", withLines("", "", "log: {colour: red}\n"), []string{
			"12:7: log.colour: unknown key; known here: format, level",
		}},
		{"misspelt required key", "routes:\n  r: {prob: p, checkpoint: c, targets: [{name: a, model: a, head: a, cost: 1}, {name: b, model: b, head: b, cost: 1}]}\nprobes:\n  p: {encoder: e, endpoints: [{base_url: http://h, hidden_states_dir: d}]}\n", []string{
			"2:7: routes.r.prob: unknown key; did you mean probe?",
		}},
		{"duplicate key", withLines("    mode: serve\n    mode: shadow\n", "", ""), []string{
			"9:5: routes.main.mode: is given twice, first in line 8: remove one",
		}},
		{"key that is no text", withLines("", "", "1: 2\n"), []string{"12:1: has a key that is not text but a number: put it in quotes"}},
		{"odd key", withLines("", "", "\"a.b\\n\": 2\n"), []string{
			`12:1: "a.b\n": unknown key; known here: admin, cache, default_route, grpc, log, probes, readiness, record, reload, routes, shutdown`,
		}},

		// Types.
		{"text for a section", withLines("", "", "log: loud\n"), []string{"12:6: log: must be a section with keys, not text"}},
		{"section for a list", withLines("", "", "") + "  two: {encoder: e, endpoints: {base_url: http://h, hidden_states_dir: d}}\n", []string{
			"12:32: probes.two.endpoints: must be a list, not a section",
		}},
		{"text for a number", withLines("", "    max_queue: many\n", ""), []string{"12:16: probes.qwen.max_queue: must be a whole number, not text"}},
		{"fraction for a whole number", withLines("", "    max_queue: 1.5\n", ""), []string{"12:16: probes.qwen.max_queue: must be a whole number, not a number"}},
		{"number too large to hold", withLines("", "    max_queue: 9223372036854775808\n", ""), []string{"12:16: probes.qwen.max_queue: must be a whole number"}},
		{"number for text", withLines("", "    revision: 12\n", ""), []string{"12:15: probes.qwen.revision: must be text, not a number: put it in quotes"}},
		{"date for text", withLines("", "    revision: 2026-01-31\n", ""), []string{"12:15: probes.qwen.revision: must be text, not a date: put it in quotes"}},
		{"yes for true", withLines("", "", "grpc: {reflection: yes}\n"), []string{"12:20: grpc.reflection: must be true or false, not text"}},
		{"no value", withLines("", "    revision:\n", ""), []string{"12:14: probes.qwen.revision: has no value: write one or remove the key"}},
		{"list for text", withLines("", "    revision: [a]\n", ""), []string{"12:15: probes.qwen.revision: must be text, not a list"}},
		{"duration without a unit", withLines("    decide_timeout: 2\n", "", ""), []string{"8:21: routes.main.decide_timeout: a duration needs a unit: write 2s or 2ms"}},
		{"duration in days", withLines("", "", "cache: {ttl: 7d}\n"), []string{"12:14: cache.ttl: must be a duration such as 25ms, 2s, 1m30s or 24h"}},
		{"negative duration", withLines("    decide_timeout: -2s\n", "", ""), []string{"8:21: routes.main.decide_timeout: must not be negative"}},
		{"size with a bad unit", withLines("", "    max_artifact_bytes: 8Gb\n", ""), []string{"12:25: probes.qwen.max_artifact_bytes: must be a size such as 512KiB, 16MB or 8GiB, or a whole number of bytes"}},
		{"kwargs without JSON", withLines("", "    chat_template_kwargs: {a: [.nan], b: !!binary aGk=}\n", ""), []string{
			"12:32: probes.qwen.chat_template_kwargs.a[0]: must be a finite number: JSON has no other",
			"12:42: probes.qwen.chat_template_kwargs.b: must be text, a number, true, false, a list or a section, not a value with a tag",
		}},

		// Ranges and words.
		{"below a range", withLines("", "    max_in_flight: 0\n", ""), []string{"12:20: probes.qwen.max_in_flight: must be from 1 to 65536, got 0"}},
		{"above a range", withLines("    decide_timeout: 1h\n", "", ""), []string{"8:21: routes.main.decide_timeout: must be from 1ms to 10m, got 1h"}},
		{"not a number", withLines("    policy: {tolerance: .nan}\n", "", ""), []string{"8:25: routes.main.policy.tolerance: must be from 0 to 1, got NaN"}},
		{"weight above one", withLines("    policy: {quality_weight: 1.5}\n", "", ""), []string{"8:30: routes.main.policy.quality_weight: must be from 0 to 1, got 1.5"}},
		{"unknown word", withLines("    mode: sarve\n", "", ""), []string{`8:11: routes.main.mode: must be serve or shadow, got "sarve"`}},
		{"unknown envelope", withLines("    task_envelope: x\n", "", ""), []string{`8:20: routes.main.task_envelope: must be terminus or absent, got "x"`}},
		{"empty word", withLines("", "", "log: {level: \"\"}\n"), []string{`12:14: log.level: must be debug, info, warn or error, got ""`}},

		// What must fit together.
		{"both policies", withLines("    policy: {quality_weight: 0.5, tolerance: 0.1}\n", "", ""), []string{
			"8:13: routes.main.policy: has both quality_weight and tolerance: a route is decided by one of them",
		}},
		{"empty policy", withLines("    policy:\n", "", ""), []string{
			"8:12: routes.main.policy: has neither quality_weight nor tolerance: give one, or leave policy out for tolerance 0.2",
		}},
		{"unknown fallback", withLines("    fallback: stron\n", "", ""), []string{"8:15: routes.main.fallback: there is no such target; did you mean strong?"}},
		{"unknown default route", withLines("", "", "default_route: other\n"), []string{"12:16: default_route: there is no such route; there are: main"}},
		{"unknown probe", strings.Replace(withLines("", "", ""), "probe: qwen", "probe: other", 1), []string{"3:12: routes.main.probe: there is no such probe; there are: qwen"}},
		{"one target", strings.Replace(withLines("", "", ""), "      - {name: weak, tier: weak, model: w, head: h2, cost: 0.1}\n", "", 1), []string{
			"6:7: routes.main.targets: has one target: there must be two or more to choose between",
		}},
		{"same name", strings.Replace(withLines("", "", ""), "name: weak", "name: strong", 1), []string{
			"7:16: routes.main.targets[1].name: is the name of routes.main.targets[0] too: each target needs its own",
		}},
		{"same head", strings.Replace(withLines("", "", ""), "head: h2", "head: h1", 1), []string{
			"7:50: routes.main.targets[1].head: is the head of routes.main.targets[0] too: each target needs its own",
		}},
		{"no cost", strings.Replace(withLines("", "", ""), ", cost: 0.1", "", 1), []string{
			"7:9: routes.main.targets[1].cost: is missing: what a call costs, in any unit that all targets of the route share",
		}},
		{"negative cost", strings.Replace(withLines("", "", ""), "cost: 0.1", "cost: -1", 1), []string{
			"7:60: routes.main.targets[1].cost: must be from 0 to 1e12, got -1",
		}},
		{"infinite cost", strings.Replace(withLines("", "", ""), "cost: 0.1", "cost: .inf", 1), []string{
			"7:60: routes.main.targets[1].cost: must be from 0 to 1e12, got +Inf",
		}},
		{"unknown tier", strings.Replace(withLines("", "", ""), "tier: weak", "tier: medium", 1), []string{
			`7:28: routes.main.targets[1].tier: must be strong, weak or absent, got "medium"`,
		}},
		{"blank model", strings.Replace(withLines("", "", ""), "model: w", `model: " "`, 1), []string{
			"7:41: routes.main.targets[1].model: must not be empty: the model to call, handed to the caller as it is",
		}},
		{"bad route name", strings.ReplaceAll(withLines("", "", ""), "  main:", "  main route:"), []string{
			`3:5: routes."main route": a name must be 1 to 64 letters, digits, dots, dashes or underscores, and begin with a letter or digit`,
		}},
		{"one folder for two endpoints", withLines("", "", "") + "  two:\n    encoder: e\n    endpoints:\n      - {base_url: http://a, hidden_states_dir: /a}\n      - {base_url: http://b, hidden_states_dir: /a/}\n", []string{
			"16:49: probes.two.endpoints[1].hidden_states_dir: is the folder of probes.two.endpoints[0] too: each endpoint needs its own",
		}},
		{"sweep too early", withLines("", "    sweep: {min_age: 72s}\n", ""), []string{
			"12:22: probes.qwen.sweep.min_age: must be more than queue_timeout + request_timeout + artifact_timeout (1m12s), got 1m12s: a younger file may still be awaited",
		}},
		{"time-outs beyond the default sweep", withLines("", "    request_timeout: 10m\n", ""), []string{
			"10:5: probes.qwen.sweep.min_age: must be more than queue_timeout + request_timeout + artifact_timeout (10m12s), got 5m: a younger file may still be awaited",
		}},
		{"relative reported_dir", strings.Replace(withLines("", "", ""), "/d}", "/d, reported_dir: d}", 1), []string{
			"11:82: probes.qwen.endpoints[0].reported_dir: must be absolute: it is the folder as vLLM reports it",
		}},
		{"small messages", withLines("", "", "grpc: {max_message_bytes: 1MiB}\n"), []string{
			"12:27: grpc.max_message_bytes: must be at least 64KiB more than max_task_bytes (1MiB), got 1MiB: raise it or lower max_task_bytes",
		}},
		{"address without a port", withLines("", "", "grpc: {listen: localhost}\n"), []string{
			"12:16: grpc.listen: must be host:port with a port from 0 to 65535, such as 127.0.0.1:50051 or :50051",
		}},
		{"port too large", withLines("", "", "admin: {listen: \":65536\"}\n"), []string{
			"12:17: admin.listen: must be host:port with a port from 0 to 65535, such as 127.0.0.1:50051 or :50051",
		}},
		{"one port for two", withLines("", "", "admin: {listen: \"127.0.0.1:50051\"}\n"), []string{
			"12:17: admin.listen: is the address of grpc.listen too: give each its own port",
		}},
		{"half of TLS", withLines("", "", "grpc:\n  tls: {cert_file: a}\n  auth:\n"), []string{
			"13:8: grpc.tls.key_file: is missing: PEM file with the private key",
			"14:8: grpc.auth.tokens_file: is missing: file with the accepted bearer tokens, one a line: NAME TOKEN [PERMISSION,...], the permissions being trade_off, refresh, bypass or all",
		}},
		{"Redis without an address", withLines("", "", "cache:\n  redis:\n"), []string{
			"13:9: cache.redis.url: is missing: redis://host:port/db, redis+sentinel://host:port,…/master/db or redis+cluster://host:port,…; with rediss for TLS. No user name or password in it",
		}},
		{"Redis at a port there is none", withLines("", "", "cache:\n  redis: {url: \"redis+cluster://a:6379,b:63790,c:637900/0\"}\n"), []string{
			"13:16: cache.redis.url: a port is not from 1 to 65535; want redis://host:port/db, redis+sentinel://host:port,…/master/db or redis+cluster://host:port,…, or the same with rediss for TLS",
		}},
		{"sentinels of no master", withLines("", "", "cache:\n  redis: {url: \"redis+sentinel://[::1]:26379,h\"}\n"), []string{
			"13:16: cache.redis.url: no name of the master behind the sentinels; want redis://host:port/db, redis+sentinel://host:port,…/master/db or redis+cluster://host:port,…, or the same with rediss for TLS",
		}},
		{"Redis database that is no number", withLines("", "", "cache:\n  redis: {url: \"redis://h/one\"}\n"), []string{
			"13:16: cache.redis.url: database is not a number; want redis://host:port/db, redis+sentinel://host:port,…/master/db or redis+cluster://host:port,…, or the same with rediss for TLS",
		}},
		{"Redis TLS in plaintext", withLines("", "", "cache:\n  redis: {url: \"redis://h\", tls: {cert_file: a}}\n"), []string{
			"13:34: cache.redis.tls: needs a URL that begins with rediss",
		}},
		{"half of a client certificate", withLines("", "", "cache:\n  redis: {url: \"rediss://h\", tls: {cert_file: a}}\n"), []string{
			"13:35: cache.redis.tls: has one of cert_file and key_file: give both or neither",
		}},

		// Kinds of probes.
		{"vLLM without its own", withLines("", "", "") + "  two: {max_queue: 1}\n", []string{
			"12:8: probes.two.encoder: is missing: the model whose hidden states are read; equals the checkpoint's encoder. Kind lexical: pointsman/lexical-1",
			"12:8: probes.two.endpoints: is missing: where vLLM answers: one or more servers of the same model, each with a folder of its own. The one with the least work is asked",
		}},
		{"vLLM with nothing in its own", withLines("", "", "") + "  two: {encoder: ' ', endpoints: []}\n", []string{
			"12:18: probes.two.encoder: must not be empty: the model whose hidden states are read; equals the checkpoint's encoder. Kind lexical: pointsman/lexical-1",
			"12:34: probes.two.endpoints: must not be empty: where vLLM answers: one or more servers of the same model, each with a folder of its own. The one with the least work is asked",
		}},
		{"lexical with vLLM's own", withLines("", "", "") + "  two: {kind: lexical, max_queue: 64, sweep: {all: true}}\n", []string{
			"12:35: probes.two.max_queue: means nothing to a probe of kind lexical: remove it",
			"12:46: probes.two.sweep: means nothing to a probe of kind lexical: remove it",
		}},
		{"lexical of another encoder", withLines("", "", "") + "  two: {kind: lexical, encoder: e}\n", []string{
			"12:33: probes.two.encoder: must be pointsman/lexical-1, or absent: a probe of kind lexical has no other",
		}},

		// Backups.
		{"backup on the route's own probe", withLines("    backup: {probe: qwen, checkpoint: c}\n", "", ""), []string{
			"8:21: routes.main.backup.probe: is the route's own probe: a backup is for when that fails",
		}},
		{"backup without a checkpoint, on no probe", withLines("    backup: {probe: gwen}\n", "", ""), []string{
			"8:13: routes.main.backup.checkpoint: is missing: folder with the router.json and router.safetensors for that probe",
			"8:21: routes.main.backup.probe: there is no such probe; did you mean qwen?",
		}},

		// Everything at once, in the order of the file.
		{"many", withLines("    mode: x\n    fallback: none\n", "    max_queue: -1\n    kind: llama\n", "log: {level: loud}\nlogs: 1\n"), []string{
			`8:11: routes.main.mode: must be serve or shadow, got "x"`,
			"9:15: routes.main.fallback: there is no such target; there are: strong, weak",
			"14:16: probes.qwen.max_queue: must be from 0 to 1048576, got -1",
			`15:11: probes.qwen.kind: must be vllm or lexical, got "llama"`,
			`16:14: log.level: must be debug, info, warn or error, got "loud"`,
			"17:1: logs: unknown key; did you mean log?",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("conf/p.yaml", []byte(tt.in), env())
			if diff := cmp.Diff(tt.want, problemLines(t, err)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// problemLines returns the lines of err without the file's name, after checking
// that err is made of nothing but Problems.
func problemLines(t *testing.T, err error) []string {
	t.Helper()
	var lines []string
	for _, p := range Problems(err) {
		line, ok := strings.CutPrefix(p.Error(), "conf/p.yaml:")
		if !ok || p.File != "conf/p.yaml" || p.Line < 1 || p.Column < 1 {
			t.Errorf("problem without file or position: %+v", p)
		}
		lines = append(lines, line)
	}
	if err != nil && "conf/p.yaml:"+strings.Join(lines, "\nconf/p.yaml:") != err.Error() {
		t.Errorf("the error says something else than its problems:\n%v", err)
	}
	return lines
}

// No error repeats an address or what stands where a secret's name should be.
func TestParseProblemsDoNotShowSecrets(t *testing.T) {
	const secret = "hunter2"
	tests := []struct{ name, in, want string }{
		{"password in base_url", strings.Replace(withLines("", "", ""), "http://h:1/v1", "http://me:hunter2@h/v1", 1), "11:28: probes.qwen.endpoints[0].base_url: must not hold a user name or password; secrets have keys of their own, such as http://127.0.0.1:8000/v1"},
		{"query in base_url", strings.Replace(withLines("", "", ""), "http://h:1/v1", "http://h/v1?key=hunter2", 1), "11:28: probes.qwen.endpoints[0].base_url: must end before any ? or #, such as http://127.0.0.1:8000/v1"},
		{"other scheme", strings.Replace(withLines("", "", ""), "http://h:1/v1", "hunter2:x", 1), "11:28: probes.qwen.endpoints[0].base_url: must begin with http:// or https://, such as http://127.0.0.1:8000/v1"},
		{"no host", strings.Replace(withLines("", "", ""), "http://h:1/v1", "http:hunter2", 1), "11:28: probes.qwen.endpoints[0].base_url: must name a host, such as http://127.0.0.1:8000/v1"},
		{"unreadable URL", strings.Replace(withLines("", "", ""), "http://h:1/v1", "http://hunter2:x/%zz", 1), "11:28: probes.qwen.endpoints[0].base_url: must be a URL, such as http://127.0.0.1:8000/v1"},
		{"password in Redis's URL", withLines("", "", "cache: {redis: {url: \"redis://:hunter2@h\"}}\n"), "12:22: cache.redis.url: must not hold a user name or password; secrets have keys of their own, such as redis://127.0.0.1:6379/0"},
		{"Redis query", withLines("", "", "cache: {redis: {url: \"redis://h/0?hunter2\"}}\n"), "12:22: cache.redis.url: a query or fragment is not supported (a ? or # in a password is written %3F or %23); want redis://host:port/db, redis+sentinel://host:port,…/master/db or redis+cluster://host:port,…, or the same with rediss for TLS"},
		{"key in place of its name", withLines("", "    api_key_env: sk-hunter2\n", ""), "12:18: probes.qwen.api_key_env: must be the name of an environment variable, not the secret itself"},
		{"key that could be a name", withLines("", "    api_key_env: hf_hunter2\n", ""), "12:18: probes.qwen.api_key_env: the environment variable it names is not set: set it or remove the key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(tt.in, secret) {
				t.Fatal("the input does not hold the secret")
			}
			_, err := Parse("conf/p.yaml", []byte(tt.in), env())
			if diff := cmp.Diff([]string{tt.want}, problemLines(t, err)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseFetchesSecrets(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("key", "  sesame \t\r\n\n")
	write("empty", " \n")
	write("large", strings.Repeat("x", maxSecretBytes+1))
	tests := []struct {
		name, probe, rest string
		opts              LoadOptions
		want              string // the API key
		problems          []string
	}{
		{name: "from the environment", probe: "api_key_env: KEY", opts: env("KEY", " as it is "), want: " as it is "},
		{name: "from a file", probe: "api_key_file: key", want: "  sesame"},
		{name: "unset", probe: "api_key_env: KEY", problems: []string{
			"12:18: probes.qwen.api_key_env: the environment variable KEY is not set: set it or remove the key",
		}},
		{name: "set but empty", probe: "api_key_env: KEY", opts: env("KEY", ""), problems: []string{
			"12:18: probes.qwen.api_key_env: the environment variable KEY is set but empty: give it a value or remove the key",
		}},
		{name: "empty file", probe: "api_key_file: empty", problems: []string{
			"12:19: probes.qwen.api_key_file: the file is empty: write the secret into it or remove the key",
		}},
		{name: "missing file", probe: "api_key_file: none", problems: []string{
			"12:19: probes.qwen.api_key_file: cannot be read: no such file or directory",
		}},
		{name: "large file", probe: "api_key_file: large", problems: []string{
			"12:19: probes.qwen.api_key_file: cannot be read: it is larger than 64KiB",
		}},
		{name: "both", probe: "api_key_env: KEY\n    api_key_file: key", opts: env("KEY", "x"), problems: []string{
			"13:19: probes.qwen.api_key_file: is given beside api_key_env: use one of them",
		}},
		{name: "short cache secret", probe: "revision: x", rest: "cache: {secret_env: S}\n", opts: env("S", "0123456789abcde"), problems: []string{
			"13:21: cache.secret_env: the secret is too short: at least 16 bytes, such as those of openssl rand -base64 32",
		}},
		{name: "Redis password", probe: "revision: x", rest: "cache: {redis: {url: \"redis://h\", password_env: P}}\n", problems: []string{
			"13:49: cache.redis.password_env: the environment variable P is not set: set it or remove the key",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := withLines("", "    "+tt.probe+"\n", tt.rest)
			if tt.opts.LookupEnv == nil {
				tt.opts = env()
			}
			c, err := parse("conf/p.yaml", dir, []byte(in), tt.opts)
			if diff := cmp.Diff(tt.problems, problemLines(t, err)); diff != "" {
				t.Fatalf("problems (-want +got):\n%s", diff)
			}
			if err != nil {
				return
			}
			if got := c.Probes["qwen"].APIKey.Reveal(); got != tt.want {
				t.Errorf("API key: got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestParseResolvesPaths(t *testing.T) {
	in := withLines("", "", "grpc: {tls: {cert_file: tls/cert.pem, key_file: /abs/key.pem}}\n")
	c, err := Parse("/etc/pointsman/p.yaml", []byte(in), env())
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.Routes["main"].Checkpoint, c.Probes["qwen"].Endpoints[0].HiddenStatesDir, c.GRPC.TLS.CertFile, c.GRPC.TLS.KeyFile, c.GRPC.TLS.ClientCAFile}
	want := []string{"/etc/pointsman/router", "/d", "/etc/pointsman/tls/cert.pem", "/abs/key.pem", ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}

func TestParseFollowsAliasesAndMerges(t *testing.T) {
	in := withLines("    decide_timeout: 1s\n", "", "") + `  second: &p
    encoder: e2
    endpoints: &e [{base_url: "http://h", hidden_states_dir: d}]
    max_queue: 3
    chat_template_kwargs: {enable_thinking: false, n: 1, x: 1.5, s: a, day: 2026-01-31, none: null, l: [a]}
  third:
    <<: *p
    max_queue: 7
  fourth: {encoder: e4, endpoints: *e}
`
	c, err := Parse("p.yaml", []byte(in), env())
	if err != nil {
		t.Fatal(err)
	}
	second, third := c.Probes["second"], c.Probes["third"]
	if third.MaxQueue != 7 || second.MaxQueue != 3 {
		t.Errorf("max_queue: got %d and %d, want 3 and its own 7", second.MaxQueue, third.MaxQueue)
	}
	third.MaxQueue = 3
	if diff := cmp.Diff(second, third, secrets); diff != "" {
		t.Errorf("merged probe (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(second.Endpoints, c.Probes["fourth"].Endpoints); diff != "" {
		t.Errorf("aliased endpoints (-want +got):\n%s", diff)
	}
	want := map[string]any{"enable_thinking": false, "n": 1, "x": 1.5, "s": "a", "day": "2026-01-31", "none": nil, "l": []any{"a"}}
	if diff := cmp.Diff(want, second.ChatTemplateKwargs); diff != "" {
		t.Errorf("chat_template_kwargs (-want +got):\n%s", diff)
	}
	if c.DefaultRoute != "main" {
		t.Errorf("default route of a single route: got %q, want main", c.DefaultRoute)
	}
}

func TestParseReportsAMistakeBehindAnAliasOncePerUse(t *testing.T) {
	in := withLines("", "    breaker: &b {failures: 0}\n", "") + "  two: {encoder: e, endpoints: [{base_url: http://h, hidden_states_dir: d}], breaker: *b}\n"
	_, err := Parse("conf/p.yaml", []byte(in), env())
	want := []string{
		"12:28: probes.qwen.breaker.failures: must be from 1 to 1000000, got 0",
		"12:28: probes.two.breaker.failures: must be from 1 to 1000000, got 0",
	}
	if diff := cmp.Diff(want, problemLines(t, err)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// Each of these few lines stands for far more than memory holds, or for itself.
func TestParseSurvivesBombs(t *testing.T) {
	laughs := "k0: &k0 [x]\n"
	for i := range 40 {
		laughs += fmt.Sprintf("        k%d: &k%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*k%d, ", i), 10), ", "))
	}
	tests := map[string]struct{ in, want string }{
		"aliases of aliases": {withLines("", "    chat_template_kwargs:\n        "+laughs, ""), "the file stands for more than 100000 values once its aliases are followed"},
		"itself":             {withLines("", "    chat_template_kwargs: &k {x: [*k]}\n", ""), "is nested more than 32 deep"},
		"merged itself":      {withLines("", "    chat_template_kwargs: &k {<<: *k}\n", ""), "merges more than 32 deep"},
		"merges of itself":   {withLines("", "    chat_template_kwargs: &k {<<: [*k, *k, *k]}\n", ""), "the file stands for more than 100000 values once its aliases are followed"},
		"deep":               {"a: " + strings.Repeat("[", 20000), "exceeded max depth of 10000"},
		"large":              {strings.Repeat("# nothing\n", maxFileBytes/10+1), "the file is larger than 1MiB, the limit for a configuration"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("conf/p.yaml", []byte(tt.in), env())
			if lines := problemLines(t, err); len(lines) == 0 || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %.300v, want %q", err, tt.want)
			}
		})
	}
}

func TestValidateWithoutAFile(t *testing.T) {
	c := wantMinimal("/d")
	if err := c.Validate(); err != nil {
		t.Fatalf("good configuration: %v", err)
	}
	route := c.Routes["main"]
	route.Fallback = "none"
	c.Routes["main"] = route
	c.GRPC.DeadlineMargin = Duration(time.Hour)
	want := "grpc.deadline_margin: must be from 0s to 1s, got 1h\nroutes.main.fallback: there is no such target; there are: strong, weak"
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
