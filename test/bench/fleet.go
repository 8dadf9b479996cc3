package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/scorer"
)

// encoder is the model that the stand-in plays.
const encoder = "bench/encoder"

// shape is the size of a probe model's hidden states.
type shape struct {
	layers, hidden int
}

func (s shape) String() string { return fmt.Sprintf("%d x %d", s.layers, s.hidden) }

// ensemble is the size of a checkpoint's networks.
type ensemble struct {
	pca, trunk, members, heads int
}

// usual is about what published checkpoints have.
var usual = ensemble{pca: 200, trunk: 64, members: 8, heads: 3}

// saveCheckpoint writes a checkpoint whose weights are pseudo-random: what it says means
// nothing, and costs what any other of its size costs.
func saveCheckpoint(dir string, s shape, e ensemble) error {
	raw := s.layers * s.hidden
	ones := make([]float32, raw)
	for i := range ones {
		ones[i] = 1
	}
	state := uint32(1)
	random := func(n int, scale float32) []float32 {
		out := make([]float32, n)
		for i := range out {
			state = state*1664525 + 1013904223 // Numerical Recipes' generator: quick, and good enough for weights
			out[i] = (float32(state>>8)/(1<<24) - 0.5) * scale
		}
		return out
	}
	tensors := scorer.Tensors{
		ScalerMean: make([]float32, raw), ScalerScale: ones, PCAMean: make([]float32, raw),
		PCAComponents: random(e.pca*raw, 0.01),
	}
	names := make([]string, e.heads)
	for i := range names {
		names[i] = fmt.Sprintf("head-%d", i)
	}
	for range e.members {
		tensors.Members = append(tensors.Members, scorer.Member{
			{Weight: random(e.trunk*e.pca, 0.2), Bias: random(e.trunk, 0.2)},
			{Weight: random(e.heads*e.trunk, 0.2), Bias: random(e.heads, 0.2)},
		})
	}
	return scorer.Save(dir, scorer.Manifest{
		Encoder: encoder, Layers: s.layers, HiddenSize: s.hidden, PCADim: e.pca,
		TrunkHidden: []int{e.trunk}, EnsembleSize: e.members, OutputNames: names,
	}, tensors)
}

// serverConfig is what the measured servers differ in.
type serverConfig struct {
	name       string
	sim        string // the stand-in's address
	artifacts  string // the folder shared with it
	checkpoint string
	maxEntries int
	redis      string // address; empty: no shared cache
}

// pointsman starts a server.
func (p *processes) pointsman(ctx context.Context, c serverConfig) (*process, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	admin, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	redis := ""
	if c.redis != "" {
		// The longest time-out: on a busy machine Redis is late, and what is measured is a hit.
		redis = fmt.Sprintf("\n  redis: { url: %q, op_timeout: 100ms }", "redis://"+c.redis+"/0")
	}
	text := fmt.Sprintf(`
grpc: { listen: %q }
admin: { listen: %q }
shutdown: { drain_delay: 0s, timeout: 10s }
log: { level: info, format: json }
routes:
  main:
    probe: p
    checkpoint: %q
    targets:
      - { name: strong, tier: strong, model: provider/strong-model, head: head-0, cost: 1.0 }
      - { name: weak, tier: weak, model: provider/weak-model, head: head-1, cost: 0.25 }
probes:
  p:
    encoder: %s
    endpoints: [ { base_url: %q, hidden_states_dir: %q } ]
cache:
  local: { max_entries: %d }%s
`, addr, admin, c.checkpoint, encoder, "http://"+c.sim+"/v1", c.artifacts, c.maxEntries, redis)
	path := filepath.Join(p.dir, c.name+".yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return p.child(ctx, c.name, addr, partServe, "--config", path)
}

// sim starts a stand-in for vLLM that writes into a folder of its own.
func (p *processes) sim(ctx context.Context, name, folder string, s shape, latency time.Duration) (*process, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	return p.child(ctx, name, addr, "sim", "--listen", addr, "--dir", folder,
		fmt.Sprintf("--layers=%d", s.layers), fmt.Sprintf("--hidden=%d", s.hidden), "--latency", latency.String())
}

// echo starts the bare server, or the one that also sends trailers and logs.
func (p *processes) echo(ctx context.Context, name string, response *pointsmanv1.DecideResponse, checkpoint string, contract bool) (*process, error) {
	data, err := proto.Marshal(response)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(p.dir, name+".bin")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return nil, err
	}
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	return p.child(ctx, name, addr, "echo", "--listen", addr, "--response", path, "--checkpoint", checkpoint,
		fmt.Sprintf("--contract=%t", contract))
}

// redis starts a Redis that keeps nothing on disk.
func (p *processes) redis(ctx context.Context) (*process, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	return p.start(ctx, process{name: "redis", addr: addr}, exec.Command(path, //nolint:gosec,noctx // ended by stop
		"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", p.dir, "--daemonize", "no"))
}

// clients is a set of connections that calls take turns on.
type clients []pointsmanv1.DecisionServiceClient

// connect opens n connections, which are closed before the processes are ended.
func (p *processes) connect(addr string, n int) (clients, error) {
	var all clients
	for range n {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		p.conns = append(p.conns, conn)
		p.mu.Unlock()
		all = append(all, pointsmanv1.NewDecisionServiceClient(conn))
	}
	return all, nil
}

// ask makes the i-th call.
func (c clients) ask(ctx context.Context, i int, task string) (*pointsmanv1.DecideResponse, error) {
	return c[i%len(c)].Decide(ctx, &pointsmanv1.DecideRequest{Input: &pointsmanv1.DecideRequest_Task{Task: task}})
}

// decide makes the i-th call and expects a learned answer.
func (c clients) decide(ctx context.Context, i int, task string) (*pointsmanv1.DecideResponse, error) {
	resp, err := c.ask(ctx, i, task)
	if err == nil && resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED {
		err = fmt.Errorf("nothing was learned: %v", resp.GetFallbackReason())
	}
	return resp, err
}
