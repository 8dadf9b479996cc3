package polyglot

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// TestLiteLLM runs the hook in the real LiteLLM proxy.
func TestLiteLLM(t *testing.T) {
	needE2E(t)
	need(t, "python3", "install Python 3.10 or newer with venv (Debian: apt install python3-venv)")
	dir := t.TempDir()
	copyDir(t, "test/polyglot/litellm", filepath.Join(dir, "proxy"))
	copyDir(t, "gen/python", filepath.Join(dir, "stubs"))
	run(t, dir, nil, "python3", "-m", "venv", "venv")
	run(t, dir, nil, "venv/bin/pip", "install", "--quiet", "litellm[proxy]==1.100.0", "./stubs")

	demo := startDemo(t)
	relay, models := startRelay(t, demo), startModels(t)
	nameModels(t, filepath.Join(dir, "proxy/config.yaml"), ask(t, demo, easyTask))
	port := freePort(t)
	proxy := exec.Command(filepath.Join(dir, "venv/bin/litellm"), "--config", "config.yaml", "--host", "127.0.0.1", "--port", port)
	proxy.Dir = filepath.Join(dir, "proxy")
	proxy.Env = append(proxy.Environ(),
		"POINTSMAN_ADDRESS="+relay.address, "DECIDE_TIMEOUT_MS=8000",
		"STRONG_URL="+models.strong, "WEAK_URL="+models.weak, "STRONG_KEY=s", "WEAK_KEY=w",
		"LITELLM_LOCAL_MODEL_COST_MAP=True", "PYTHONUNBUFFERED=1",
	)
	launch(t, proxy)
	url := "http://127.0.0.1:" + port
	awaitHTTP(t, url+"/health/liveliness")

	post := func(t *testing.T, model, task string) seenChat {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(chat(t, task, map[string]any{"model": model})))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Traceparent", traceparent)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s %v", resp.StatusCode, body, err)
		}
		forwarded := models.take()
		if len(forwarded) != 1 {
			t.Fatalf("forwarded %d times", len(forwarded))
		}
		return forwarded[0]
	}
	for _, task := range []string{easyTask, hardTask} {
		want := ask(t, demo, task)
		got := post(t, "auto", task)
		if got.server != want.GetTarget() || got.body["model"] != want.GetModel() {
			t.Errorf("%q: forwarded %+v, want %s", task, got, want.GetTarget())
		}
		asked := relay.take()
		if len(asked) != 1 || !sameTrace(asked[0].traceparent...) || asked[0].remaining <= 0 {
			t.Errorf("%q: Pointsman was asked %+v", task, asked)
		}
	}
	if got := post(t, modelOf(ask(t, demo, easyTask), "weak"), hardTask); got.server != "weak" || len(relay.take()) != 0 {
		t.Errorf("a request for a model was not left alone: %+v", got)
	}
	relay.stop()
	if got := post(t, "auto", easyTask); got.server != "strong" {
		t.Errorf("without Pointsman: forwarded %+v", got)
	}
}

// nameModels puts the demo's model names in the place of the example's.
func nameModels(t *testing.T, path string, decision *pointsmanv1.DecideResponse) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(
		"provider/strong-model", modelOf(decision, "strong"), "provider/weak-model", modelOf(decision, "weak"),
	).Replace(string(data))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// modelOf is the model of a target in a decision's scores.
func modelOf(decision *pointsmanv1.DecideResponse, target string) string {
	for _, s := range decision.GetScores() {
		if s.GetTarget() == target {
			return s.GetModel()
		}
	}
	return ""
}

// awaitHTTP waits until a URL answers 200.
func awaitHTTP(t *testing.T, url string) {
	t.Helper()
	for deadline := time.Now().Add(3 * startTimeout); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		resp, err := http.Get(url)
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatalf("%s does not answer", url)
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
}
