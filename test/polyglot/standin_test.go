package polyglot

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// seenDecide is what came with a call of Decide.
type seenDecide struct {
	request     *pointsmanv1.DecideRequest
	traceparent []string
	remaining   time.Duration // until the caller's deadline; 0 without one
}

// relay stands between the gateways and one real server: it notes what comes, and
// can be made to hang.
type relay struct {
	pointsmanv1.UnimplementedDecisionServiceServer
	next    pointsmanv1.DecisionServiceClient
	address string
	stop    func()

	mu   sync.Mutex
	hang bool
	seen []seenDecide
}

// startRelay serves a relay to the server at address until the test ends, or until
// its stop.
func startRelay(t *testing.T, address string) *relay {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{next: pointsmanv1.NewDecisionServiceClient(conn), address: listener.Addr().String()}
	s := grpc.NewServer()
	pointsmanv1.RegisterDecisionServiceServer(s, r)
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	r.stop = sync.OnceFunc(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	})
	t.Cleanup(r.stop)
	return r
}

func (r *relay) Decide(ctx context.Context, req *pointsmanv1.DecideRequest) (*pointsmanv1.DecideResponse, error) {
	seen := seenDecide{
		request:     proto.CloneOf(req),
		traceparent: metadata.ValueFromIncomingContext(ctx, "traceparent"),
	}
	if deadline, ok := ctx.Deadline(); ok {
		seen.remaining = time.Until(deadline)
	}
	r.mu.Lock()
	r.seen = append(r.seen, seen)
	hang := r.hang
	r.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return r.next.Decide(ctx, req)
}

// setHang makes calls hang until their deadline, or not.
func (r *relay) setHang(hang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hang = hang
}

// take returns what was seen since the last take.
func (r *relay) take() []seenDecide {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = nil
	return seen
}

// seenChat is a chat request that a model's server got.
type seenChat struct {
	server        string // strong or weak
	path          string
	body          map[string]any
	traceparent   string
	authorization string
}

// models are the stand-ins for two OpenAI-compatible servers.
type models struct {
	strong, weak string // base URLs, with /v1

	mu   sync.Mutex
	seen []seenChat
}

func startModels(t *testing.T) *models {
	t.Helper()
	m := new(models)
	serve := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.answer(name, w, r) }))
		t.Cleanup(s.Close)
		return s.URL + "/v1"
	}
	m.strong, m.weak = serve("strong"), serve("weak")
	return m
}

// streamed is what the stand-ins answer to a request for a stream.
const streamed = "data: {\"choices\":[{\"delta\":{\"content\":\"hel\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"lo\"}}]}\n\ndata: [DONE]\n\n"

func (m *models) answer(name string, w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	var body map[string]any
	if err != nil || json.Unmarshal(data, &body) != nil {
		http.Error(w, "bad body", http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	m.seen = append(m.seen, seenChat{
		server: name, path: r.Method + " " + r.URL.Path, body: body,
		traceparent: r.Header.Get("Traceparent"), authorization: r.Header.Get("Authorization"),
	})
	m.mu.Unlock()
	if body["stream"] == true {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, streamed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"],
		"choices": []any{map[string]any{
			"index": 0, "finish_reason": "stop",
			"message": map[string]any{"role": "assistant", "content": "from " + name},
		}},
		"usage": map[string]any{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
	})
}

func (m *models) take() []seenChat {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.seen
	m.seen = nil
	return seen
}
