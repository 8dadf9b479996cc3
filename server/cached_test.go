package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/pointsman-dev/pointsman/cache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/drift"
	"github.com/pointsman-dev/pointsman/server/config"
	"github.com/pointsman-dev/pointsman/server/telemetry"
)

// mostAllocs is how many allocations a cached Decide may cost from the first
// interceptor to the answer that is ready to be encoded, its access-log line written.
// Raise it only with a reason: at tens of thousands of calls a second, each is felt.
const mostAllocs = 16

// trailers is the stream that a call is answered on.
type trailers struct{ md metadata.MD }

func (*trailers) Method() string                    { return pointsmanv1.DecisionService_Decide_FullMethodName }
func (*trailers) SetHeader(metadata.MD) error       { return nil }
func (*trailers) SendHeader(metadata.MD) error      { return nil }
func (s *trailers) SetTrailer(md metadata.MD) error { s.md = metadata.Join(s.md, md); return nil }

// cachedTask is in the cache of every cachedDecider.
const cachedTask = "What is 2+2?"

// cachedDecider has the scores of a task in its cache, and the usual two targets.
func cachedDecider(t testing.TB, entries int) *Decider {
	t.Helper()
	d, route := newDecider(t, &fakeProber{})
	route.Targets, route.candidates = slices.Delete(route.Targets, 1, 2), slices.Delete(route.candidates, 1, 2)
	route.live = liveScores{"strong": drift.NewLive(halves, time.Now()), "weak": drift.NewLive(halves, time.Now())}
	cfg := cache.DefaultConfig()
	cfg.MaxEntries = max(cfg.MaxEntries, 2*entries)
	var err error
	if d.ladder, err = cache.New(cfg, cache.Deps[Scores]{}); err != nil { // the first one is closed by newDecider's clean-up
		t.Fatal(err)
	}
	// Observed as a server is that exports nothing: metrics and the log, no traces.
	log := slog.New(slog.NewJSONHandler(io.Discard, nil)) //nolint:sloglint // lines are made, as in a server, and thrown away
	told, err := telemetry.New(t.Context(), telemetry.Config{Log: log, Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	d.observer = &observer{telemetry: told, log: log}
	ladder := d.ladder
	t.Cleanup(func() {
		if err := errors.Join(ladder.Close(context.Background()), told.Shutdown(context.Background())); err != nil {
			t.Error(err)
		}
	})
	if _, err := d.Decide(t.Context(), ask(cachedTask)); err != nil {
		t.Fatal(err)
	}
	return d
}

// callThrough returns a func that makes one call through all interceptors and the handler.
func callThrough(d *Decider) func(task string) (*pointsmanv1.DecideResponse, error) {
	observed := d.observer.(*observer)
	chain := interceptors(observed.log, observed.telemetry, DeadlineMargin(5*time.Millisecond))
	s := &service{decider: d}
	handler := func(ctx context.Context, req any) (any, error) {
		return s.Decide(ctx, req.(*pointsmanv1.DecideRequest))
	}
	info := &grpc.UnaryServerInfo{Server: s, FullMethod: pointsmanv1.DecisionService_Decide_FullMethodName}
	for _, around := range slices.Backward(chain) {
		next := handler
		handler = func(ctx context.Context, req any) (any, error) { return around(ctx, req, info, next) }
	}
	background := metadata.NewIncomingContext(context.Background(), metadata.Pairs("user-agent", "test"))
	return func(task string) (*pointsmanv1.DecideResponse, error) {
		req := &pointsmanv1.DecideRequest{Input: &pointsmanv1.DecideRequest_Task{Task: task}}
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		resp, err := handler(grpc.NewContextWithServerTransportStream(ctx, &trailers{}), req)
		if err != nil {
			return nil, err
		}
		return resp.(*pointsmanv1.DecideResponse), nil
	}
}

// callersAllocs is what callThrough itself allocates, and gRPC instead of it in a server: the
// request, the deadline's ctx and the stream with its trailers.
const callersAllocs = 13

// BenchmarkCallCached makes calls whose scores are among so many others in the cache.
// Besides the usual, it reports the memory of an entry and the time of a garbage
// collection; cpu-ns/op counts all of the process's time, collections included, and is
// disturbed less than ns/op by other work on the machine.
func BenchmarkCallCached(b *testing.B) {
	sizes := []int{10_000, 1_000_000}
	if os.Getenv("POINTSMAN_BENCH_TEN_MILLION") == "true" { // about 10 GB
		sizes = append(sizes, 10_000_000)
	}
	for _, entries := range sizes {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			before := heapInUse()
			d := cachedDecider(b, entries)
			fillCache(b, d, entries)
			perEntry := float64(heapInUse()-before) / float64(entries)
			began := time.Now()
			runtime.GC()
			collection := time.Since(began)

			call := callThrough(d)
			random := rand.New(rand.NewPCG(1, 1))
			b.ReportAllocs()
			cpu := processorTime()
			n := 0
			for b.Loop() {
				n++
				if resp, err := call(taskNumber(random.IntN(entries))); err != nil || resp.GetOrigin() != pointsmanv1.Origin_ORIGIN_LOCAL_CACHE {
					b.Fatal(resp, err)
				}
			}
			b.ReportMetric(float64(processorTime()-cpu)/float64(n), "cpu-ns/op")
			b.ReportMetric(perEntry, "B/entry")
			b.ReportMetric(float64(collection.Milliseconds()), "ms/GC")
		})
	}
}

// servedEntries in the environment makes the test binary serve with so many entries.
const servedEntries = "POINTSMAN_BENCH_SERVED_ENTRIES"

// BenchmarkServedCached makes calls to a server in a process of its own, over loopback.
// cpu-ns/op is the processor time of that process.
func BenchmarkServedCached(b *testing.B) {
	for _, entries := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run", "^$", "-test.bench", "^BenchmarkServedChild$", "-test.benchtime", "1x")
			cmd.Env = append(cmd.Environ(), fmt.Sprintf("%s=%d", servedEntries, entries))
			stdin, err := cmd.StdinPipe()
			if err != nil {
				b.Fatal(err)
			}
			stderr, err := cmd.StderrPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			defer func() {
				_ = stdin.Close()
				_ = cmd.Wait()
			}()
			said := bufio.NewScanner(stderr)
			cpu := func() (took time.Duration) {
				if _, err := fmt.Fprintln(stdin); err != nil || !said.Scan() {
					b.Fatal("the server does not answer", err)
				}
				_, err := fmt.Sscan(said.Text(), (*int64)(&took))
				if err != nil {
					b.Fatal(err)
				}
				return took
			}
			said.Scan()
			conn, err := grpc.NewClient(said.Text(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			client := pointsmanv1.NewDecisionServiceClient(conn)
			before := cpu()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				random := rand.New(rand.NewPCG(rand.Uint64(), 1))
				for pb.Next() {
					task := &pointsmanv1.DecideRequest_Task{Task: taskNumber(random.IntN(entries))}
					if _, err := client.Decide(b.Context(), &pointsmanv1.DecideRequest{Input: task}); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkServedChild is no benchmark but the server of BenchmarkServedCached. It says
// where it listens, answers every line of its input with its processor time, and ends
// with its input.
func BenchmarkServedChild(b *testing.B) {
	entries, err := strconv.Atoi(os.Getenv(servedEntries))
	if err != nil {
		b.Skip("only run by BenchmarkServedCached")
	}
	d := cachedDecider(b, entries)
	fillCache(b, d, entries)
	observed := d.observer.(*observer)
	s := &Server{cfg: config.Default(), log: observed.log, telemetry: observed.telemetry, decider: d, door: newDoorman(observed.telemetry)}
	s.buildGRPC(false)
	var lc net.ListenConfig
	listener, err := lc.Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.grpc.Serve(listener) }()
	fmt.Fprintln(os.Stderr, listener.Addr())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Fprintln(os.Stderr, int64(processorTime()))
	}
	s.grpc.Stop()
	if err := <-done; err != nil {
		b.Error(err)
	}
}

func taskNumber(i int) string { return "What is 2+2? Asked for the " + strconv.Itoa(i) + "th time." }

// fillCache puts tasks into the cache as if they had been computed, with scores of the
// usual size.
func fillCache(b *testing.B, d *Decider, entries int) {
	b.Helper()
	const members, heads = 8, 2
	fields := d.snapshot.Load().routes["main"].key
	for i := range entries {
		fields.Task = taskNumber(i)
		_, err := d.ladder.Get(b.Context(), d.keyer.Key(fields), cache.Options{}, func(context.Context) (Scores, error) {
			p := scorer.Probabilities{Members: members, Heads: heads, Values: make([]float32, members*heads)}
			for j := range p.Values {
				p.Values[j] = float32((i+j)%100) / 100
			}
			return Scores{Probabilities: p, Tokens: 20, Digest: fields.CheckpointDigest}, nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // fails only for an unknown "who"
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
