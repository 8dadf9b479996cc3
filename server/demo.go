package server

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/pointsman-dev/pointsman/probe/vllmsim"
	"github.com/pointsman-dev/pointsman/server/config"
)

// DemoOptions are the flags of `pointsman demo`.
type DemoOptions struct {
	// Listen and Admin are the addresses of the two ports.
	Listen, Admin string
}

// demoData holds the learned checkpoint of the demo. Its README says what it was
// made of, and how.
//
//go:embed demodata/lexical-mmlu/router.json demodata/lexical-mmlu/router.safetensors demodata/lexical-mmlu/train.json
var demoData embed.FS

// demoLearned is the folder in demoData.
const demoLearned = "demodata/lexical-mmlu"

// The stand-in encoder of the demo. It is small, so that the demo checkpoint can
// be fitted while the reader blinks.
const (
	demoEncoder    = "pointsman/demo-stand-in"
	demoLayers     = 2
	demoHiddenSize = 128
	// demoLatency is about what a small prompt costs a real vLLM.
	demoLatency = 40 * time.Millisecond
)

// Demo runs a whole service until ctx ends, with a route that was really learned,
// and one with a stand-in for vLLM and a checkpoint fitted to a few example
// questions: no GPU, no Redis, no files.
func Demo(ctx context.Context, opts DemoOptions, out, stderr io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "pointsman-demo-*")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	if err := saveDemoCheckpoints(dir); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	baseURL, stopSim, err := startSim(ctx, filepath.Join(dir, "hidden-states"))
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer stopSim()

	cfg, err := config.Parse(filepath.Join(dir, "demo.yaml"), []byte(demoConfig(opts, baseURL)), config.LoadOptions{})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	s, err := New(cfg, newLogger(cfg.Log, stderr))
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	grpcListener, adminListener, err := listen(ctx, cfg)
	if err != nil {
		return errors.Join(fmt.Errorf("demo: %w", err), s.Close(context.WithoutCancel(ctx)))
	}
	if _, err := fmt.Fprintf(out, demoGreeting, grpcListener.Addr(), adminListener.Addr()); err != nil {
		return errors.Join(err, grpcListener.Close(), adminListener.Close(), s.Close(context.WithoutCancel(ctx)))
	}
	return s.Serve(ctx, grpcListener, adminListener)
}

// saveDemoCheckpoints writes the checkpoints of both routes into dir.
func saveDemoCheckpoints(dir string) error {
	learned, err := fs.Sub(demoData, demoLearned)
	if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(dir, "learned"), learned); err != nil {
		return err
	}
	return saveDemoCheckpoint(filepath.Join(dir, "toy"))
}

// startSim serves the stand-in for vLLM on a free loopback port. The returned
// func stops it.
func startSim(ctx context.Context, artifacts string) (baseURL string, stop func(), err error) {
	if err := os.Mkdir(artifacts, 0o700); err != nil {
		return "", nil, err
	}
	sim, err := vllmsim.New(vllmsim.Config{
		Dir: artifacts, Model: demoEncoder, Layers: demoLayers, HiddenSize: demoHiddenSize, Latency: demoLatency,
	})
	if err != nil {
		return "", nil, err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, errors.Join(err, sim.Close())
	}
	web := &http.Server{Handler: sim.Handler(), ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = web.Serve(listener) // it ends when it is closed
	}()
	return "http://" + listener.Addr().String() + "/v1", func() {
		_ = web.Close()
		<-done
		_ = sim.Close() // what it could not write is in a folder that goes away
	}, nil
}

// demoConfig is the demo's configuration, in the words a user would write.
func demoConfig(opts DemoOptions, baseURL string) string {
	return fmt.Sprintf(`
grpc:  { listen: %q }
admin: { listen: %q }
default_route: main
routes:
  main:
    probe: words
    checkpoint: ./learned
    targets:
      - { name: strong, tier: strong, model: provider/strong-model, head: gpt-4-1106, cost: 1.0 }
      - { name: weak, tier: weak, model: provider/weak-model, head: mixtral-8x7b, cost: 0.05 }
    policy: { tolerance: 0.1 }
  stand-in:
    probe: stand-in
    checkpoint: ./toy
    targets:
      - { name: strong, tier: strong, model: provider/strong-model, head: strong, cost: 1.0 }
      - { name: weak, tier: weak, model: provider/weak-model, head: weak, cost: 0.25 }
    policy: { tolerance: 0.2 }
probes:
  words: { kind: lexical }
  stand-in:
    encoder: %s
    endpoints: [ { base_url: %q, hidden_states_dir: ./hidden-states } ]
shutdown: { drain_delay: 0s }
log: { format: text }
`, opts.Listen, opts.Admin, demoEncoder, baseURL)
}

const demoGreeting = `
Pointsman demo
==============
A whole service with two routes, no GPU, no Redis, no files:
  main      really learned: from 8,873 multiple-choice questions (MMLU) and whether
            Mixtral 8x7B and GPT-4 answered them right. It reads words, not meaning,
            and knows exam questions, not your traffic.
  stand-in  the path through vLLM, with a simulator in its place: hidden states are
            pseudo-random numbers, the checkpoint was fitted a moment ago to a few
            dozen sentences. The path is real, the judgement is a toy.
Do not route with either.

gRPC   %[1]s      admin  http://%[2]s/readyz

Try, in another terminal (the second time the answer comes from the cache):

  grpcurl -plaintext -d '{"task":"What is 2+2?"}' %[1]s pointsman.v1.DecisionService/Decide
  grpcurl -plaintext -d '{"task":"Prove that there are infinitely many primes congruent to 3 modulo 4."}' %[1]s pointsman.v1.DecisionService/Decide
  grpcurl -plaintext -d '{"task":"What is 2+2?","route":"stand-in"}' %[1]s pointsman.v1.DecisionService/Decide

or without grpcurl:

  bin/pointsman decide --addr %[1]s "What is 2+2?"
  bin/pointsman decide --addr %[1]s "Prove that there are infinitely many primes congruent to 3 modulo 4."
  bin/pointsman decide --addr %[1]s --route stand-in "What is 2+2?"

Ctrl-C ends it. The log follows.

`
