// Command go is a minimal LLM gateway: an OpenAI-style chat request comes in over
// HTTP, Pointsman says which model it needs, and the request goes to that model's
// server as it is, but for its model. When Pointsman cannot be asked, the strong
// model answers.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// maxBody is the largest request that is read, as large as the largest that
// Pointsman takes.
const maxBody = 16 << 20

// strong is the target that answers when no decision can be had.
const strong = "strong"

type gateway struct {
	decisions pointsmanv1.DecisionServiceClient
	// upstreams has the server of each target by name.
	upstreams   map[string]*httputil.ReverseProxy
	strongModel string
	timeout     time.Duration
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	timeout, err := time.ParseDuration(env("DECIDE_TIMEOUT_MS", "500") + "ms")
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(env("POINTSMAN_ADDRESS", "127.0.0.1:50051"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	g := &gateway{
		decisions:   pointsmanv1.NewDecisionServiceClient(conn),
		upstreams:   map[string]*httputil.ReverseProxy{},
		strongModel: env("STRONG_MODEL", "provider/strong-model"),
		timeout:     timeout,
	}
	for target, variable := range map[string]string{strong: "STRONG_URL", "weak": "WEAK_URL"} {
		base, err := url.Parse(env(variable, "http://127.0.0.1:8000/v1"))
		if err != nil {
			return fmt.Errorf("%s: %w", variable, err)
		}
		g.upstreams[target] = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = base.JoinPath("chat/completions")
			r.Out.Host = base.Host
		}}
	}
	mux := http.NewServeMux()
	mux.Handle("POST /v1/chat/completions", g)
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", env("LISTEN", "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	return (&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}).Serve(listener)
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	var body map[string]json.RawMessage // what is not looked at is forwarded as it is
	var messages []message
	if json.Unmarshal(data, &body) != nil || json.Unmarshal(body["messages"], &messages) != nil {
		http.Error(w, `the body is not JSON with "messages"`, http.StatusBadRequest)
		return
	}
	target, model, basis := g.choose(r.Context(), r.Header, messages)
	if data, err = withModel(body, model); err != nil {
		http.Error(w, "the body cannot be written", http.StatusBadRequest)
		return
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	w.Header().Set("X-Pointsman-Target", target)
	w.Header().Set("X-Pointsman-Basis", basis)
	g.upstreams[target].ServeHTTP(w, r)
}

// withModel is the body for another model.
func withModel(body map[string]json.RawMessage, model string) (data []byte, err error) {
	if body["model"], err = json.Marshal(model); err != nil {
		return nil, err
	}
	return json.Marshal(body)
}

// choose asks Pointsman. Whatever goes wrong, there is an answer: the strong model.
func (g *gateway) choose(ctx context.Context, header http.Header, messages []message) (target, model, basis string) {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	// With OpenTelemetry its gRPC and HTTP instrumentations do this.
	trace := metadata.MD{}
	for _, name := range []string{"traceparent", "tracestate"} {
		trace.Append(name, header.Values(name)...)
	}
	ctx = metadata.NewOutgoingContext(ctx, trace)
	decision, err := g.decisions.Decide(ctx, &pointsmanv1.DecideRequest{
		Input: &pointsmanv1.DecideRequest_Conversation{Conversation: conversation(messages)},
	})
	if err != nil {
		log.Printf("no decision, the strong model answers: %v", err)
		return strong, g.strongModel, "NO_DECISION"
	}
	if g.upstreams[decision.GetTarget()] == nil {
		log.Printf("no server for target %q, the strong model answers", decision.GetTarget())
		return strong, g.strongModel, "UNKNOWN_TARGET"
	}
	return decision.GetTarget(), decision.GetModel(), decision.GetBasis().String()
}

// message is a message of the OpenAI chat API. Its content is a string, null, or a
// list of parts.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// roles translates roles; one that is not here is not a user.
var roles = map[string]pointsmanv1.Role{
	"system":    pointsmanv1.Role_ROLE_SYSTEM,
	"developer": pointsmanv1.Role_ROLE_DEVELOPER,
	"user":      pointsmanv1.Role_ROLE_USER,
	"assistant": pointsmanv1.Role_ROLE_ASSISTANT,
	"tool":      pointsmanv1.Role_ROLE_TOOL,
}

func conversation(messages []message) *pointsmanv1.Conversation {
	c := new(pointsmanv1.Conversation)
	for _, m := range messages {
		c.Messages = append(c.Messages, &pointsmanv1.ChatMessage{Role: roles[m.Role], Parts: parts(m.Content)})
	}
	return c
}

func parts(content json.RawMessage) []*pointsmanv1.ContentPart {
	var text *string // null is a message that only calls tools
	if json.Unmarshal(content, &text) == nil && text != nil {
		return []*pointsmanv1.ContentPart{{Kind: &pointsmanv1.ContentPart_Text{Text: *text}}}
	}
	var list []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &list) != nil {
		return nil
	}
	var out []*pointsmanv1.ContentPart
	for _, p := range list {
		if p.Type == "text" {
			out = append(out, &pointsmanv1.ContentPart{Kind: &pointsmanv1.ContentPart_Text{Text: p.Text}})
		} else { // only text is scored: say that there was something
			out = append(out, &pointsmanv1.ContentPart{Kind: &pointsmanv1.ContentPart_Other{Other: p.Type}})
		}
	}
	return out
}

func env(name, otherwise string) string { return cmp.Or(os.Getenv(name), otherwise) }
