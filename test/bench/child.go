package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/server"
)

// childCmd holds the parts that this program plays in processes of their own. Each ends
// when its standard input does, so that none outlives the one that started it.
type childCmd struct {
	Echo  echoCmd  `cmd:""`
	Serve serveCmd `cmd:""`
	Sim   simCmd   `cmd:""`
}

// partServe is the part that is Pointsman itself.
const partServe = "serve"

// untilInputEnds returns a ctx that ends with the standard input.
func untilInputEnds(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

// echoCmd is the bare gRPC server that everything is compared with.
type echoCmd struct {
	Listen string
	Stats  string
	// Response is what it answers, a DecideResponse.
	Response []byte `type:"filecontent"`
	// Checkpoint is held in memory and not used: with as much in memory as Pointsman has,
	// its garbage is collected as seldom.
	Checkpoint string
	// Contract has it send the contract's trailers and log a line a call: what any server
	// of this contract with an access log does, whatever it decides by.
	Contract bool
}

type echoService struct {
	pointsmanv1.UnimplementedDecisionServiceServer

	response   *pointsmanv1.DecideResponse
	checkpoint *scorer.Checkpoint
}

// Decide answers with what it was given.
func (s *echoService) Decide(context.Context, *pointsmanv1.DecideRequest) (*pointsmanv1.DecideResponse, error) {
	return s.response, nil
}

func (c *echoCmd) Run(ctx context.Context) error {
	checkpoint, err := scorer.Load(c.Checkpoint)
	if err != nil {
		return err
	}
	service := &echoService{response: &pointsmanv1.DecideResponse{}, checkpoint: checkpoint}
	if err := proto.Unmarshal(c.Response, service.response); err != nil {
		return fmt.Errorf("the response to echo: %w", err)
	}
	listener, err := listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	var opts []grpc.ServerOption
	if c.Contract {
		opts = append(opts, grpc.UnaryInterceptor(keepContract(slog.New(slog.NewJSONHandler(bufio.NewWriterSize(os.Stderr, gathered), nil)))))
	}
	g := grpc.NewServer(opts...)
	pointsmanv1.RegisterDecisionServiceServer(g, service)
	return withStats(ctx, c.Stats, func(ctx context.Context) error {
		context.AfterFunc(ctx, g.Stop)
		return g.Serve(listener)
	})
}

// gathered is how much of the log is written at once, as in Pointsman's own.
const gathered = 64 << 10

// keepContract sends the trailers of a decision and logs its call.
func keepContract(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		began, id := time.Now(), uuid.Must(uuid.NewV7()).String()
		resp, err := handler(ctx, req)
		_ = grpc.SetTrailer(ctx, metadata.Pairs( // fails only without a stream
			"x-request-id", id, "pointsman-basis", "LEARNED", "pointsman-decision-id", id))
		log.LogAttrs(ctx, slog.LevelInfo, "rpc",
			slog.String("method", info.FullMethod), slog.String("code", status.Code(err).String()),
			slog.String("route", "main"), slog.String("target", "weak"), slog.String("basis", "LEARNED"),
			slog.String("origin", "LOCAL_CACHE"), slog.String("request_id", id), slog.String("decision_id", id),
			slog.Duration("duration", time.Since(began)))
		return resp, err
	}
}

// serveCmd is Pointsman itself, as `pointsman serve` runs it.
type serveCmd struct {
	Config string
	Stats  string
}

func (c *serveCmd) Run(ctx context.Context) error {
	return withStats(ctx, c.Stats, func(ctx context.Context) error {
		return server.Serve(ctx, c.Config, os.Stderr)
	})
}

// simCmd is the stand-in for vLLM.
type simCmd struct {
	Listen  string
	Stats   string
	Dir     string
	Layers  int
	Hidden  int
	Latency time.Duration
}

func (c *simCmd) Run(ctx context.Context) (err error) {
	sim, err := vllmsim.New(vllmsim.Config{
		Dir: c.Dir, Model: encoder, Layers: c.Layers, HiddenSize: c.Hidden, Latency: c.Latency,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sim.Close()) }()
	listener, err := listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: sim.Handler(), ReadHeaderTimeout: callTimeout}
	return withStats(ctx, c.Stats, func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { _ = web.Close() })
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

// stats is what a child says of itself.
type stats struct {
	Mallocs   uint64        `json:"mallocs"`
	Bytes     uint64        `json:"bytes"`      // allocated so far
	HeapBytes uint64        `json:"heap_bytes"` // in use
	GCs       uint32        `json:"gcs"`
	GCPause   time.Duration `json:"gc_pause"`
	CPU       time.Duration `json:"cpu"` // user and system
	MaxRSS    int64         `json:"max_rss"`
}

// withStats runs a part of this program until the standard input ends, and serves its
// stats meanwhile.
func withStats(ctx context.Context, addr string, run func(ctx context.Context) error) error {
	ctx = untilInputEnds(ctx)
	listener, err := listen(ctx, addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("gc") != "" {
			runtime.GC()
		}
		_ = json.NewEncoder(w).Encode(readStats()) // fails if the reader has left
	})
	mux.HandleFunc("GET /profile", pprof.Profile)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: callTimeout}
	done := make(chan error, 1)
	go func() { done <- web.Serve(listener) }()
	err = run(ctx)
	_ = web.Close()
	if stopped := <-done; err == nil && !errors.Is(stopped, http.ErrServerClosed) {
		err = stopped
	}
	return err
}

func readStats() stats {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // fails only for an unknown "who"
	return stats{
		Mallocs: m.Mallocs, Bytes: m.TotalAlloc, HeapBytes: m.HeapAlloc, GCs: m.NumGC,
		GCPause: time.Duration(m.PauseTotalNs),
		CPU:     time.Duration(usage.Utime.Nano() + usage.Stime.Nano()),
		MaxRSS:  int64(usage.Maxrss), //nolint:unconvert // 32 bits on some systems
	}
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", addr)
}
