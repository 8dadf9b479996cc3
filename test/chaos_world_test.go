package test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
	"github.com/pointsman-dev/pointsman/scorer"
)

// chaosWorld is everything that chaos can strike.
type chaosWorld struct {
	t        *testing.T
	root     string
	tally    *tally
	ca       *authority
	redis    *redistest.Server
	vllms    []*chaosVLLM
	replicas []*chaosReplica
	// versions are the configurations that reloads go between.
	versions [2]chaosVersion
	version  int

	tokens [2]string // what the tokens file holds, the older first
	use    atomic.Pointer[string]
}

// chaosVersion is a configuration, as far as an answer shows it.
type chaosVersion struct {
	dir        string
	checkpoint *scorer.Checkpoint
	costs      [2]float64
	tradeOff   scorer.TradeOff
	policy     string
}

// chaosVLLM is a stand-in that can also be away or slow.
type chaosVLLM struct {
	sim  *vllmsim.Server
	web  *httptest.Server
	dir  string
	away atomic.Bool
	slow atomic.Int64 // nanoseconds before every answer
	// small says that the folder has a file system of its own, which can run full.
	small bool
}

// ServeHTTP implements [http.Handler].
func (v *chaosVLLM) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if v.away.Load() {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
		return
	}
	time.Sleep(time.Duration(v.slow.Load()))
	v.sim.Handler().ServeHTTP(w, r)
}

// chaosReplica is a process that is killed and started again.
type chaosReplica struct {
	config string
	ports  [2]int
	now    *replica
	conn   *grpc.ClientConn
	client pointsmanv1.DecisionServiceClient

	mu       sync.Mutex
	troubles [][2]time.Time // from, until; a zero until lasts
}

// trouble notes that calls may fail from now on, until the returned func is called.
func (r *chaosReplica) trouble() (over func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := len(r.troubles)
	r.troubles = append(r.troubles, [2]time.Time{time.Now(), {}})
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		// The caller's connection needs a moment to come back.
		r.troubles[i][1] = time.Now().Add(time.Second)
	}
}

// wasTroubled says whether the replica was in trouble at any time between.
func (r *chaosReplica) wasTroubled(from, until time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.troubles {
		if t[0].Before(until) && (t[1].IsZero() || t[1].After(from)) {
			return true
		}
	}
	return false
}

func startChaos(t *testing.T) *chaosWorld {
	t.Helper()
	w := &chaosWorld{t: t, root: t.TempDir(), tally: newTally(), redis: redistest.Start(t)}
	w.ca = newAuthority(t, w.root)
	if err := os.Mkdir(w.path("secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.tokens = [2]string{newToken(t), newToken(t)}
	w.use.Store(&w.tokens[1])
	w.rotate()
	for i, v := range []chaosVersion{
		{dir: "router-a", costs: [2]float64{1, 0.25}, tradeOff: scorer.Tolerance(0.2), policy: "tolerance: 0.2"},
		{dir: "router-b", costs: [2]float64{2, 1}, tradeOff: scorer.QualityWeight(0.7), policy: "quality_weight: 0.7"},
	} {
		saveCheckpointOf(t, w.path(v.dir), layers, 3+i, 2)
		var err error
		if v.checkpoint, err = scorer.Load(w.path(v.dir)); err != nil {
			t.Fatal(err)
		}
		w.versions[i] = v
	}
	for i := range 2 {
		w.vllms = append(w.vllms, w.startVLLM(fmt.Sprintf("hidden-states-%d", i), i == 0))
	}
	for i := range 2 {
		r := &chaosReplica{
			config: w.path(fmt.Sprintf("replica-%d.yaml", i)),
			ports:  [2]int{redistest.FreePort(t), redistest.FreePort(t)},
		}
		w.replicas = append(w.replicas, r)
		w.write(r, w.versions[0])
		r.now = startBare(t, buildProgram(t), r.config, r.ports)
		var err error
		if r.conn, err = grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", r.ports[0]),
			grpc.WithTransportCredentials(w.ca.client("")),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
				BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond,
			}, MinConnectTimeout: time.Second})); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.conn.Close() })
		r.client = pointsmanv1.NewDecisionServiceClient(r.conn)
	}
	for _, r := range w.replicas {
		w.awaitServing(r)
	}
	return w
}

func (w *chaosWorld) path(name string) string { return filepath.Join(w.root, name) }

// startVLLM starts a stand-in, whose folder is a small file system of its own where
// this process may make one.
func (w *chaosWorld) startVLLM(name string, small bool) *chaosVLLM {
	w.t.Helper()
	v := &chaosVLLM{dir: w.path(name)}
	if err := os.Mkdir(v.dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if small {
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "none", v.dir).CombinedOutput(); err != nil {
			w.t.Logf("no small file system, so no disk runs full: %v %s", err, out)
		} else {
			v.small = true
			w.t.Cleanup(func() { _ = exec.Command("umount", "-l", v.dir).Run() })
		}
	}
	var err error
	if v.sim, err = vllmsim.New(vllmsim.Config{Dir: v.dir, Model: encoder, Layers: layers, HiddenSize: hiddenSize, Latency: 5 * time.Millisecond}); err != nil {
		w.t.Fatal(err)
	}
	v.web = httptest.NewServer(v)
	w.t.Cleanup(func() {
		v.web.CloseClientConnections()
		v.web.Close()
		_ = v.sim.Close() // it could not write to a full disk, as it was meant
	})
	return v
}

// write replaces a replica's configuration at once.
func (w *chaosWorld) write(r *chaosReplica, v chaosVersion) {
	text := fmt.Sprintf(`
grpc:
  listen: "127.0.0.1:%d"
  deadline_margin: 100ms # the test's own processor is busy too
  tls: { cert_file: secrets/server.pem, key_file: secrets/server.key }
  auth: { tokens_file: secrets/tokens }
admin: { listen: "127.0.0.1:%d" }
log: { level: warn }
shutdown: { drain_delay: 0s, timeout: 5s }
routes:
  main:
    probe: p
    checkpoint: %q
    decide_timeout: 900ms
    policy: { %s }
    targets:
      - { name: strong, tier: strong, model: provider/strong, head: strong, cost: %v }
      - { name: weak, tier: weak, model: provider/weak, head: weak, cost: %v }
probes:
  p:
    encoder: %q
    endpoints:
      - { base_url: %q, hidden_states_dir: %q }
      - { base_url: %q, hidden_states_dir: %q }
    queue_timeout: 500ms
    request_timeout: 2s
    artifact_timeout: 500ms
    max_outstanding_bytes: 2MiB
    health_interval: 200ms
    breaker: { failures: 3, open_for: 300ms }
    sweep: { interval: 500ms, min_age: 4s }
cache:
  local: { max_entries: 100 }
  redis: { url: "redis://%s" }
`, r.ports[0], r.ports[1], w.path(v.dir), v.policy, v.costs[0], v.costs[1], encoder,
		w.vllms[0].web.URL+"/v1", w.vllms[0].dir, w.vllms[1].web.URL+"/v1", w.vllms[1].dir, w.redis.Addr)
	w.replace(r.config, text)
}

// replace puts a file in another's place.
func (w *chaosWorld) replace(path, text string) {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		w.t.Error(err)
		return
	}
	if err := os.Rename(path+".new", path); err != nil {
		w.t.Error(err)
	}
}

// rotate gives the replicas a new certificate and a new token: the older of the two
// tokens ends, and callers use the one that is in the file before and after.
func (w *chaosWorld) rotate() {
	kept := w.tokens[1]
	w.use.Store(&kept)
	w.tokens = [2]string{kept, newToken(w.t)}
	dir := w.path("secrets")
	next := filepath.Join(dir, "..next")
	version := fmt.Sprintf("..%d", time.Now().UnixNano())
	if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
		w.t.Error(err)
		return
	}
	w.ca.issueTo(filepath.Join(dir, version), "server")
	w.replace(filepath.Join(dir, version, "tokens"), fmt.Sprintf("old %s all\nnew %s all\n", w.tokens[0], w.tokens[1]))
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	for _, err := range []error{os.Symlink(version, next), os.Rename(next, filepath.Join(dir, "..data"))} {
		if err != nil {
			w.t.Error(err)
		}
	}
	for _, name := range []string{"tokens", "server.pem", "server.key"} {
		_ = os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)) // they are there already but for the first time
	}
	if old != "" {
		_ = os.RemoveAll(filepath.Join(dir, old))
	}
}

func newToken(t testing.TB) string {
	t.Helper()
	b := make([]byte, 24)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (w *chaosWorld) token() string { return *w.use.Load() }

// awaitServing waits until a replica is ready.
func (w *chaosWorld) awaitServing(r *chaosReplica) {
	ctx, cancel := context.WithTimeout(withToken(w.t.Context(), w.token()), time.Minute)
	defer cancel()
	for {
		answer, err := healthv1.NewHealthClient(r.conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err == nil && answer.GetStatus() == healthv1.HealthCheckResponse_SERVING {
			return
		}
		if ctx.Err() != nil {
			w.t.Errorf("a replica does not come up: %v %v\n%s", answer, err, tail(r.now.log.String()))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// warm lets every part be used, so that what it keeps is there before it is measured.
func (w *chaosWorld) warm() {
	var all sync.WaitGroup
	for i, r := range w.replicas {
		for j := range chaosCallers {
			all.Go(func() {
				for k := range 20 {
					ctx, cancel := context.WithTimeout(withToken(w.t.Context(), w.token()), 10*time.Second)
					_, err := r.client.Decide(ctx, task(fmt.Sprintf("warm %d %d %d", i, j, k)))
					cancel()
					if err != nil {
						w.t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
}
