package test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

// fleet is several processes of the real program that share a Redis, a stand-in
// for vLLM and a folder.
type fleet struct {
	sim      *vllmsim.Server
	redis    *redistest.Server
	replicas []*replica
}

// replica is one process.
type replica struct {
	process *exec.Cmd
	client  pointsmanv1.DecisionServiceClient
	admin   string
	log     *safeBuffer
}

// fleetSetup is what a test wants of its fleet.
type fleetSetup struct {
	replicas  int
	sim       vllmsim.Config
	cacheYAML string // further lines of the cache
	env       []string
	redisURL  string // in place of the server's own, for a proxy in between
	redis     *redistest.Server
	// members and heads of the checkpoint; 0: three and two
	members, heads int
}

func startFleet(t testing.TB, s fleetSetup) *fleet {
	t.Helper()
	root := t.TempDir()
	f := &fleet{redis: s.redis}
	if f.redis == nil {
		f.redis = redistest.Start(t)
	}
	s.sim.Dir, s.sim.Model, s.sim.Layers, s.sim.HiddenSize = filepath.Join(root, "hidden-states"), encoder, layers, hiddenSize
	if err := os.Mkdir(s.sim.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.sim, err = vllmsim.New(s.sim); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(f.sim.Handler())
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		if err := f.sim.Close(); err != nil {
			t.Error(err)
		}
	})
	saveCheckpointOf(t, filepath.Join(root, "router"), layers, max(s.members, 3), max(s.heads, 2))
	if s.redisURL == "" {
		s.redisURL = "redis://" + f.redis.Addr
	}
	binary := buildProgram(t)
	for i := range s.replicas {
		ports := [2]int{redistest.FreePort(t), redistest.FreePort(t)}
		config := filepath.Join(root, fmt.Sprintf("replica-%d.yaml", i))
		text := fmt.Sprintf(`
grpc: { listen: "127.0.0.1:%d" }
admin: { listen: "127.0.0.1:%d" }
shutdown: { drain_delay: 0s }
routes:
  main:
    probe: p
    checkpoint: ./router
    decide_timeout: 1m
    targets:
      - { name: strong, tier: strong, model: provider/strong, head: strong, cost: 1 }
      - { name: weak, tier: weak, model: provider/weak, head: weak, cost: 0.25 }
probes:
  p:
    encoder: %q
    endpoints: [ { base_url: %q, hidden_states_dir: ./hidden-states } ]
cache:
    redis: { url: %q, op_timeout: 100ms }
%s
`, ports[0], ports[1], encoder, web.URL+"/v1", s.redisURL, indent(s.cacheYAML))
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f.replicas = append(f.replicas, startReplica(t, binary, config, s.env, ports))
	}
	return f
}

// startBare starts a process and does not wait for it.
func startBare(t testing.TB, binary, config string, ports [2]int, env ...string) *replica {
	t.Helper()
	r := &replica{log: &safeBuffer{}, admin: fmt.Sprintf("http://127.0.0.1:%d", ports[1])}
	r.process = exec.Command(binary, "serve", "--config", config)
	r.process.Env = append(os.Environ(), env...)
	r.process.Stderr = r.log
	if err := r.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.process.Process.Signal(syscall.SIGTERM) // it may be dead already
		_ = r.process.Wait()
		if t.Failed() {
			t.Logf("the log of the replica at %s:\n%s", r.admin, tail(r.log.String()))
		}
	})
	return r
}

func startReplica(t testing.TB, binary, config string, env []string, ports [2]int) *replica {
	t.Helper()
	r := startBare(t, binary, config, ports, env...)
	conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", ports[0]), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r.client = pointsmanv1.NewDecisionServiceClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatalf("the replica does not come up: %v\n%s", err, r.log.String())
	}
	eventually(t, func() string { // Redis is looked for in the background
		if body := fetch(t, r.admin+"/readyz"); !strings.Contains(body, `"state": "READY"`) || strings.Contains(body, "DEGRADED") {
			return body
		}
		return ""
	})
	return r
}

// tail is the end of a log that may be long.
func tail(text string) string {
	const most = 4000
	return text[max(0, len(text)-most):]
}

func fetch(t testing.TB, url string) string {
	t.Helper()
	w := &world{admin: url}
	_, body := w.get(t, "")
	return body
}

// buildProgram builds the real program, once for all tests.
func buildProgram(t testing.TB) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "pointsman")
	cmd := exec.Command("go", "build", "-o", path, "../server/cmd/pointsman")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the program: %w\n%s", err, out)
	}
	return path, nil
})

// askAll sends a task n times over the given replicas, at once, and hands back the
// answers.
func askAll(t testing.TB, replicas []*replica, n int, text string) []*pointsmanv1.DecideResponse {
	t.Helper()
	answers := make([]*pointsmanv1.DecideResponse, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			resp, err := replicas[i%len(replicas)].client.Decide(t.Context(), task(text))
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
			answers[i] = resp
		})
	}
	wg.Wait()
	return answers
}

func originsOf(answers []*pointsmanv1.DecideResponse) map[pointsmanv1.Origin]int {
	count := map[pointsmanv1.Origin]int{}
	for _, a := range answers {
		count[a.GetOrigin()]++
	}
	return count
}

func TestAFleetMakesOneProbeForOneTask(t *testing.T) {
	f := startFleet(t, fleetSetup{replicas: 3, sim: vllmsim.Config{Latency: 500 * time.Millisecond}})
	answers := askAll(t, f.replicas, 300, "One for all.")
	origins := originsOf(answers)
	if got := f.sim.Stats().Requests; got != 1 {
		t.Errorf("%d probes were sent, want 1 (%v)", got, origins)
	}
	if origins[pointsmanv1.Origin_ORIGIN_COMPUTED] != 1 || origins[pointsmanv1.Origin_ORIGIN_UNSPECIFIED] != 0 {
		t.Errorf("origins %v", origins)
	}
	for _, a := range answers {
		if a.GetTarget() != answers[0].GetTarget() || a.GetScores()[1].GetProbability() != answers[0].GetScores()[1].GetProbability() {
			t.Fatalf("the replicas disagree: %v and %v", answers[0], a)
		}
	}
}

func TestOriginsOverTwoReplicas(t *testing.T) {
	f := startFleet(t, fleetSetup{replicas: 2})
	ask := func(i int) pointsmanv1.Origin {
		resp, err := f.replicas[i].client.Decide(t.Context(), task("In order."))
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetOrigin()
	}
	if got := ask(0); got != pointsmanv1.Origin_ORIGIN_COMPUTED {
		t.Errorf("first: %v", got)
	}
	f.awaitStored(t, 1)
	if got := ask(1); got != pointsmanv1.Origin_ORIGIN_SHARED_CACHE {
		t.Errorf("second: %v", got)
	}
	if got := ask(1); got != pointsmanv1.Origin_ORIGIN_LOCAL_CACHE {
		t.Errorf("third: %v", got)
	}
}

// awaitStored waits until Redis holds n values, which are stored off the path of
// the answer, and no lease.
func (f *fleet) awaitStored(t testing.TB, n int) {
	t.Helper()
	client := f.redis.Client()
	defer client.Close()
	eventually(t, func() string {
		keys, err := client.Keys(t.Context(), "*").Result()
		if err != nil {
			return err.Error()
		}
		values := 0
		for _, k := range keys {
			if strings.HasSuffix(k, ":v") {
				values++
			}
		}
		if values != n || len(keys) != n {
			return fmt.Sprintf("%d values among %d keys, want %d and no lease", values, len(keys), n)
		}
		return ""
	})
}

// TestAKilledLeaderIsTakenOverOnce kills the process that computes. Exactly one
// other takes over, and every surviving caller gets a learned answer.
func TestAKilledLeaderIsTakenOverOnce(t *testing.T) {
	f := startFleet(t, fleetSetup{replicas: 3, sim: vllmsim.Config{Latency: 2 * time.Second}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		_, _ = f.replicas[0].client.Decide(ctx, task("Who leads?")) // it dies with its server
	}()
	eventually(t, func() string {
		if f.sim.Stats().InFlight == 1 {
			return ""
		}
		return "no probe is under way"
	})
	answered := make(chan []*pointsmanv1.DecideResponse, 1)
	go func() { answered <- askAll(t, f.replicas[1:], 100, "Who leads?") }()
	time.Sleep(300 * time.Millisecond) // so that most of them wait for the lease
	if err := f.replicas[0].process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	origins := originsOf(<-answered)
	<-lost
	if got := f.sim.Stats().Requests; got != 2 {
		t.Errorf("%d probes were sent, want the killed one and one more (%v)", got, origins)
	}
	if origins[pointsmanv1.Origin_ORIGIN_COMPUTED] != 1 || origins[pointsmanv1.Origin_ORIGIN_UNSPECIFIED] != 0 {
		t.Errorf("origins %v", origins)
	}
	f.awaitStored(t, 1)
}

// TestRedisStandingStillIsHardlyNoticed stops Redis under load: every call is still
// answered by learning, nothing piles up, and the shared cache is used again when
// Redis goes on.
func TestRedisStandingStillIsHardlyNoticed(t *testing.T) {
	f := startFleet(t, fleetSetup{replicas: 2})
	round := func(name string) {
		for i := range 40 {
			for j, a := range askAll(t, f.replicas, 8, fmt.Sprintf("%s %d.", name, i)) {
				if a.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED {
					t.Errorf("%s %d, call %d: %v %v", name, i, j, a.GetBasis(), a.GetFallbackReason())
				}
			}
		}
	}
	round("Before")
	before := goroutines(t, f.replicas[0])
	f.redis.Signal(syscall.SIGSTOP)
	round("Meanwhile")
	if after := goroutines(t, f.replicas[0]); after > before+50 {
		t.Errorf("%d goroutines, %d before", after, before)
	}
	f.redis.Signal(syscall.SIGCONT)
	for i, r := range f.replicas {
		eventually(t, func() string {
			if body := fetch(t, r.admin+"/readyz"); strings.Contains(body, "DEGRADED") {
				return fmt.Sprintf("replica %d: %s", i, body)
			}
			return ""
		})
	}
	first, err := f.replicas[0].client.Decide(t.Context(), task("After."))
	if err != nil || first.GetOrigin() != pointsmanv1.Origin_ORIGIN_COMPUTED {
		t.Fatalf("%v %v", first, err)
	}
	eventually(t, func() string {
		req := task("After.")
		req.CachePolicy = pointsmanv1.CachePolicy_CACHE_POLICY_ONLY_IF_CACHED
		resp, err := f.replicas[1].client.Decide(t.Context(), req)
		if err != nil || resp.GetOrigin() == pointsmanv1.Origin_ORIGIN_UNSPECIFIED {
			return fmt.Sprint(resp.GetFallbackReason(), err)
		}
		return ""
	})
}

// goroutines counts those of a replica.
func goroutines(t testing.TB, r *replica) int {
	t.Helper()
	found := regexp.MustCompile(`total (\d+)`).FindStringSubmatch(fetch(t, r.admin+"/debug/pprof/goroutine?debug=1"))
	if found == nil {
		t.Fatal("the profile of goroutines has another form")
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRedisKnowsNothing looks through all that a fleet with a secret stores, and
// changes it.
func TestRedisKnowsNothing(t *testing.T) {
	const secretTask = "A task that Redis must not know."
	f := startFleet(t, fleetSetup{
		replicas: 2, cacheYAML: "secret_env: TEST_CACHE_SECRET", env: []string{"TEST_CACHE_SECRET=0123456789abcdef0123456789abcdef"},
	})
	askAll(t, f.replicas[:1], 1, secretTask)
	askAll(t, f.replicas[:1], 1, "Another.")
	f.awaitStored(t, 2)
	client := f.redis.Client()
	defer client.Close()
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	values := make([][]byte, len(keys))
	for i, key := range keys {
		if values[i], err = client.Get(t.Context(), key).Bytes(); err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"task", "Redis must", "Another", encoder, "sha256:"} {
			if strings.Contains(key, word) || strings.Contains(string(values[i]), word) {
				t.Errorf("Redis holds %q", word)
			}
		}
		if ttl, err := client.TTL(t.Context(), key).Result(); err != nil || ttl <= 0 {
			t.Errorf("a key without an end: %v %v", ttl, err)
		}
	}
	// Each value under the other's key: both were sealed with the secret, and
	// neither may be believed.
	for i, key := range keys {
		if err := client.Set(t.Context(), key, values[1-i], time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	probes := f.sim.Stats().Requests
	for _, a := range append(askAll(t, f.replicas[1:], 1, secretTask), askAll(t, f.replicas[1:], 1, "Another.")...) {
		if a.GetOrigin() != pointsmanv1.Origin_ORIGIN_COMPUTED {
			t.Errorf("a value under another key was believed: %v", a.GetOrigin())
		}
	}
	if got := f.sim.Stats().Requests - probes; got != 2 {
		t.Errorf("%d probes were sent, want 2", got)
	}
}

// TestCheckSaysWhatIsWrongWithRedis runs the real command against a Redis that is
// not there and one that wants a password.
func TestCheckSaysWhatIsWrongWithRedis(t *testing.T) {
	binary := buildProgram(t)
	guarded := redistest.Start(t, "--requirepass", "sesame")
	for _, c := range []struct{ name, url, want string }{
		{"not there", fmt.Sprintf("redis://127.0.0.1:%d", redistest.FreePort(t)), "connection refused"},
		{"wants a password", "redis://" + guarded.Addr, "password"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			saveCheckpoint(t, filepath.Join(root, "router"), layers)
			sim, err := vllmsim.New(vllmsim.Config{Dir: root, Model: encoder, Layers: layers, HiddenSize: hiddenSize})
			if err != nil {
				t.Fatal(err)
			}
			defer sim.Close()
			web := httptest.NewServer(sim.Handler())
			defer web.Close()
			defer web.CloseClientConnections()
			config := filepath.Join(root, "c.yaml")
			text := fmt.Sprintf(`
routes: { main: { probe: p, checkpoint: ./router, targets: [ { name: s, model: s, head: strong, cost: 1 }, { name: w, model: w, head: weak, cost: 0 } ] } }
probes: { p: { encoder: %q, endpoints: [ { base_url: %q, hidden_states_dir: . } ] } }
cache: { redis: { url: %q } }
`, encoder, web.URL+"/v1", c.url)
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), binary, "check", "--config", config).CombinedOutput()
			if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 {
				t.Errorf("check ended with %v, want exit code 2", err)
			}
			if !strings.Contains(strings.ToLower(string(out)), c.want) || strings.Contains(string(out), "sesame") {
				t.Errorf("check says:\n%s", out)
			}
		})
	}
}

// BenchmarkRedisEntry measures how much of Redis's memory an entry takes, with the
// five members and four heads of the original checkpoint, sealed and plain.
func BenchmarkRedisEntry(b *testing.B) {
	for _, c := range []struct{ name, cacheYAML string }{{"plain", ""}, {"sealed", "secret_env: TEST_CACHE_SECRET"}} {
		b.Run(c.name, func(b *testing.B) {
			f := startFleet(b, fleetSetup{
				replicas: 1, cacheYAML: c.cacheYAML, env: []string{"TEST_CACHE_SECRET=0123456789abcdef0123456789abcdef"},
				members: 5, heads: 4,
			})
			client := f.redis.Client()
			defer client.Close()
			before := redisMemory(b, client)
			entries := 0
			for b.Loop() {
				for range 1000 {
					entries++
					if _, err := f.replicas[0].client.Decide(b.Context(), task(fmt.Sprintf("Entry %d.", entries))); err != nil {
						b.Fatal(err)
					}
				}
			}
			f.awaitStored(b, entries)
			b.ReportMetric(float64(redisMemory(b, client)-before)/float64(entries), "bytes/entry")
		})
	}
}

// redisMemory is what Redis has allocated.
func redisMemory(t testing.TB, client *redis.Client) int {
	t.Helper()
	info, err := client.Info(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(info)
	if found == nil {
		t.Fatalf("no used_memory in %s", info)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
