package main

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// wireService answers as its func says.
type wireService struct {
	pointsmanv1.UnimplementedDecisionServiceServer

	answer func(ctx context.Context, task string) (*pointsmanv1.DecideResponse, error)
}

func (s wireService) Decide(ctx context.Context, in *pointsmanv1.DecideRequest) (*pointsmanv1.DecideResponse, error) {
	return s.answer(ctx, in.GetTask())
}

// serveWire serves a wireService with grpc-go, and returns its address.
func serveWire(t *testing.T, answer func(ctx context.Context, task string) (*pointsmanv1.DecideResponse, error)) (string, *grpc.Server) {
	t.Helper()
	listener, err := listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	pointsmanv1.RegisterDecisionServiceServer(g, wireService{answer: answer})
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(listener) })
	t.Cleanup(func() {
		g.Stop()
		wg.Wait()
	})
	return listener.Addr().String(), g
}

// dialTest connects twice; the connections end with the test.
func dialTest(t *testing.T, addr string, prompts []string, look func(*pointsmanv1.DecideResponse)) *wireClient {
	t.Helper()
	const conns = 2
	c, err := dialWire(t.Context(), addr, conns, prompts, look)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return c
}

// TestTheWireClientSpeaksGRPC sends calls of several sizes, altogether far more than a
// connection's window, to grpc-go, which has to understand every one of them.
func TestTheWireClientSpeaksGRPC(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	addr, _ := serveWire(t, func(ctx context.Context, task string) (*pointsmanv1.DecideResponse, error) {
		if _, ok := ctx.Deadline(); !ok {
			return nil, status.Error(codes.InvalidArgument, "no deadline")
		}
		mu.Lock()
		defer mu.Unlock()
		asked[task]++
		// Trailers that are never the same twice go through the header table.
		return &pointsmanv1.DecideResponse{Target: "t"}, grpc.SetTrailer(ctx, metadata.Pairs("number", strconv.Itoa(asked[task])))
	})
	prompts := []string{"", "short", strings.Repeat("long ", 3000)}
	var looked atomic.Int64
	c := dialTest(t, addr, prompts, func(resp *pointsmanv1.DecideResponse) {
		if resp.GetTarget() == "t" {
			looked.Add(1)
		}
	})
	const calls = 600
	l, err := openLoop(t.Context(), c, time.Sleep, 20_000, calls*time.Second/20_000)
	if err != nil {
		t.Fatal(err)
	}
	if l.calls < calls/2 || l.latencies.total != uint64(l.calls) {
		t.Errorf("%d calls, %d latencies", l.calls, l.latencies.total)
	}
	total := 0
	for _, prompt := range prompts {
		if n := asked[prompt]; n < l.calls/len(prompts)-1 || n > l.calls/len(prompts)+1 {
			t.Errorf("%d of %d calls had the prompt of %d bytes", n, l.calls, len(prompt))
		}
		total += asked[prompt]
	}
	if total != l.calls {
		t.Errorf("%d calls arrived of %d", total, l.calls)
	}
	if n := int(looked.Load()); n < l.calls/answerSample-1 || n > l.calls/answerSample+len(c.conns) {
		t.Errorf("looked at %d of %d answers", n, l.calls)
	}
}

func TestTheWireClientCountsFromTheDueTime(t *testing.T) {
	addr, _ := serveWire(t, func(context.Context, string) (*pointsmanv1.DecideResponse, error) {
		return &pointsmanv1.DecideResponse{Target: "t"}, nil
	})
	c := dialTest(t, addr, []string{"task"}, nil)
	if err := errors.Join(c.send(1, time.Now().Add(-time.Hour)), c.flush()); err != nil {
		t.Fatal(err)
	}
	latencies, err := c.wait(t.Context())
	if err != nil || latencies.quantile(1) < time.Hour {
		t.Errorf("%v, %v", latencies.quantile(1), err)
	}
}

func TestTheWireClientTellsFailures(t *testing.T) {
	t.Run("status", func(t *testing.T) {
		addr, _ := serveWire(t, func(context.Context, string) (*pointsmanv1.DecideResponse, error) {
			return nil, status.Error(codes.Unavailable, "no")
		})
		c := dialTest(t, addr, []string{"task"}, nil)
		if err := errors.Join(c.send(1, time.Now()), c.flush()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.wait(t.Context()); !errors.Is(err, errRefused) {
			t.Error(err)
		}
	})
	t.Run("server gone", func(t *testing.T) {
		asked := make(chan struct{})
		addr, g := serveWire(t, func(ctx context.Context, _ string) (*pointsmanv1.DecideResponse, error) {
			close(asked)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		c := dialTest(t, addr, []string{"task"}, nil)
		if err := errors.Join(c.send(1, time.Now()), c.flush()); err != nil {
			t.Fatal(err)
		}
		<-asked
		g.Stop()
		if _, err := c.wait(t.Context()); err == nil {
			t.Error("nobody was told")
		}
		if err := c.send(1, time.Now()); err == nil {
			t.Error("a call was sent into the void")
		}
	})
	t.Run("no answer", func(t *testing.T) {
		addr, _ := serveWire(t, func(ctx context.Context, _ string) (*pointsmanv1.DecideResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		c := dialTest(t, addr, []string{"task"}, nil)
		if err := errors.Join(c.send(1, time.Now()), c.flush()); err != nil {
			t.Fatal(err)
		}
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(enough)
		if _, err := c.wait(ctx); !errors.Is(err, errNoAnswer) || !errors.Is(err, enough) {
			t.Error(err)
		}
	})
}
