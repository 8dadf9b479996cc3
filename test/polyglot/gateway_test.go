package polyglot

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/testing/protocmp"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// The tasks that the demo's greeting names: one for each target.
const (
	easyTask = "What is 2+2?"
	hardTask = "Prove that there are infinitely many primes congruent to 3 modulo 4."
)

// decideTimeout is what the gateways give Pointsman. It is generous, so that a
// busy machine does not look like a dead server.
const decideTimeout = 8 * time.Second

// build prepares a language's gateway in dir and returns the command that runs it.
type build func(t *testing.T, dir string) *exec.Cmd

// TestGateways runs the example gateway of each language against one server.
func TestGateways(t *testing.T) {
	needE2E(t)
	demo := startDemo(t)
	direct, err := grpc.NewClient(demo, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = direct.Close() })
	for _, language := range []struct {
		name  string
		build build
	}{
		{"go", buildGo},
		{"python", buildPython},
		{"typescript", buildTypeScript},
		{"java", buildJava},
	} {
		t.Run(language.name, func(t *testing.T) {
			g := &gatewayTest{
				command: language.build(t, t.TempDir()),
				relay:   startRelay(t, demo),
				models:  startModels(t),
				server:  pointsmanv1.NewDecisionServiceClient(direct),
			}
			g.start(t)
			t.Run("asks and forwards", g.asksAndForwards)
			t.Run("translates every kind of message", g.translates)
			t.Run("passes a stream on", g.streams)
			t.Run("refuses what is no chat", g.refuses)
			t.Run("fails open when Pointsman hangs", g.survivesHang)
			t.Run("fails open when Pointsman is gone", g.survivesLoss)
		})
	}
}

type gatewayTest struct {
	command *exec.Cmd
	relay   *relay
	models  *models
	server  pointsmanv1.DecisionServiceClient // past the relay
	url     string
}

func (g *gatewayTest) start(t *testing.T) {
	g.command.Env = append(g.command.Environ(),
		"LISTEN=127.0.0.1:0", "POINTSMAN_ADDRESS="+g.relay.address,
		"STRONG_URL="+g.models.strong, "WEAK_URL="+g.models.weak, "STRONG_MODEL=fail-open/strong",
		"DECIDE_TIMEOUT_MS=8000",
	)
	g.url = "http://" + start(t, g.command, listenLine) + "/v1/chat/completions"
}

const (
	traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	key         = "Bearer callers-own-key"
)

// answer is what the gateway's caller got.
type answer struct {
	status        int
	target, basis string
	contentType   string
	body          string
}

// post sends a body as a caller would.
func (g *gatewayTest) post(t *testing.T, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", traceparent)
	req.Header.Set("Authorization", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{
		status: resp.StatusCode, target: resp.Header.Get("X-Pointsman-Target"), basis: resp.Header.Get("X-Pointsman-Basis"),
		contentType: resp.Header.Get("Content-Type"), body: string(data),
	}
}

func chat(t *testing.T, task string, extra map[string]any) string {
	t.Helper()
	body := map[string]any{"model": "auto", "messages": []any{map[string]any{"role": "user", "content": task}}}
	maps.Copy(body, extra)
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// asksAndForwards: the target and model are Pointsman's, the rest of the request
// arrives as it was, and the trace goes through.
func (g *gatewayTest) asksAndForwards(t *testing.T) {
	chosen := map[string]bool{}
	for _, task := range []string{easyTask, hardTask} {
		want, err := g.server.Decide(t.Context(), &pointsmanv1.DecideRequest{Input: &pointsmanv1.DecideRequest_Task{Task: task}})
		if err != nil {
			t.Fatal(err)
		}
		chosen[want.GetTarget()] = true
		got := g.post(t, chat(t, task, map[string]any{"temperature": 0.25, "metadata": map[string]any{"k": "v"}}))
		if got.status != http.StatusOK || got.target != want.GetTarget() || got.basis != "BASIS_LEARNED" || !strings.Contains(got.body, "from "+want.GetTarget()) {
			t.Errorf("%q: got %+v, want target %s", task, got, want.GetTarget())
		}
		asked := g.relay.take()
		if len(asked) != 1 {
			t.Fatalf("%q: Pointsman was asked %d times", task, len(asked))
		}
		if d := asked[0]; !sameTrace(d.traceparent...) || d.remaining <= 0 || d.remaining > decideTimeout+time.Second {
			t.Errorf("%q: Decide came with traceparent %v and %v left", task, d.traceparent, d.remaining)
		}
		forwarded := g.models.take()
		if len(forwarded) != 1 {
			t.Fatalf("%q: forwarded %d times", task, len(forwarded))
		}
		f := forwarded[0]
		if f.server != want.GetTarget() || f.path != "POST /v1/chat/completions" || !sameTrace(f.traceparent) || f.authorization != key {
			t.Errorf("%q: forwarded %+v", task, f)
		}
		wantBody := map[string]any{
			"model": want.GetModel(), "temperature": 0.25, "metadata": map[string]any{"k": "v"},
			"messages": []any{map[string]any{"role": "user", "content": task}},
		}
		if diff := cmp.Diff(wantBody, f.body); diff != "" {
			t.Errorf("%q: forwarded body (-want +got):\n%s", task, diff)
		}
	}
	if len(chosen) != 2 {
		t.Errorf("the demo chose only %v: this test proves too little", chosen)
	}
}

// sameTrace says whether there is one traceparent, of the caller's trace. A gateway
// may put a span of its own between.
func sameTrace(values ...string) bool {
	parts := strings.Split(traceparent, "-")
	return len(values) == 1 && strings.HasPrefix(values[0], parts[0]+"-"+parts[1]+"-")
}

// translates: all languages make the same conversation of a request.
func (g *gatewayTest) translates(t *testing.T) {
	const image = `{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}`
	got := g.post(t, `{"model":"auto","messages":[
		{"role":"system","content":"be brief"},
		{"role":"developer","content":""},
		{"role":"user","content":[{"type":"text","text":"größer 漢字 🙂"},`+image+`]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},
		{"role":"tool","tool_call_id":"1","content":"42"},
		{"role":"function","content":"?"}
	]}`)
	if got.status != http.StatusOK {
		t.Fatalf("got %+v", got)
	}
	asked := g.relay.take()
	if len(asked) != 1 {
		t.Fatalf("Pointsman was asked %d times", len(asked))
	}
	text := func(s string) *pointsmanv1.ContentPart {
		return &pointsmanv1.ContentPart{Kind: &pointsmanv1.ContentPart_Text{Text: s}}
	}
	message := func(role pointsmanv1.Role, parts ...*pointsmanv1.ContentPart) *pointsmanv1.ChatMessage {
		return &pointsmanv1.ChatMessage{Role: role, Parts: parts}
	}
	want := &pointsmanv1.DecideRequest{Input: &pointsmanv1.DecideRequest_Conversation{Conversation: &pointsmanv1.Conversation{
		Messages: []*pointsmanv1.ChatMessage{
			message(pointsmanv1.Role_ROLE_SYSTEM, text("be brief")),
			message(pointsmanv1.Role_ROLE_DEVELOPER, text("")),
			message(pointsmanv1.Role_ROLE_USER, text("größer 漢字 🙂"), &pointsmanv1.ContentPart{Kind: &pointsmanv1.ContentPart_Other{Other: "image_url"}}),
			message(pointsmanv1.Role_ROLE_ASSISTANT),
			message(pointsmanv1.Role_ROLE_TOOL, text("42")),
			message(pointsmanv1.Role_ROLE_UNSPECIFIED, text("?")),
		},
	}}}
	if diff := cmp.Diff(want, asked[0].request, protocmp.Transform()); diff != "" {
		t.Errorf("Decide was asked (-want +got):\n%s", diff)
	}
	forwarded := g.models.take()
	if len(forwarded) != 1 || len(forwarded[0].body["messages"].([]any)) != 6 || !strings.Contains(mustJSON(t, forwarded[0].body), "data:image/png") {
		t.Errorf("forwarded %+v", forwarded)
	}
}

func (g *gatewayTest) streams(t *testing.T) {
	got := g.post(t, chat(t, easyTask, map[string]any{"stream": true}))
	if got.status != http.StatusOK || got.body != streamed || !strings.HasPrefix(got.contentType, "text/event-stream") {
		t.Errorf("got %+v", got)
	}
	g.relay.take()
	g.models.take()
}

func (g *gatewayTest) refuses(t *testing.T) {
	for _, body := range []string{"", "{", "[]", "{}", `{"messages":5}`} {
		if got := g.post(t, body); got.status != http.StatusBadRequest {
			t.Errorf("%q: got %+v", body, got)
		}
	}
	if asked, forwarded := g.relay.take(), g.models.take(); len(asked)+len(forwarded) > 0 {
		t.Errorf("asked %v, forwarded %v", asked, forwarded)
	}
}

func (g *gatewayTest) survivesHang(t *testing.T) {
	g.relay.setHang(true)
	defer g.relay.setHang(false)
	begun := time.Now()
	g.failsOpen(t)
	// gRPC rounds deadlines.
	if took := time.Since(begun); took < decideTimeout/2 || took > decideTimeout+10*time.Second {
		t.Errorf("it took %v: not the deadline of %v", took, decideTimeout)
	}
	if asked := g.relay.take(); len(asked) != 1 {
		t.Errorf("Pointsman was asked %d times", len(asked))
	}
}

// survivesLoss stops the relay, so it must be the last.
func (g *gatewayTest) survivesLoss(t *testing.T) {
	g.relay.stop()
	g.failsOpen(t)
}

// failsOpen: an easy task goes to the strong model.
func (g *gatewayTest) failsOpen(t *testing.T) {
	t.Helper()
	got := g.post(t, chat(t, easyTask, nil))
	if got.status != http.StatusOK || got.target != "strong" || got.basis != "NO_DECISION" || !strings.Contains(got.body, "from strong") {
		t.Errorf("got %+v", got)
	}
	forwarded := g.models.take()
	if len(forwarded) != 1 || forwarded[0].server != "strong" || forwarded[0].body["model"] != "fail-open/strong" || !sameTrace(forwarded[0].traceparent) {
		t.Errorf("forwarded %+v", forwarded)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func buildGo(t *testing.T, dir string) *exec.Cmd {
	path := filepath.Join(dir, "gateway")
	run(t, repoRoot, nil, "go", "build", "-o", path, "./test/polyglot/go")
	return exec.Command(path)
}

func buildPython(t *testing.T, dir string) *exec.Cmd {
	need(t, "python3", "install Python 3.10 or newer with venv (Debian: apt install python3-venv)")
	copyDir(t, "test/polyglot/python", filepath.Join(dir, "gateway"))
	copyDir(t, "gen/python", filepath.Join(dir, "stubs"))
	run(t, dir, nil, "python3", "-m", "venv", "venv")
	run(t, dir, nil, "venv/bin/pip", "install", "--quiet", "./stubs", "--requirement", "gateway/requirements.txt",
		"mypy==2.4.1", "types-grpcio==1.85.0.20261028", "types-protobuf==7.35.1.20260906")
	run(t, dir, nil, "venv/bin/mypy", "--strict", "gateway/gateway.py")
	return exec.Command(filepath.Join(dir, "venv/bin/python"), filepath.Join(dir, "gateway/gateway.py"))
}

func buildTypeScript(t *testing.T, dir string) *exec.Cmd {
	need(t, "node", "install Node.js 20 or newer")
	need(t, "npm", "install npm (Debian: apt install npm)")
	copyDir(t, "test/polyglot/typescript", filepath.Join(dir, "gateway"))
	copyDir(t, "gen/typescript", filepath.Join(dir, "stubs"))
	gateway := filepath.Join(dir, "gateway")
	run(t, gateway, nil, "npm", "install", "--no-audit", "--no-fund", "--install-links", "../stubs")
	run(t, gateway, nil, "npm", "run", "build")
	return exec.Command("node", filepath.Join(gateway, "build/gateway.js"))
}

func buildJava(t *testing.T, dir string) *exec.Cmd {
	need(t, "mvn", "install Maven 3.8 or newer and a JDK of 17 or newer (Debian: apt install maven)")
	copyDir(t, "test/polyglot/java", filepath.Join(dir, "gateway"))
	copyDir(t, "gen/java", filepath.Join(dir, "stubs"))
	run(t, filepath.Join(dir, "stubs"), mavenEnv(t), "mvn", "--batch-mode", "--quiet", "install")
	run(t, filepath.Join(dir, "gateway"), mavenEnv(t), "mvn", "--batch-mode", "--quiet", "package")
	target := filepath.Join(dir, "gateway/target")
	return exec.Command("java", "-cp", filepath.Join(target, "classes")+":"+filepath.Join(target, "lib/*"), "dev.pointsman.example.Gateway")
}
