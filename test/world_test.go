package test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/server"
	"github.com/pointsman-dev/pointsman/server/config"
)

// scratch is a folder for what all tests share.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "pointsman-test-*"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(scratch) // the system's temporary folder
		os.Exit(code)
	}))
}

// The encoder that the tests' stand-in for vLLM plays, and its shape.
const (
	encoder    = "test/encoder"
	layers     = 2
	hiddenSize = 16
)

// setup is what a test wants of its world. The zero value is a healthy one.
type setup struct {
	sim vllmsim.Config // Dir, Model and shape are filled in
	// grpcYAML, probeYAML and routeYAML are further lines of those parts.
	grpcYAML, probeYAML, routeYAML string
	// moreYAML are further sections, and env the environment of secrets.
	moreYAML string
	env      map[string]string
	options  []server.Option
	// logTo gets the log; by default the world keeps it.
	logTo io.Writer
	// prepare is called with the stand-in before the service starts.
	prepare func(*vllmsim.Server)
	// creds are the client's; nil: plaintext.
	creds credentials.TransportCredentials
	// vllm replaces the stand-in.
	vllm http.Handler
	// checkpoint replaces the made-up one.
	checkpoint string
	encoder    string
	heads      [2]string  // strong, weak
	costs      [2]float64 // strong, weak
}

// world is a running service with a stand-in for vLLM, as a caller sees it.
type world struct {
	sim    *vllmsim.Server
	dir    string // the shared folder
	root   string // the folder around it, which nobody may touch
	conn   *grpc.ClientConn
	client pointsmanv1.DecisionServiceClient
	admin  string // URL of the admin port
	log    *safeBuffer
	creds  credentials.TransportCredentials
	addr   string // of the gRPC port
	server *server.Server
	yaml   string    // the configuration
	logTo  io.Writer // log, mostly
	env    map[string]string
	stop   func() // drains the service, once
}

// start runs a service until the test ends.
func start(t testing.TB, s setup) *world {
	t.Helper()
	w := &world{root: t.TempDir(), log: &safeBuffer{}, creds: s.creds, logTo: s.logTo, env: s.env}
	if w.creds == nil {
		w.creds = insecure.NewCredentials()
	}
	if w.logTo == nil {
		w.logTo = w.log
	}
	w.dir = filepath.Join(w.root, "hidden-states")
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if s.encoder == "" {
		s.encoder = encoder
	}
	if s.heads[0] == "" {
		s.heads = [2]string{"strong", "weak"}
	}
	if s.costs == [2]float64{} {
		s.costs = [2]float64{1, 0.25}
	}
	handler := s.vllm
	if handler == nil {
		s.sim.Dir, s.sim.Model, s.sim.HiddenSize = w.dir, encoder, hiddenSize
		if s.sim.Layers == 0 {
			s.sim.Layers = layers
		}
		sim, err := vllmsim.New(s.sim)
		if err != nil {
			t.Fatal(err)
		}
		w.sim, handler = sim, sim.Handler()
		if s.prepare != nil {
			s.prepare(sim)
		}
		t.Cleanup(func() {
			if err := sim.Close(); err != nil {
				t.Errorf("the stand-in for vLLM failed: %v", err)
			}
		})
	}
	web := httptest.NewServer(handler)
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	if s.checkpoint == "" {
		s.checkpoint = filepath.Join(w.root, "router")
		saveCheckpoint(t, s.checkpoint, max(s.sim.Layers, 1))
	}
	checkpoint, err := filepath.Abs(s.checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
grpc:
    listen: "127.0.0.1:0"
%s
admin: { listen: "127.0.0.1:0" }
shutdown: { drain_delay: 0s, timeout: 20s }
routes:
  main:
    probe: p
    checkpoint: %q
    targets:
      - { name: strong, tier: strong, model: provider/strong, head: %q, cost: %v }
      - { name: weak, tier: weak, model: provider/weak, head: %q, cost: %v }
%s
probes:
  p:
    encoder: %q
    endpoints: [ { base_url: %q, hidden_states_dir: %q } ]
%s
%s
`, indent(s.grpcYAML), checkpoint, s.heads[0], s.costs[0], s.heads[1], s.costs[1], indent(s.routeYAML), s.encoder, web.URL+"/v1", w.dir, indent(s.probeYAML), s.moreYAML)
	w.yaml = text
	w.run(t, w.parse(t, text), s.options...)
	return w
}

// parse reads a configuration as if it stood in the world's root.
func (w *world) parse(t testing.TB, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(w.root, "pointsman.yaml"), []byte(text), config.LoadOptions{
		LookupEnv: func(name string) (string, bool) { value, found := w.env[name]; return value, found },
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// run serves a configuration and connects to it.
func (w *world) run(t testing.TB, cfg *config.Config, options ...server.Option) {
	t.Helper()
	s, err := server.New(cfg, slog.New(slog.NewJSONHandler(w.logTo, &slog.HandlerOptions{Level: slog.LevelDebug})), options...)
	if err != nil {
		t.Fatal(err)
	}
	w.server = s
	var lc net.ListenConfig
	var listeners [2]net.Listener
	for i, addr := range []string{cfg.GRPC.Listen, cfg.Admin.Listen} {
		if listeners[i], err = lc.Listen(t.Context(), "tcp", addr); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listeners[0], listeners[1]) }()
	w.admin = "http://" + listeners[1].Addr().String()
	w.addr = listeners[0].Addr().String()
	w.conn, err = grpc.NewClient(w.addr, grpc.WithTransportCredentials(w.creds))
	if err != nil {
		t.Fatal(err)
	}
	w.client = pointsmanv1.NewDecisionServiceClient(w.conn)
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the service ended with: %v", err)
		}
		if err := w.conn.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
}

// decide asks about a task and expects an answer.
func (w *world) decide(t testing.TB, req *pointsmanv1.DecideRequest) *pointsmanv1.DecideResponse {
	t.Helper()
	resp, err := w.client.Decide(t.Context(), req)
	if err != nil {
		t.Fatalf("Decide: %v", err)
	}
	return resp
}

// files lists what is in the shared folder.
func (w *world) files(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// eventually waits until nothing is wrong any more, and fails if that does not
// come.
func eventually(t testing.TB, wrong func() string) {
	t.Helper()
	const patience, step = 60 * time.Second, 2 * time.Millisecond
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(step) {
		if wrong() == "" {
			return
		}
	}
	t.Fatalf("still wrong after %v: %s", patience, wrong())
}

// awaitProbe waits until the stand-in for vLLM has a probe under way.
func (w *world) awaitProbe(t testing.TB) {
	t.Helper()
	eventually(t, func() string {
		if w.sim.Stats().InFlight > 0 {
			return ""
		}
		return "no probe is under way"
	})
}

func task(text string) *pointsmanv1.DecideRequest {
	return &pointsmanv1.DecideRequest{Input: &pointsmanv1.DecideRequest_Task{Task: text}}
}

func indent(yaml string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(yaml), "\n", "\n    ")
}

// saveCheckpoint writes a checkpoint for the tests' encoder, of three members and
// the heads strong and weak.
func saveCheckpoint(t testing.TB, dir string, layers int) {
	t.Helper()
	saveCheckpointOf(t, dir, layers, 3, 2)
}

// saveCheckpointOf writes one whose members read one feature each, so that tasks
// differ and the members disagree. Heads beyond strong and weak repeat weak.
func saveCheckpointOf(t testing.TB, dir string, layers, members, heads int) {
	t.Helper()
	raw := layers * hiddenSize
	ones := make([]float32, raw)
	components := make([]float32, members*raw)
	for i := range ones {
		ones[i] = 1
	}
	names, weights, biases := []string{"strong", "weak"}, []float32{0.5, -0.5, 2, -2}, []float32{1, 0}
	for h := 2; h < heads; h++ {
		names, weights, biases = append(names, fmt.Sprintf("head-%d", h)), append(weights, 2, -2), append(biases, 0)
	}
	nets := make([]scorer.Member, members)
	for m := range nets {
		components[m*raw+m] = 1
		read := make([]float32, 2*members)
		read[m], read[members+m] = 4, -4
		nets[m] = scorer.Member{
			{Weight: read, Bias: make([]float32, 2)},
			{Weight: weights, Bias: biases},
		}
	}
	err := scorer.Save(dir, scorer.Manifest{
		Encoder: encoder, Layers: layers, HiddenSize: hiddenSize, PCADim: members,
		TrunkHidden: []int{2}, EnsembleSize: members, OutputNames: names,
	}, scorer.Tensors{
		ScalerMean: make([]float32, raw), ScalerScale: ones, PCAMean: make([]float32, raw),
		PCAComponents: components, Members: nets,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// safeBuffer is a bytes.Buffer for several goroutines.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }
