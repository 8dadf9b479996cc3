package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

// readingRow is what one artifact takes.
type readingRow struct {
	Tokens   int           `json:"tokens"`
	Shape    string        `json:"shape"`
	DType    string        `json:"dtype"`
	Bytes    int64         `json:"bytes"`
	Plain    time.Duration `json:"plain"`    // reading the file and nothing else
	Features time.Duration `json:"features"` // from a free lock to the features
	Memory   uint64        `json:"memory"`   // allocated in one extraction
}

// ofPlain is the part of plain reading's speed.
func (r readingRow) ofPlain() float64 { return r.Plain.Seconds() / r.Features.Seconds() }

// artifacts are the measured sizes: they grow with the tokens, then with the layers.
func (b *bench) artifacts() []readingRow {
	const usual = "4 x 4096"
	rows := []readingRow{
		{Tokens: 64, Shape: usual, DType: "BF16"},
		{Tokens: 512, Shape: usual, DType: "BF16"},
		{Tokens: 512, Shape: usual, DType: "F16"},
		{Tokens: 512, Shape: usual, DType: "F32"},
		{Tokens: 512, Shape: "1 x 4096", DType: "BF16"},
	}
	if !b.Quick {
		rows = append(rows,
			readingRow{Tokens: 4096, Shape: usual, DType: "BF16"},
			readingRow{Tokens: 512, Shape: "36 x 4096", DType: "BF16"})
	}
	return rows
}

// reading measures extraction from a file in memory, beside plain reading of the same
// file. Artifacts are hard links to one file, so that nothing is written meanwhile.
func (b *bench) reading(ctx context.Context, r *report) error {
	r.Bandwidth = bandwidth{OneCore: memoryBandwidth(1), AllCores: memoryBandwidth(r.Machine.Cores)}
	for _, row := range b.artifacts() {
		b.sayf("  %d tokens x %s %s", row.Tokens, row.Shape, row.DType)
		if err := b.readArtifact(ctx, &row); err != nil {
			return err
		}
		r.Reading = append(r.Reading, row)
	}
	return nil
}

func (b *bench) readArtifact(ctx context.Context, row *readingRow) (err error) {
	var s shape
	if _, err := fmt.Sscanf(row.Shape, "%d x %d", &s.layers, &s.hidden); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(b.ram, "reading-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	master := filepath.Join(dir, "master.bin")
	if row.Bytes, err = writeArtifact(master, row.Tokens, s, vllmsim.DType(row.DType)); err != nil {
		return err
	}
	web := httptest.NewServer(linker(dir, master))
	defer web.Close()
	cfg := probe.DefaultConfig()
	cfg.Name, cfg.Model = "bench", encoder
	cfg.Endpoint = probe.Endpoint{BaseURL: web.URL + "/v1", HiddenStatesDir: dir}
	p, err := probe.New(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close(context.WithoutCancel(ctx)) }()

	extract := func() (time.Duration, error) {
		found, err := p.Extract(ctx, probe.Request{Task: "x", Shape: probe.Shape{Layers: s.layers, HiddenSize: s.hidden}})
		return found.Artifact, err
	}
	medians, err := turns(ctx, 3*b.Rounds, func() (time.Duration, error) { return readFile(master) }, extract)
	if err != nil {
		return err
	}
	row.Plain, row.Features = medians[0], medians[1]
	before := readStats()
	if _, err := extract(); err != nil {
		return err
	}
	row.Memory = readStats().Bytes - before.Bytes
	return nil
}

// linker plays a vLLM whose artifacts are there at once.
func linker(dir, master string) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		path := filepath.Join(dir, fmt.Sprintf("%d.safetensors", n.Add(1)))
		if err := os.Link(master, path); err != nil {
			http.Error(w, "cannot link", http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"kv_transfer_params": map[string]any{"hidden_states_path": path}})
	})
}

// writeArtifact writes what vLLM would, and returns its size.
func writeArtifact(path string, tokens int, s shape, dtype vllmsim.DType) (int64, error) {
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	// A few distinct tokens are made quickly, and read like any others.
	const distinct = 97
	ids := make([]int64, tokens)
	for i := range ids {
		ids[i] = int64(1000 + i%distinct)
	}
	if err := vllmsim.WriteArtifact(file, ids, s.layers, s.hidden, dtype); err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
