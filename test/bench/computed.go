package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

// computedRow is what a decision costs whose task nobody has asked about before.
type computedRow struct {
	Latency time.Duration `json:"latency"` // that the stand-in adds
	Tokens  int           `json:"tokens"`
	Shape   string        `json:"shape"`
	Sim     time.Duration `json:"sim"`    // the stand-in alone: from the request to a free lock
	Decide  time.Duration `json:"decide"` // the whole call
	// PerSecond, P50 and P99 are those of many callers with small probes.
	PerSecond float64       `json:"per_second"`
	P50       time.Duration `json:"p50"`
	P99       time.Duration `json:"p99"`
	Join      joinRow       `json:"join"`
}

// joinRow is what callers see who ask for the same new task at once.
type joinRow struct {
	Callers   int           `json:"callers"`
	PerSecond float64       `json:"per_second"`
	P50       time.Duration `json:"p50"`
	P99       time.Duration `json:"p99"`
}

const (
	computedTokens = 512
	joinCallers    = 50
	// aloneTurns: the stand-in's own time varies by more than what is to be seen.
	aloneTurns = 8
	// settling keeps what is done after an answer, giving the artifact's memory back, out of the next one's time.
	settling = 10 * time.Millisecond
)

var (
	computedShape = shape{4, 4096}
	// smallShape costs the stand-in little, which shares the machine.
	smallShape = shape{1, 64}
)

// computed measures decisions that probe, with a stand-in that answers at once and one
// that takes 50 ms.
func (b *bench) computed(ctx context.Context, r *report) error {
	for _, latency := range []time.Duration{0, 50 * time.Millisecond} {
		row := computedRow{Latency: latency, Tokens: computedTokens, Shape: computedShape.String()}
		if err := b.computeAlone(ctx, &row); err != nil {
			return err
		}
		if err := b.computeMany(ctx, &row); err != nil {
			return err
		}
		b.sayf("  stand-in + %v: %v alone, Decide %v", latency, brief(row.Sim), brief(row.Decide))
		r.Computed = append(r.Computed, row)
	}
	return nil
}

// world is a server with a stand-in of its own.
type world struct {
	clients
	sim       *process
	artifacts string
}

func (b *bench) world(ctx context.Context, p *processes, name string, s shape, latency time.Duration) (*world, error) {
	w := &world{artifacts: filepath.Join(b.ram, name+"-artifacts")}
	checkpoint := filepath.Join(b.ram, name)
	if err := errors.Join(saveCheckpoint(checkpoint, s, usual), os.Mkdir(w.artifacts, 0o700)); err != nil {
		return nil, err
	}
	var err error
	if w.sim, err = p.sim(ctx, name+"-sim", w.artifacts, s, latency); err != nil {
		return nil, err
	}
	server, err := p.pointsman(ctx, serverConfig{
		name: name, sim: w.sim.addr, artifacts: w.artifacts, checkpoint: checkpoint, maxEntries: 65536,
	})
	if err != nil {
		return nil, err
	}
	w.clients, err = p.connect(server.addr, b.Conns)
	return w, err
}

// computeAlone has one caller take turns with a client that only does what the stand-in
// requires.
func (b *bench) computeAlone(ctx context.Context, row *computedRow) (err error) {
	p := &processes{dir: b.dir, server: b.Server}
	defer func() { err = errors.Join(err, p.stop()) }()
	w, err := b.world(ctx, p, fmt.Sprintf("alone-%d", row.Latency.Milliseconds()), computedShape, row.Latency)
	if err != nil {
		return err
	}
	n := 0
	fresh := func() string {
		n++
		return promptOfTokens(n, computedTokens)
	}
	medians, err := turns(ctx, aloneTurns*b.Rounds,
		func() (time.Duration, error) {
			time.Sleep(settling)
			return askSim(ctx, w.sim.addr, fresh())
		},
		func() (time.Duration, error) {
			time.Sleep(settling)
			task := fresh()
			began := time.Now()
			_, err := w.decide(ctx, n, task)
			return time.Since(began), err
		})
	if err != nil {
		return err
	}
	row.Sim, row.Decide = medians[0], medians[1]
	return nil
}

// computeMany has many callers compute small probes, and many ask for the same ones.
func (b *bench) computeMany(ctx context.Context, row *computedRow) (err error) {
	p := &processes{dir: b.dir, server: b.Server}
	defer func() { err = errors.Join(err, p.stop()) }()
	w, err := b.world(ctx, p, fmt.Sprintf("many-%d", row.Latency.Milliseconds()), smallShape, row.Latency)
	if err != nil {
		return err
	}
	const callers = 32 // as many probes as may be under way by default
	l, err := closedLoop(ctx, func(ctx context.Context, i int) error {
		_, err := w.decide(ctx, i, fmt.Sprintf("computed %d", i))
		return err
	}, callers, b.Closed)
	if err != nil {
		return err
	}
	row.PerSecond, row.P50, row.P99 = l.perSecond(), l.latencies.quantile(0.5), l.latencies.quantile(0.99)
	row.Join, err = w.join(ctx, b)
	return err
}

// join has all callers ask for one new task at the same time, task after task.
func (w *world) join(ctx context.Context, b *bench) (joinRow, error) {
	row := joinRow{Callers: joinCallers}
	var (
		latencies histogram
		mu        sync.Mutex
		joined    atomic.Int64
		failed    atomic.Value
		began     = time.Now()
	)
	for round := 0; time.Since(began) < b.Closed; round++ {
		var wg sync.WaitGroup
		for i := range joinCallers {
			wg.Go(func() {
				sent := time.Now()
				resp, err := w.decide(ctx, i, fmt.Sprintf("joined %d", round))
				took := time.Since(sent)
				if err != nil {
					failed.Store(err)
					return
				}
				if resp.GetOrigin() == pointsmanv1.Origin_ORIGIN_JOINED_LOCAL {
					joined.Add(1)
					mu.Lock()
					latencies.add(took)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if err, ok := failed.Load().(error); ok {
			return row, err
		}
	}
	row.PerSecond = float64(joined.Load()) / time.Since(began).Seconds()
	row.P50, row.P99 = latencies.quantile(0.5), latencies.quantile(0.99)
	return row, nil
}

// promptOfTokens is the n-th prompt of exactly so many tokens.
func promptOfTokens(n, tokens int) string {
	text := strconv.Itoa(n)
	text += strings.Repeat(" a", max(0, tokens-len(vllmsim.Tokens(text))))
	return text
}

// askSim does what the stand-in requires of a client and no more: it asks, waits for
// the lock, and removes the files.
func askSim(ctx context.Context, addr, task string) (time.Duration, error) {
	body, err := json.Marshal(map[string]any{
		"model": encoder, "max_tokens": 1, "temperature": 0, "return_token_ids": true,
		"messages":           []map[string]string{{"role": "user", "content": task}},
		"kv_transfer_params": map[string]any{"include_output_tokens": false},
	})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	var answer struct {
		KVTransferParams struct {
			Path string `json:"hidden_states_path"`
		} `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.KVTransferParams.Path == "" {
		return 0, fmt.Errorf("the stand-in answered %s", resp.Status)
	}
	path := answer.KVTransferParams.Path
	lock, err := os.Open(path + ".lock")
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, errors.Join(os.Remove(path), os.Remove(path+".lock"))
}
