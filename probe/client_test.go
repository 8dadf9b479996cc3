package probe

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// secretTask is in every request of these tests, and must be in no error.
const secretTask = "the patient's name is <Mr & Mrs Smith>"

func askServer(t *testing.T, cfg Config, req Request) (answer, error) {
	t.Helper()
	c, err := newClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.transport.CloseIdleConnections)
	ctx, cancel := context.WithTimeoutCause(t.Context(), cfg.RequestTimeout, errRequestTime)
	defer cancel()
	return c.ask(ctx, req, "pm-1-2", NopObserver{}.Inject)
}

func TestRequest(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		req    Request
		want   string
	}{
		{"plain", func(*Config) {}, Request{Task: secretTask}, `{
			"model": "encoder", "messages": [{"role": "user", "content": "the patient's name is <Mr & Mrs Smith>"}],
			"max_tokens": 1, "temperature": 0, "return_token_ids": true, "kv_transfer_params": {"include_output_tokens": false}}`},
		{
			"everything", func(c *Config) { c.ChatTemplateKwargs = map[string]any{"enable_thinking": false} },
			Request{Task: "hi", CacheSalt: "tenant"},
			`{
			"model": "encoder", "messages": [{"role": "user", "content": "hi"}],
			"max_tokens": 1, "temperature": 0, "return_token_ids": true, "kv_transfer_params": {"include_output_tokens": false},
			"chat_template_kwargs": {"enable_thinking": false}, "cache_salt": "tenant"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var header http.Header
			var method, path string
			var body []byte
			f := newFake(t, func(w http.ResponseWriter, r *http.Request, _ *fakeVLLM) {
				header, method, path = r.Header, r.Method, r.URL.Path
				body, _ = io.ReadAll(r.Body)
				reply(w, "/x/y.safetensors", 1, 2)
			})
			cfg := f.config()
			cfg.APIKey = "sk-key"
			tt.change(&cfg)
			got, err := askServer(t, cfg, tt.req)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(answer{path: "/x/y.safetensors", promptIDs: []int64{1, 2}}, got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Error(diff)
			}
			if method != "POST" || path != "/v1/chat/completions" {
				t.Errorf("%s %s", method, path)
			}
			var gotBody, wantBody any
			if err := errors.Join(json.Unmarshal(body, &gotBody), json.Unmarshal([]byte(tt.want), &wantBody)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wantBody, gotBody); diff != "" {
				t.Error(diff)
			}
			for name, want := range map[string]string{
				"Authorization": "Bearer sk-key", "X-Request-Id": "pm-1-2", "Content-Type": "application/json", "Accept-Encoding": "",
			} {
				if got := header.Get(name); got != want {
					t.Errorf("header %s is %q, want %q", name, got, want)
				}
			}
		})
	}
}

// TestNoProxy: a proxy of the environment would see every task. httptest servers are on loopback, which Go never sends
// to a proxy, so the transport itself is looked at.
func TestNoProxy(t *testing.T) {
	c, err := newClient(validConfig())
	if err != nil {
		t.Fatal(err)
	}
	if c.transport.Proxy != nil {
		t.Error("the transport uses a proxy")
	}
}

func TestAnswerErrors(t *testing.T) {
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	const tooLong = `{"error":{"message":"You passed ` + secretTask + `","type":"BadRequestError","param":"input_tokens","code":400}}`
	tests := []struct {
		name    string
		handler http.HandlerFunc
		want    error
		says    string
	}{
		{"too long", status(400, tooLong), ErrRejected, "status 400 (type BadRequestError, param input_tokens)"},
		{"validation", status(400, `{"error":{"message":"x","type":"Bad Request","param":null,"code":400}}`), ErrRejected, "status 400"},
		{"wrong key", status(401, `{"error":"Unauthorized"}`), ErrRejected, "status 401"},
		{"unknown model", status(404, `{"error":{"type":"NotFoundError","param":"model"}}`), ErrRejected, "status 404 (type NotFoundError, param model)"},
		{"error in words", status(422, `{"error":{"type":"`+secretTask+`","param":["a"]}}`), ErrRejected, "status 422"},
		{"error page", status(403, `<html>`+secretTask), ErrRejected, "status 403"},
		{"request timeout", status(408, ""), ErrUnavailable, "status 408"},
		{"too early", status(425, ""), ErrUnavailable, "status 425"},
		{"too many requests", status(429, ""), ErrUnavailable, "status 429"},
		{"engine error", status(500, `{"error":{"type":"InternalServerError"}}`), ErrUnavailable, "status 500 (type InternalServerError)"},
		{"not implemented", status(501, ""), ErrUnavailable, "status 501"},
		{"overload", status(503, secretTask), ErrUnavailable, "status 503"},
		{"no content", status(204, ""), ErrProtocol, "status 204"},
		{"not modified", status(304, ""), ErrProtocol, "status 304"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, ErrProtocol, "status 307"},
		{"redirect without a place", status(301, ""), ErrProtocol, "status 301"},
		{"redirect to no place", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://[")
			w.WriteHeader(http.StatusFound)
		}, ErrProtocol, "status 302"},

		{"not JSON", status(200, `<html>`+secretTask), ErrProtocol, "not the JSON"},
		{"cut JSON", status(200, `{"kv_transfer_params":{"hidden_states_path":"/x/a.safete`), ErrProtocol, "not the JSON"},
		{"text after JSON", status(200, `{"kv_transfer_params":{"hidden_states_path":"/x"}} `+secretTask), ErrProtocol, "not the JSON"},
		{"array", status(200, `[]`), ErrProtocol, "not the JSON"},
		{"empty object", status(200, `{}`), ErrProtocol, "connector"},
		{"params null", status(200, `{"kv_transfer_params":null}`), ErrProtocol, "connector"},
		{"params empty", status(200, `{"kv_transfer_params":{}}`), ErrProtocol, "connector"},
		{"path null", status(200, `{"kv_transfer_params":{"hidden_states_path":null}}`), ErrProtocol, "connector"},
		{"path empty", status(200, `{"kv_transfer_params":{"hidden_states_path":""}}`), ErrProtocol, "connector"},
		{"path is a number", status(200, `{"kv_transfer_params":{"hidden_states_path":42}}`), ErrProtocol, "not the JSON"},
		{"token ids are strings", status(200, `{"kv_transfer_params":{"hidden_states_path":"/x"},"prompt_token_ids":["`+secretTask+`"]}`), ErrProtocol, "not the JSON"},
		{"compressed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			zip := gzip.NewWriter(w)
			reply(zip, "/x/y.safetensors")
			_ = zip.Close()
		}, ErrProtocol, "compressed"},
		{"endless", func(w http.ResponseWriter, _ *http.Request) {
			blank := bytes.Repeat([]byte(" "), 1<<20)
			for range maxAnswerBytes>>20 + 2 {
				if _, err := w.Write(blank); err != nil {
					return
				}
			}
		}, ErrProtocol, fmt.Sprintf("longer than %d bytes", answerBaseBytes+answerBytesPerByte*len(secretTask))},
		{"cut connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrUnavailable, "connection closed"},
		{"cut body", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, ErrUnavailable, "connection closed"},
		{"no answer", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, ErrTimeout, "request_timeout"},
		{"another protocol, and silence in it", switchProtocols, ErrProtocol, "status 101"},
		{"half an answer", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "{")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, ErrTimeout, "request_timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(w http.ResponseWriter, r *http.Request, _ *fakeVLLM) {
				_, _ = io.Copy(io.Discard, r.Body) // or the server does not see the client leave
				tt.handler(w, r)
			})
			cfg := f.config()
			if tt.want == ErrTimeout {
				cfg.RequestTimeout = 50 * time.Millisecond
			}
			_, err := askServer(t, cfg, Request{Task: secretTask})
			checkError(t, err, tt.want, tt.says)
		})
	}
}

// switchProtocols answers 101, after which the connection is no longer one of HTTP, and says no more.
func switchProtocols(w http.ResponseWriter, _ *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
	_, _ = io.Copy(io.Discard, buffered) // until the client leaves
}

// checkError checks an error's kind, that it is of no other kind, what it says, and that it keeps the task to itself.
func checkError(t *testing.T, err, want error, says string) {
	t.Helper()
	for _, kind := range []error{ErrOverloaded, ErrCircuitOpen, ErrTimeout, ErrUnavailable, ErrProtocol, ErrRejected, ErrArtifact, ErrClosed} {
		if errors.Is(err, kind) != (kind == want) {
			t.Errorf("error %v, want kind %v", err, want)
		}
	}
	if err == nil {
		return
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("error %q does not say %q", err, says)
	}
	if strings.Contains(err.Error(), "Smith") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q holds text of the task or more than a line", err)
	}
}

func TestNoServer(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	cfg := validConfig()
	cfg.Endpoint.BaseURL = server.URL
	_, err := askServer(t, cfg, Request{Task: secretTask})
	checkError(t, err, ErrUnavailable, "connection refused")

	cfg.Endpoint.BaseURL = "http://host.invalid/v1"
	_, err = askServer(t, cfg, Request{Task: secretTask})
	checkError(t, err, ErrUnavailable, "")
}

// TestTheLongestHonestAnswerIsRead: every byte of the task may be a token with as many digits as there are.
func TestTheLongestHonestAnswerIsRead(t *testing.T) {
	ids := make([]int64, 1<<20)
	for i := range ids {
		ids[i] = 9_999_999
	}
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request, _ *fakeVLLM) { reply(w, "/x/y.safetensors", ids...) })
	got, err := askServer(t, f.config(), Request{Task: strings.Repeat("x", len(ids))})
	if err != nil || len(got.promptIDs) != len(ids) {
		t.Errorf("%d token ids, %v", len(got.promptIDs), err)
	}
	_, err = askServer(t, f.config(), Request{Task: "x"})
	checkError(t, err, ErrProtocol, "longer than")
}

// TestServerThatDoesNotSpeakHTTP: the transport's error quotes what the server sent; ours must not.
func TestServerThatDoesNotSpeakHTTP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = fmt.Fprintf(conn, "220 %s\r\n\r\n", secretTask)
	}()
	cfg := validConfig()
	cfg.Endpoint.BaseURL = "http://" + listener.Addr().String()
	_, err = askServer(t, cfg, Request{Task: secretTask})
	checkError(t, err, ErrUnavailable, "")
	_ = listener.Close()
	<-done
}

func TestShortToken(t *testing.T) {
	for token, want := range map[string]bool{
		"input_tokens": true, "Bad.Request-1": true, strings.Repeat("a", 64): true,
		"": false, strings.Repeat("a", 65): false, "Bad Request": false, "a\n": false, "é": false,
	} {
		if got := shortToken.MatchString(token); got != want {
			t.Errorf("shortToken(%q) = %v", token, got)
		}
	}
}

var requestIDForm = regexp.MustCompile(`^pm-[0-9a-f]+-[0-9a-f]+$`)
