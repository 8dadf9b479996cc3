package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// soak is how long a test of endurance runs: shortly, or for as long as the variable
// says.
func soak(t testing.TB, shortly time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("POINTSMAN_SOAK")
	if text == "" {
		return shortly
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("POINTSMAN_SOAK: %v", err)
	}
	return d
}

// TestReloadUnderLoad reloads every 200 ms, between two configurations that differ in
// checkpoint, costs and trade-off, and now and then in the probe, while callers ask: no
// call fails or falls back, every answer is of one configuration, and nothing is left
// of those that were replaced.
func TestReloadUnderLoad(t *testing.T) {
	const timeout = "request_timeout: 50s"
	w := start(t, setup{
		routeYAML: "policy: { tolerance: 0.2 }", probeYAML: timeout,
		// Nothing may grow by itself: neither the cache nor a log that the test keeps.
		moreYAML: "cache: { local: { max_entries: 100 } }", logTo: io.Discard,
	})
	other := filepath.Join(w.root, "other")
	saveCheckpointOf(t, other, layers, 4, 2)
	changed := strings.NewReplacer(
		filepath.Join(w.root, "router"), other, "cost: 0.25", "cost: 0.5", "tolerance: 0.2", "quality_weight: 0.7",
	).Replace(w.yaml)
	if changed == w.yaml {
		t.Fatal("nothing was changed")
	}
	// What belongs together, by the digest of the checkpoint.
	digest := w.decide(t, task("first")).GetCheckpointDigest()

	var (
		asked  atomic.Int64
		mixed  atomic.Int64
		failed atomic.Int64
	)
	check := func(resp *pointsmanv1.DecideResponse, err error) {
		asked.Add(1)
		if err != nil || resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED {
			if failed.Add(1) == 1 {
				t.Errorf("%v %v", err, resp)
			}
			return
		}
		first := resp.GetCheckpointDigest() == digest
		_, tolerance := resp.GetTradeOffUsed().(*pointsmanv1.DecideResponse_Tolerance)
		cheap := resp.GetScores()[1].GetCost() == 0.25
		if first != tolerance || first != cheap {
			mixed.Add(1)
		}
	}
	load := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				for ctx.Err() == nil {
					text := fmt.Sprintf("task %d", random.IntN(20))
					if random.IntN(2) == 0 {
						text = fmt.Sprintf("task of its own %d", random.Int64())
					}
					check(w.client.Decide(context.WithoutCancel(ctx), task(text)))
				}
			})
		}
		return func() { cancel(); callers.Wait() }
	}
	// What is compared is the service at rest, after load with reloads and without.
	stop := load()
	w.decideWhile(t, time.Second)
	stop()
	before, routines, files := heap(), runtime.NumGoroutine(), descriptors(t)
	stop = load()
	reloads := 0
	for end := time.Now().Add(soak(t, 4*time.Second)); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		reloads++
		text := w.yaml
		if reloads%2 == 1 {
			text = changed
		}
		if reloads%3 == 0 {
			text = strings.Replace(text, timeout, fmt.Sprintf("request_timeout: %ds", 51+reloads%7), 1) // another probe
		}
		if err := w.server.Reload(t.Context(), w.parse(t, text)); err != nil {
			t.Errorf("reload %d: %v", reloads, err)
		}
	}
	stop()
	if failed.Load() != 0 || mixed.Load() != 0 {
		t.Errorf("of %d calls %d failed and %d mixed two configurations", asked.Load(), failed.Load(), mixed.Load())
	}
	eventually(t, func() string {
		const allowed = 256 << 10 // what is left of twenty reloads would be twice as much
		if grown := int64(heap()) - int64(before); grown > allowed {
			return fmt.Sprintf("the heap grew by %d KiB, %d are allowed", grown>>10, allowed>>10)
		}
		if n := descriptors(t); n > files {
			return fmt.Sprintf("%d files are open, %d at first", n, files)
		}
		if n := runtime.NumGoroutine(); n > routines {
			return fmt.Sprintf("%d goroutines, %d at first", n, routines)
		}
		return ""
	})
	if left := w.files(t); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
	t.Logf("%d reloads, %d calls, heap %d KiB before, %d after", reloads, asked.Load(), before>>10, heap()>>10)
}

// decideWhile lets the load run.
func (w *world) decideWhile(t testing.TB, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		if _, err := w.client.Decide(t.Context(), task("warm")); err != nil {
			t.Fatal(err)
		}
	}
}

// descriptors is how many files this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if open, err := os.ReadDir(dir); err == nil {
			return len(open)
		}
	}
	return 0
}

func heap() uint64 {
	for range 3 { // what pools hold survives two
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// reloadState is what /readyz says of reloads.
func (w *world) reloadState(t testing.TB) (generation int, failure string) {
	t.Helper()
	_, body := w.get(t, "/readyz")
	var r struct {
		Ready  bool
		Reload struct {
			Generation int
			Error      string
		}
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatal(err)
	}
	if !r.Ready {
		t.Error("a reload took readiness away")
	}
	return r.Reload.Generation, r.Reload.Error
}

func TestABadReloadChangesNothing(t *testing.T) {
	w := start(t, setup{})
	good := w.decide(t, task("steady"))
	for name, change := range map[string][2]string{
		"checkpoint": {filepath.Join(w.root, "router"), filepath.Join(w.root, "missing")},
		"head":       {`head: "weak"`, `head: "unknown"`},
		"encoder":    {encoder, "another/encoder"},
		"tls":        {"grpc:\n", "grpc:\n    tls: { cert_file: a, key_file: b }\n"},
		"tokens":     {"grpc:\n", "grpc:\n    auth: { tokens_file: missing }\n"},
	} {
		cfg := w.parse(t, strings.Replace(w.yaml, change[0], change[1], 1))
		if err := w.server.Reload(t.Context(), cfg); err == nil {
			t.Errorf("%s: it was taken over", name)
		}
		if generation, failure := w.reloadState(t); generation != 1 || failure == "" {
			t.Errorf("%s: generation %d, error %q", name, generation, failure)
		}
		again := w.decide(t, task("steady"))
		if again.GetCheckpointDigest() != good.GetCheckpointDigest() || again.GetOrigin() != pointsmanv1.Origin_ORIGIN_LOCAL_CACHE {
			t.Errorf("%s: %v", name, again)
		}
	}
	if err := w.server.Reload(t.Context(), w.parse(t, w.yaml)); err != nil {
		t.Fatal(err)
	}
	if generation, failure := w.reloadState(t); generation != 2 || failure != "" {
		t.Errorf("mended: generation %d, error %q", generation, failure)
	}
	if !strings.Contains(w.log.String(), "is not taken over") {
		t.Error("the log does not say so")
	}
}

// TestFilesAreWatched runs the real program and changes its files under it: tokens and
// certificates by the link that Kubernetes swaps, the configuration in place, broken
// and mended, and by a SIGHUP.
func TestFilesAreWatched(t *testing.T) {
	root := t.TempDir()
	ca := newAuthority(t, root)
	secrets := filepath.Join(root, "secrets")
	if err := os.Mkdir(secrets, 0o700); err != nil {
		t.Fatal(err)
	}
	var serial int64
	swap := func(version, token string) {
		t.Helper()
		dir := filepath.Join(secrets, version)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		serial = ca.issueTo(dir, "server")
		if err := os.WriteFile(filepath.Join(dir, "tokens"), []byte("a "+token+" all\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(version, filepath.Join(secrets, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(secrets, "..tmp"), filepath.Join(secrets, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	swap("..1", plainToken)
	for _, name := range []string{"tokens", "server.pem", "server.key"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(secrets, name)); err != nil {
			t.Fatal(err)
		}
	}
	saveCheckpointOf(t, filepath.Join(root, "router"), layers, 3, 2)
	if err := os.Mkdir(filepath.Join(root, "hidden-states"), 0o700); err != nil {
		t.Fatal(err)
	}
	ports := [2]int{redistest.FreePort(t), redistest.FreePort(t)}
	file := filepath.Join(root, "pointsman.yaml")
	write := func(cost string) {
		t.Helper()
		text := fmt.Sprintf(`
grpc:
  listen: "127.0.0.1:%d"
  tls: { cert_file: secrets/server.pem, key_file: secrets/server.key }
  auth: { tokens_file: secrets/tokens }
admin: { listen: "127.0.0.1:%d" }
shutdown: { drain_delay: 0s }
routes:
  main:
    probe: p
    checkpoint: ./router
    targets:
      - { name: strong, tier: strong, model: provider/strong, head: strong, cost: %s }
      - { name: weak, tier: weak, model: provider/weak, head: weak, cost: 0.25 }
probes:
  p: { encoder: %q, endpoints: [ { base_url: "http://127.0.0.1:1/v1", hidden_states_dir: ./hidden-states } ] }
`, ports[0], ports[1], cost, encoder)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("1")
	r := startBare(t, buildProgram(t), file, ports)
	w := &world{admin: r.admin}
	eventually(t, func() string {
		if !strings.Contains(r.log.String(), `"msg":"serving"`) {
			return "not serving"
		}
		return ""
	})
	ask := func(token string) (int64, error) {
		t.Helper()
		creds := ca.client("")
		conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", ports[0]), grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var seen peerSerial
		_, err = pointsmanv1.NewDecisionServiceClient(conn).ListRoutes(withToken(t.Context(), token), &pointsmanv1.ListRoutesRequest{}, grpc.Peer(&seen.peer))
		return seen.serial(), err
	}
	if got, err := ask(plainToken); err != nil || got != serial {
		t.Fatalf("certificate %d, want %d: %v", got, serial, err)
	}
	swap("..2", powerToken)
	eventually(t, func() string {
		got, err := ask(powerToken)
		_, old := ask(plainToken)
		if err != nil || got != serial || status.Code(old) != codes.Unauthenticated {
			return fmt.Sprintf("certificate %d, want %d: %v; the old token: %v", got, serial, err, old)
		}
		return ""
	})
	tokenFile := filepath.Join(root, "token")
	if err := os.WriteFile(tokenFile, []byte(powerToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"ready", []string{"healthcheck", "--config", file, "--token-file", tokenFile}},
		{"ready", []string{"healthcheck", "--config", file, "--admin"}},
		{"Unauthenticated", []string{"healthcheck", "--config", file}},
		{"FALLBACK", []string{"decide", "--addr", address, "--ca", ca.file("ca.pem"), "--token-file", tokenFile, "task"}},
		{"Unauthenticated", []string{"decide", "--addr", address, "--ca", ca.file("ca.pem"), "task"}},
		{"Unavailable", []string{"decide", "--addr", address, "--deadline", "2s", "task"}},
	} {
		out, _ := exec.CommandContext(t.Context(), buildProgram(t), tt.args...).CombinedOutput()
		if !strings.Contains(string(out), tt.want) || strings.Contains(string(out), powerToken) {
			t.Errorf("%q: %s, want %s", tt.args, out, tt.want)
		}
	}
	before, _ := w.reloadState(t)
	write("not a number")
	eventually(t, func() string {
		if generation, failure := w.reloadState(t); generation != before || failure == "" {
			return fmt.Sprintf("generation %d, error %q", generation, failure)
		}
		return ""
	})
	write("3")
	eventually(t, func() string {
		if generation, failure := w.reloadState(t); generation != before+1 || failure != "" {
			return fmt.Sprintf("generation %d, error %q", generation, failure)
		}
		return ""
	})
	if err := r.process.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if generation, failure := w.reloadState(t); generation != before+2 || failure != "" {
			return fmt.Sprintf("after SIGHUP: generation %d, error %q", generation, failure)
		}
		return ""
	})
}
