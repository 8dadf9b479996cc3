package vllmsim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

func TestAnswersAreShapedLikeVLLMs(t *testing.T) {
	srv := start(t, config(t))
	w := serve(srv, request(t, ask(task)))
	answer := decode(t, w)
	if answer.Object != "chat.completion" || answer.Model != model || answer.ID != "chatcmpl-pm-test-1" || len(answer.Choices) != 1 {
		t.Errorf("answer %s", w.Body)
	}
	if !slices.Equal(answer.PromptTokenIDs, vllmsim.Tokens(task)) {
		t.Errorf("prompt_token_ids %v, want %v", answer.PromptTokenIDs, vllmsim.Tokens(task))
	}
	var more struct {
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Total  int `json:"total_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &more); err != nil {
		t.Fatal(err)
	}
	if n := len(answer.PromptTokenIDs); more.Usage.Prompt != n || more.Usage.Total != n+1 {
		t.Errorf("usage %+v for %d tokens", more.Usage, n)
	}
}

func TestTokenIDsComeOnlyWhenAskedFor(t *testing.T) {
	srv := start(t, config(t))
	answer := decode(t, serve(srv, request(t, `{"messages":[{"role":"user","content":"x"}],"max_tokens":1}`)))
	if answer.PromptTokenIDs != nil {
		t.Errorf("prompt_token_ids %v", answer.PromptTokenIDs)
	}
}

func TestPromptsDependOnMessagesAndTemplate(t *testing.T) {
	srv := start(t, config(t))
	tokens := func(body string) []int64 {
		return decode(t, serve(srv, request(t, `{"return_token_ids":true,`+body+`}`))).PromptTokenIDs
	}
	plain := tokens(`"messages":[{"role":"user","content":"a b"}]`)
	if parts := tokens(`"messages":[{"role":"user","content":[{"type":"text","text":"a b"},{"type":"image_url"}]}]`); !slices.Equal(parts, plain) {
		t.Errorf("content in parts: %v, want %v", parts, plain)
	}
	for name, body := range map[string]string{
		"system message": `"messages":[{"role":"system","content":"s"},{"role":"user","content":"a b"}]`,
		"thinking off":   `"messages":[{"role":"user","content":"a b"}],"chat_template_kwargs":{"enable_thinking":false}`,
		"other text":     `"messages":[{"role":"user","content":"a c"}]`,
	} {
		if got := tokens(body); slices.Equal(got, plain) {
			t.Errorf("%s: the same tokens as without", name)
		}
	}
	if got := tokens(`"messages":[{"role":"user","content":"a b"}],"chat_template_kwargs":{"enable_thinking":true}`); !slices.Equal(got, plain) {
		t.Errorf("thinking on: %v, want %v", got, plain)
	}
}

func TestErrorsAreShapedLikeVLLMs(t *testing.T) {
	cfg := config(t)
	cfg.MaxModelLen = 32
	srv := start(t, cfg)
	message := `"messages":[{"role":"user","content":"x"}]`
	tests := []struct {
		name, body string
		status     int
		kind       string
		param      any
	}{
		{"prompt too long", ask(strings.Repeat("word ", 100)), 400, "BadRequestError", "input_tokens"},
		{"max_tokens too large", `{"max_tokens":33,` + message + `}`, 400, "BadRequestError", "max_tokens"},
		{"max_tokens zero", `{"max_tokens":0,` + message + `}`, 400, "BadRequestError", "max_tokens"},
		{"unknown model", `{"model":"other",` + message + `}`, 404, "NotFoundError", "model"},
		{"empty cache_salt", `{"cache_salt":"",` + message + `}`, 400, "BadRequestError", "cache_salt"},
		{"stream", `{"stream":true,` + message + `}`, 501, "NotImplementedError", "stream"},
		{"two choices", `{"n":2,` + message + `}`, 501, "NotImplementedError", "n"},
		{"no messages", `{}`, 400, "Bad Request", nil},
		{"not JSON", `{`, 400, "Bad Request", nil},
		{"wrong type", `{"messages":[{"role":"user","content":42}]}`, 400, "Bad Request", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := serve(srv, request(t, test.body))
			var got struct {
				Error struct {
					Message string `json:"message"`
					Type    string `json:"type"`
					Param   any    `json:"param"`
					Code    int    `json:"code"`
				} `json:"error"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			e := got.Error
			if w.Code != test.status || e.Code != test.status || e.Type != test.kind || e.Param != test.param || e.Message == "" {
				t.Errorf("status %d, body %s", w.Code, w.Body)
			}
		})
	}
	if got := look(t, cfg.Dir); got != (seen{false, lockAbsent}) {
		t.Errorf("a refused request left %v", got)
	}
}

func TestTheContextIsPromptAndOutputTogether(t *testing.T) {
	cfg := config(t)
	cfg.MaxModelLen = len(vllmsim.Tokens(task)) + 1
	if w := serve(start(t, cfg), request(t, ask(task))); w.Code != http.StatusOK {
		t.Errorf("a prompt that just fits: status %d", w.Code)
	}
	cfg.MaxModelLen--
	if w := serve(start(t, cfg), request(t, ask(task))); w.Code != http.StatusBadRequest {
		t.Errorf("a prompt one token too long: status %d", w.Code)
	}
}

func TestAPIKeyGuardsV1Only(t *testing.T) {
	cfg := config(t)
	cfg.APIKey = "secret"
	srv := start(t, cfg)
	tests := []struct {
		method, path, key string
		status            int
	}{
		{http.MethodPost, "/v1/chat/completions", "", 401},
		{http.MethodPost, "/v1/chat/completions", "Bearer wrong", 401},
		{http.MethodPost, "/v1/chat/completions", "secret", 401},
		{http.MethodPost, "/v1/chat/completions", "Bearer secret", 200},
		{http.MethodGet, "/v1/models", "", 401},
		{http.MethodGet, "/v1/models", "Bearer secret", 200},
		{http.MethodPost, "/tokenize", "", 200},
		{http.MethodGet, "/health", "", 200},
		{http.MethodGet, "/elsewhere", "", 404},
	}
	for _, test := range tests {
		r := httptest.NewRequestWithContext(t.Context(), test.method, test.path, strings.NewReader(ask(task)))
		r.Header.Set("Authorization", test.key)
		w := serve(srv, r)
		if w.Code != test.status {
			t.Errorf("%s %s with %q: status %d, want %d", test.method, test.path, test.key, w.Code, test.status)
		}
		if w.Code == 401 && w.Body.String() != `{"error":"Unauthorized"}` {
			t.Errorf("body %s", w.Body)
		}
	}
}

func TestOtherEndpoints(t *testing.T) {
	srv := start(t, config(t))
	get := func(method, path, body string) *httptest.ResponseRecorder {
		return serve(srv, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	}
	if w := get(http.MethodGet, "/health", ""); w.Code != 200 || w.Body.Len() > 0 {
		t.Errorf("health: %d %s", w.Code, w.Body)
	}
	if w := get(http.MethodGet, "/v1/models", ""); !strings.Contains(w.Body.String(), `"id":"Qwen/Qwen3-8B"`) || !strings.Contains(w.Body.String(), `"max_model_len":40960`) {
		t.Errorf("models: %s", w.Body)
	}
	var tokenized struct {
		Count  int     `json:"count"`
		Tokens []int64 `json:"tokens"`
	}
	w := get(http.MethodPost, "/tokenize", ask(task))
	if err := json.Unmarshal(w.Body.Bytes(), &tokenized); err != nil {
		t.Fatal(err)
	}
	if want := vllmsim.Tokens(task); tokenized.Count != len(want) || !slices.Equal(tokenized.Tokens, want) {
		t.Errorf("tokenize: %s, want %v", w.Body, want)
	}
	if w := get(http.MethodPost, "/tokenize", `{"model":"other"}`); w.Code != 404 {
		t.Errorf("tokenize with another model: %d", w.Code)
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if w := get(http.MethodGet, "/health", ""); w.Code != 503 {
		t.Errorf("health once closed: %d", w.Code)
	}
}

func TestFaultsAreChosenByQueueThenTask(t *testing.T) {
	srv := start(t, config(t))
	srv.SetFaultFunc(func(task string) vllmsim.Fault {
		if task == "bad" {
			return vllmsim.Status(500, vllmsim.BodyJSON)
		}
		return vllmsim.None()
	})
	srv.QueueFaults(vllmsim.Status(429, vllmsim.BodyJSON), vllmsim.None())
	ask := func(task string) int { return serve(srv, request(t, ask(task))).Code }
	got := [5]int{ask("good"), ask("bad"), ask("bad"), ask("good")}
	srv.SetFault(vllmsim.None())
	got[4] = ask("bad")
	if want := [5]int{429, 200, 500, 200, 200}; got != want {
		t.Errorf("statuses %v, want %v", got, want)
	}
}

func TestStatsAndRequests(t *testing.T) {
	cfg := config(t)
	cfg.Latency = time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := start(t, cfg)
		for i := range 3 {
			go serve(srv, request(t, ask(fmt.Sprint("task ", i%2))))
		}
		synctest.Wait()
		if stats := srv.Stats(); stats.InFlight != 3 {
			t.Errorf("in flight %d, want 3", stats.InFlight)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		serve(srv, request(t, ask("task 2")))
		stats := srv.Stats()
		if stats.Requests != 4 || stats.InFlight != 0 || stats.MaxInFlight != 3 || stats.Aborted != 0 ||
			stats.PerTask["task 0"] != 2 || stats.PerTask["task 1"] != 1 || stats.PerTask["task 2"] != 1 {
			t.Errorf("stats %+v", stats)
		}
		last := srv.Requests()[3]
		if last.Task != "task 2" || string(last.Body) != ask("task 2") || last.Header.Get("X-Request-ID") != "pm-test-1" {
			t.Errorf("last request %q %s %v", last.Task, last.Body, last.Header)
		}
	})
}

func TestRecordsAreBounded(t *testing.T) {
	srv := start(t, config(t))
	srv.SetFault(vllmsim.Status(500, vllmsim.BodyEmpty))
	long := strings.Repeat("x", 100<<10)
	for i := range 300 {
		serve(srv, request(t, ask(fmt.Sprint(i, " ", long))))
	}
	requests := srv.Requests()
	if len(requests) != 256 || !strings.HasPrefix(requests[255].Task, "299 ") {
		t.Errorf("%d requests", len(requests))
	}
	if body, task := len(requests[0].Body), len(requests[0].Task); body != 64<<10 || task != 64<<10 {
		t.Errorf("%d bytes of a body, %d of a task", body, task)
	}
	if srv.Stats().Requests != 300 {
		t.Errorf("counted %d", srv.Stats().Requests)
	}
	for i := range 1100 {
		serve(srv, request(t, ask(fmt.Sprint(i))))
	}
	if n := len(srv.Stats().PerTask); n != 1024 {
		t.Errorf("%d tasks", n)
	}
}

// A client that sends its next request as soon as it has an answer must never
// be seen with two.
func TestInFlightEndsBeforeTheAnswerIsSent(t *testing.T) {
	cfg := config(t)
	cfg.MaxConcurrent = 1
	srv := start(t, cfg)
	for _, fault := range []vllmsim.Fault{
		vllmsim.None(), vllmsim.Status(500, vllmsim.BodyJSON), vllmsim.Redirect(), vllmsim.NotJSON(), vllmsim.PathNull(),
	} {
		srv.SetFault(fault)
		looked := false
		srv.Handler().ServeHTTP(watched{httptest.NewRecorder(), func() {
			looked = true
			if n := srv.Stats().InFlight; n != 0 {
				t.Errorf("%v: %d in flight when the answer goes out", fault, n)
			}
		}}, request(t, ask(task)))
		if !looked {
			t.Errorf("%v: no answer", fault)
		}
	}
}
