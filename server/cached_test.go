package server

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// mostAllocs is how many allocations a cached Decide may cost from the first
// interceptor to the answer that is ready to be encoded, its access-log line written.
// Raise it only with a reason: at tens of thousands of calls a second, each is felt.
const mostAllocs = 28

// trailers is the stream that a call is answered on.
type trailers struct{ md metadata.MD }

func (*trailers) Method() string                    { return pointsmanv1.DecisionService_Decide_FullMethodName }
func (*trailers) SetHeader(metadata.MD) error       { return nil }
func (*trailers) SendHeader(metadata.MD) error      { return nil }
func (s *trailers) SetTrailer(md metadata.MD) error { s.md = metadata.Join(s.md, md); return nil }

// cachedCall returns a func that makes one call whose scores are in the local cache,
// through all interceptors and the handler.
func cachedCall(t testing.TB) func() (*pointsmanv1.DecideResponse, error) {
	t.Helper()
	d, route := newDecider(t, &fakeProber{})
	route.Targets, route.candidates = slices.Delete(route.Targets, 1, 2), slices.Delete(route.candidates, 1, 2) // strong and weak
	log := slog.New(slog.NewJSONHandler(io.Discard, nil))
	chain := interceptors(log, XX, DeadlineMargin(5*time.Millisecond))
	s := &service{decider: d}
	handler := func(ctx context.Context, req any) (any, error) {
		return s.Decide(ctx, req.(*pointsmanv1.DecideRequest))
	}
	info := &grpc.UnaryServerInfo{Server: s, FullMethod: pointsmanv1.DecisionService_Decide_FullMethodName}
	for i := len(chain) - 1; i >= 0; i-- {
		next, around := handler, chain[i]
		handler = func(ctx context.Context, req any) (any, error) { return around(ctx, req, info, next) }
	}
	req := &pointsmanv1.DecideRequest{Input: &pointsmanv1.DecideRequest_Task{Task: "What is 2+2?"}}
	background := metadata.NewIncomingContext(context.Background(), metadata.Pairs("user-agent", "test"))
	call := func() (*pointsmanv1.DecideResponse, error) {
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		resp, err := handler(grpc.NewContextWithServerTransportStream(ctx, &trailers{}), req)
		if err != nil {
			return nil, err
		}
		return resp.(*pointsmanv1.DecideResponse), nil
	}
	if _, err := call(); err != nil {
		t.Fatal(err)
	}
	return call
}

// callersAllocs is what cachedCall itself allocates of what gRPC would have: the
// deadline's ctx and the stream.
const callersAllocs = 8

func TestACachedDecideAllocatesLittle(t *testing.T) {
	call := cachedCall(t)
	const runs = 200
	got := testing.AllocsPerRun(runs, func() {
		if resp, err := call(); err != nil || resp.GetOrigin() != pointsmanv1.Origin_ORIGIN_LOCAL_CACHE {
			t.Fatal(resp, err)
		}
	})
	t.Logf("%v allocations", got)
	if got > mostAllocs+callersAllocs {
		t.Errorf("%v allocations, want at most %d", got, mostAllocs+callersAllocs)
	}
}

func BenchmarkCallCached(b *testing.B) {
	call := cachedCall(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := call(); err != nil {
			b.Fatal(err)
		}
	}
}
