package test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

// TestNothingAskedIsRevealed asks about random texts with everything on that looks or
// writes: tracing of every call, exported by OTLP, debug logs, Redis, the decision
// record, and every fault of the stand-in for vLLM, whose answers quote the prompt as
// vLLM's do. Then it looks for the texts, their tokens and the keys wherever something
// was left. At the end it leaves them there itself, and must find them all.
func TestNothingAskedIsRevealed(t *testing.T) {
	collector := startCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")

	canary := newCanary(t)
	redisServer := redistest.Start(t, "--requirepass", canary.redisPassword)
	w := start(t, setup{
		sim: vllmsim.Config{WriteDelay: 5 * time.Millisecond, APIKey: canary.apiKey},
		probeYAML: `
api_key_env: VLLM_KEY
max_in_flight: 128
queue_timeout: 1s
request_timeout: 3s
artifact_timeout: 1s
sweep: { interval: 100ms, min_age: 5001ms }
breaker: { failures: 1000000, open_for: 1ms }
`,
		routeYAML: "decide_timeout: 1m",
		env: map[string]string{
			"VLLM_KEY": canary.apiKey, "CACHE_SECRET": canary.cacheSecret,
			"REDIS_PASSWORD": canary.redisPassword, "RECORD_SECRET": canary.recordSecret,
		},
		moreYAML: fmt.Sprintf(`
log: { level: debug }
cache:
  secret_env: CACHE_SECRET
  redis: { url: %q, password_env: REDIS_PASSWORD, op_timeout: 100ms }
record: { file: ./record/decisions.jsonl, secret_env: RECORD_SECRET }
`, "redis://"+redisServer.Addr),
	})

	answers := askEverything(t, w, canary)
	pages := w.adminPages(t)
	w.sim.ReleaseLocks()
	eventually(t, func() string { return strings.Join(w.ownedFiles(t), "\n") })
	w.stop()
	places := []place{
		{"the answers and errors", answers},
		{"the log", []byte(w.log.String())},
		{"what was exported", collector.received()},
		{"Redis", dump(t, redisServer.Addr, canary.redisPassword)},
		{"the files", readTree(t, w.root)},
	}
	for name, page := range pages {
		places = append(places, place{"admin page " + name, page})
	}
	for _, p := range places {
		if len(p.content) == 0 {
			t.Errorf("nothing is in %s: the test looks in the wrong place", p.name)
		}
		for _, what := range canary.in(p.content) {
			t.Errorf("%s: found %s", p.name, what)
		}
	}
	if t.Failed() {
		return
	}
	t.Run("what is left there is found", func(t *testing.T) { proveItCanFail(t, w, canary, collector, redisServer.Addr) })
}

// askEverything drives the service through every origin, fault and refusal, and returns
// all that the caller gets to see.
func askEverything(t *testing.T, w *world, c *canary) []byte {
	t.Helper()
	var seen safeBuffer
	ask := func(req *pointsmanv1.DecideRequest) {
		var header, trailer metadata.MD
		resp, err := w.client.Decide(t.Context(), req, grpc.Header(&header), grpc.Trailer(&trailer))
		see(t, &seen, resp, err, header, trailer)
	}
	conversation := &pointsmanv1.DecideRequest{Input: &pointsmanv1.DecideRequest_Conversation{Conversation: &pointsmanv1.Conversation{
		Messages: []*pointsmanv1.ChatMessage{{
			Role:  pointsmanv1.Role_ROLE_USER,
			Parts: []*pointsmanv1.ContentPart{{Kind: &pointsmanv1.ContentPart_Text{Text: c.task(0)}}},
		}},
	}}}
	for _, req := range []*pointsmanv1.DecideRequest{
		task(c.task(0)), task(c.task(0)), conversation,
		{Input: task(c.task(1)).GetInput(), CacheNamespace: c.namespace},
		{Input: task(c.task(1)).GetInput(), CachePolicy: pointsmanv1.CachePolicy_CACHE_POLICY_BYPASS},
		{Input: task(c.task(1)).GetInput(), CachePolicy: pointsmanv1.CachePolicy_CACHE_POLICY_REFRESH},
		{Input: task(c.task(2)).GetInput(), CachePolicy: pointsmanv1.CachePolicy_CACHE_POLICY_ONLY_IF_CACHED},
		{Input: task(c.task(2)).GetInput(), Route: "nowhere"},
		{Input: task(c.task(2)).GetInput(), AllowedTargets: []string{"nothing"}},
		{Input: task(c.task(2)).GetInput(), TradeOff: &pointsmanv1.DecideRequest_Tolerance{Tolerance: 2}},
		task(strings.Repeat(c.task(2), (1<<20)/len(c.task(2))+1)), // too large
	} {
		ask(req)
	}
	outside := filepath.Join(w.root, "outside")
	writeFile(t, filepath.Join(outside, "bystander.safetensors"))
	// All at once: most of a fault is waiting, and which call meets which is all one.
	var calls sync.WaitGroup
	for i, fault := range vllmsim.AllFaults(outside) {
		w.sim.QueueFaults(fault.Fault)
		req := task(c.task(3 + i))
		if i%2 == 1 {
			req.FallbackPolicy = pointsmanv1.FallbackPolicy_FALLBACK_POLICY_FAIL
		}
		calls.Go(func() { ask(req) })
	}
	calls.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
	defer cancel()
	resp, err := w.client.Decide(ctx, task(c.task(1000)))
	see(t, &seen, resp, err, nil, nil)
	if got := w.sim.Requests(); !strings.Contains(got[len(got)-1].Task, c.word) {
		t.Fatal("the stand-in was not asked about the canary")
	}
	return []byte(seen.String())
}

// see writes down all that a caller sees of one call.
func see(t *testing.T, into *safeBuffer, resp *pointsmanv1.DecideResponse, err error, mds ...metadata.MD) {
	t.Helper()
	for _, m := range []proto.Message{resp, status.Convert(err).Proto()} {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = into.Write(raw) // it is memory
	}
	fmt.Fprintln(into, resp, err, mds)
}

// place is somewhere that something may have been left.
type place struct {
	name    string
	content []byte
}

// canary is what must not be found: made anew for every run.
type canary struct {
	word, namespace                                  string
	apiKey, cacheSecret, recordSecret, redisPassword string
}

func newCanary(t *testing.T) *canary {
	t.Helper()
	letters := func(prefix string) string {
		raw := make([]byte, 12)
		_, _ = rand.Read(raw) // never fails
		for i := range raw {
			raw[i] = 'a' + raw[i]%26
		}
		return prefix + string(raw)
	}
	return &canary{
		word: letters("task"), namespace: letters("namespace"), apiKey: letters("apikey"), cacheSecret: letters("cachesecret"),
		recordSecret: letters("recordsecret"), redisPassword: letters("redispassword"),
	}
}

// task is the n-th text of the canary.
func (c *canary) task(n int) string { return fmt.Sprintf("%s, please, %d times.", c.word, n) }

// in says what of the canary is in a content, in the encodings things are written in.
func (c *canary) in(content []byte) []string {
	var found []string
	look := func(what string, pattern []byte) {
		if bytes.Contains(content, pattern) {
			found = append(found, what)
		}
	}
	for what, text := range map[string]string{
		"the task": c.word, "the namespace": c.namespace, "the API key": c.apiKey, "the cache's secret": c.cacheSecret,
		"the record's secret": c.recordSecret, "Redis' password": c.redisPassword,
	} {
		look(what, []byte(text))
		look(what+" in hex", []byte(hex.EncodeToString([]byte(text))))
		// Of the three ways to stand in base64, the middle is looked for.
		for shift := range 3 {
			encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(" ", shift) + text))
			look(what+" in base64", []byte(encoded[4:len(encoded)-4]))
		}
	}
	// Bare digests of short texts can be searched.
	digest := sha256.Sum256([]byte(c.task(0)))
	look("the task's bare digest", digest[:])
	look("the task's bare digest in hex", []byte(hex.EncodeToString(digest[:8])))
	decimal, raw := c.tokens()
	look("the task's tokens", raw)
	for _, separator := range []string{",", " ", ", "} {
		look("the task's tokens in decimal", []byte(strings.Join(decimal, separator)))
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// tokens are those of the canary's word alone, in decimal and as an artifact has them.
func (c *canary) tokens() (decimal []string, raw []byte) {
	all := vllmsim.Tokens(c.word)
	// The tokens of the chat template stand around those of the text.
	empty := vllmsim.Tokens("")
	before := 0
	for before < len(empty) && empty[before] == all[before] {
		before++
	}
	for _, id := range all[before : before+len(all)-len(empty)] {
		decimal = append(decimal, fmt.Sprint(id))
		raw = binary.LittleEndian.AppendUint64(raw, uint64(id))
	}
	return decimal, raw
}

// collector is an OTLP collector that keeps what it gets as it gets it.
type collector struct {
	url string
	mu  sync.Mutex
	got bytes.Buffer
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		fmt.Fprintln(&c.got, r.URL, r.Header)
		c.got.Write(body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(web.Close)
	c.url = web.URL
	return c
}

func (c *collector) received() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.got.Bytes())
}

// adminPages are all pages of the admin port.
func (w *world) adminPages(t *testing.T) map[string][]byte {
	t.Helper()
	pages := map[string][]byte{}
	for _, path := range []string{
		"/metrics", "/livez", "/readyz", "/configz", "/loglevel", "/debug/pprof/", "/debug/pprof/cmdline",
		"/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1", "/debug/pprof/allocs?debug=1",
	} {
		code, body := w.get(t, path)
		if code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
		pages[path] = []byte(body)
	}
	return pages
}

// ownedFiles are the artifacts and locks that our requests left.
func (w *world) ownedFiles(t *testing.T) []string {
	t.Helper()
	var ours []string
	for _, name := range w.files(t) {
		info, err := os.Lstat(filepath.Join(w.dir, name))
		if err == nil && !info.IsDir() && strings.HasPrefix(name, "chatcmpl-pm-") {
			ours = append(ours, name)
		}
	}
	return ours
}

// dump is every key of a Redis with its value.
func dump(t *testing.T, addr, password string) []byte {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, Password: password})
	defer client.Close()
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, key := range keys {
		value, err := client.Get(t.Context(), key).Bytes()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n%s\n", key, value)
	}
	return b.Bytes()
}

// readTree is every file below root, names too, but for those the faults of the
// stand-in put outside of its folder, or into a folder within: a name with a folder
// in it is refused, and what is there is not the service's to remove.
func readTree(t *testing.T, root string) []byte {
	t.Helper()
	var b bytes.Buffer
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "outside" || d.Name() == "nested"):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		fmt.Fprintln(&b, path)
		b.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// proveItCanFail leaves the canary in every place, by the ways things get there, and
// looks for it as the test does.
func proveItCanFail(t *testing.T, w *world, c *canary, collector *collector, redisAddr string) {
	exporter, err := otlptracehttp.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	provider := trace.NewTracerProvider(trace.WithSyncer(exporter))
	_, span := provider.Tracer("leak").Start(t.Context(), "leak")
	span.SetAttributes(attribute.String("task", c.task(0)), attribute.String("key", c.apiKey))
	span.End()
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: redisAddr, Password: c.redisPassword})
	defer client.Close()
	if err := client.Set(t.Context(), c.namespace, c.task(0), 0).Err(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(w.log, `{"msg":"leak","error":%q}`, c.task(0)+c.cacheSecret)
	_, raw := c.tokens()
	artifact := filepath.Join(w.dir, "chatcmpl-pm-leak.safetensors")
	if err := os.WriteFile(artifact, append([]byte("header"), raw...), 0o600); err != nil {
		t.Fatal(err)
	}
	decimal, _ := c.tokens()
	digest := sha256.Sum256([]byte(c.task(0)))
	for _, p := range []struct {
		place

		want []string
	}{
		{place{"what was exported", collector.received()}, []string{"the API key", "the task"}},
		{place{"Redis", dump(t, redisAddr, c.redisPassword)}, []string{"the namespace", "the task"}},
		{place{"the log", []byte(w.log.String())}, []string{"the cache's secret", "the task"}},
		{place{"the files", readTree(t, w.root)}, []string{"the task's tokens"}},
		{place{"tokens in JSON", []byte("[" + strings.Join(decimal, ",") + "]")}, []string{"the task's tokens in decimal"}},
		{place{"a digest", []byte(hex.EncodeToString(digest[:]))}, []string{"the task's bare digest in hex"}},
		{place{"base64", []byte(base64.StdEncoding.EncodeToString([]byte(c.task(0))))}, []string{"the task in base64"}},
	} {
		if got := c.in(p.content); !slices.Equal(got, p.want) {
			t.Errorf("%s: found %q, want %q", p.name, got, p.want)
		}
	}
}
