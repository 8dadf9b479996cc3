package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	// requestIDPrefix begins our request ids. vLLM names the artifact chatcmpl-<request id>…, which is how an artifact
	// of ours is told from others.
	requestIDPrefix = "pm-"
	ownedPrefix     = "chatcmpl-" + requestIDPrefix

	// maxAnswerBytes bounds the longest answer, whose size is that of the token ids: a million tokens take some 7 MB.
	maxAnswerBytes = 16 << 20
	// answerBaseBytes and answerBytesPerByte bound the answer to one task, so that all answers under way together do not
	// take the memory: 100,000 tokens for a chat template, and for each byte of the text at most a token, which is up to
	// seven digits and a separator.
	answerBaseBytes    = 1 << 20
	answerBytesPerByte = 10
	// maxErrorBytes is read of an error's body; vLLM's are far below 1 KiB unless they repeat the prompt.
	maxErrorBytes = 64 << 10
	// idleTimeout is below the 5 s after which vLLM's HTTP server closes an idle connection by default, so that a
	// request does not meet a connection that is just being closed.
	idleTimeout = 4 * time.Second
	// dialTimeout: vLLM is near; a connection that takes longer will not come.
	dialTimeout = 5 * time.Second
)

// errRequestTime is the cause of a request that took too long.
var errRequestTime = errors.New("request_timeout is over")

// client speaks vLLM's chat completions API.
type client struct {
	transport *http.Transport
	url       string
	healthURL string
	key       string
	model     string
	kwargs    json.RawMessage // chat_template_kwargs; nil: not sent
}

func newClient(cfg Config) (*client, error) {
	base := strings.TrimRight(cfg.Endpoint.BaseURL, "/")
	c := &client{
		url:       base + "/chat/completions",
		healthURL: strings.TrimSuffix(base, "/v1") + "/health",
		key:       cfg.APIKey,
		model:     cfg.Model,
	}
	if len(cfg.ChatTemplateKwargs) > 0 {
		kwargs, err := json.Marshal(cfg.ChatTemplateKwargs)
		if err != nil {
			return nil, fmt.Errorf("chat_template_kwargs: %w", err)
		}
		c.kwargs = kwargs
	}
	// The transport is used without an http.Client, which would follow redirects and read cookies.
	c.transport = &http.Transport{
		// No Proxy: a proxy from the environment would see every task.
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:    dialTimeout,
		DisableCompression:     true, // a small body may not grow into a large one
		MaxIdleConns:           cfg.MaxInFlight,
		MaxIdleConnsPerHost:    cfg.MaxInFlight,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return c, nil
}

// chatRequest is the body of a request: one user message, one token of output, the ids of the prompt's tokens.
type chatRequest struct {
	Model              string           `json:"model"`
	Messages           [1]chatMessage   `json:"messages"`
	MaxTokens          int              `json:"max_tokens"`
	Temperature        float64          `json:"temperature"`
	ReturnTokenIDs     bool             `json:"return_token_ids"`
	KVTransferParams   kvTransferParams `json:"kv_transfer_params"`
	ChatTemplateKwargs json.RawMessage  `json:"chat_template_kwargs,omitempty"`
	CacheSalt          string           `json:"cache_salt,omitempty"`
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type kvTransferParams struct {
	IncludeOutputTokens bool `json:"include_output_tokens"`
}

// answer is what is used of vLLM's answer.
type answer struct {
	path      string  // of the artifact, as vLLM reports it
	promptIDs []int64 // nil: not reported
}

// ask sends the task and returns vLLM's answer. Its errors hold nothing that vLLM sent but status, type and parameter.
func (c *client) ask(ctx context.Context, req Request, requestID string, inject func(context.Context, http.Header)) (answer, error) {
	httpReq, err := c.newRequest(ctx, req, requestID)
	if err != nil {
		return answer{}, err
	}
	inject(ctx, httpReq.Header)
	resp, err := c.transport.RoundTrip(httpReq)
	if err != nil {
		return answer{}, sendError(ctx, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= http.StatusBadRequest:
		return answer{}, statusError(resp.StatusCode, errorDetail(resp.Body))
	case resp.StatusCode != http.StatusOK:
		// Unread: after a switch of protocols (101) the end of ctx does not end a read any more.
		return answer{}, statusError(resp.StatusCode, "")
	}
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return answer{}, fmt.Errorf("%w: answer is compressed, which was not asked for", ErrProtocol)
	}
	limit := c.longestAnswer(req)
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return answer{}, sendError(ctx, err)
	}
	if int64(len(body)) > limit {
		return answer{}, fmt.Errorf("%w: answer is longer than %d bytes", ErrProtocol, limit)
	}
	return parseAnswer(body)
}

// longestAnswer is how many bytes an honest answer to req can have.
func (c *client) longestAnswer(req Request) int64 {
	text := len(req.Task) + len(c.kwargs)
	return min(maxAnswerBytes, answerBaseBytes+answerBytesPerByte*int64(text))
}

func (c *client) newRequest(ctx context.Context, req Request, requestID string) (*http.Request, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // code is full of <, > and &, and six bytes each would be wasted
	err := enc.Encode(chatRequest{
		Model:              c.model,
		Messages:           [1]chatMessage{{Role: "user", Content: req.Task}},
		MaxTokens:          1, // the fewest vLLM can do
		ReturnTokenIDs:     true,
		ChatTemplateKwargs: c.kwargs,
		CacheSalt:          req.CacheSalt,
	})
	if err != nil {
		return nil, fmt.Errorf("writing the request: %w", err)
	}
	httpReq, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, &body)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	httpReq.Header.Set("Content-Type", "application/json")
	httpReq.Header.Set("Accept", "application/json")
	httpReq.Header.Set("User-Agent", "pointsman")
	httpReq.Header.Set("X-Request-Id", requestID)
	if c.key != "" {
		httpReq.Header.Set("Authorization", "Bearer "+c.key)
	}
	return httpReq, nil
}

// parseAnswer takes the artifact's path and the prompt's token ids from an answer.
func parseAnswer(body []byte) (answer, error) {
	var parsed struct {
		KVTransferParams *struct {
			Path *string `json:"hidden_states_path"`
		} `json:"kv_transfer_params"`
		PromptTokenIDs []int64 `json:"prompt_token_ids"`
	}
	if err := json.Unmarshal(body, &parsed); err != nil { // not wrapped: the error may quote the answer
		return answer{}, fmt.Errorf("%w: answer is not the JSON of a chat completion", ErrProtocol)
	}
	params := parsed.KVTransferParams
	if params == nil || params.Path == nil || *params.Path == "" {
		return answer{}, fmt.Errorf("%w: answer has no hidden_states_path (is vLLM's hidden-state connector enabled?)", ErrProtocol)
	}
	return answer{path: *params.Path, promptIDs: parsed.PromptTokenIDs}, nil
}

// sendError is the error of a request without a whole answer. The transport's own text is left out: it quotes what a
// server sent that does not speak HTTP.
func sendError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		if errors.Is(cause, errRequestTime) {
			return fmt.Errorf("%w: no whole HTTP answer: %w", ErrTimeout, cause)
		}
		return cause
	}
	what := "connection failed"
	var (
		dns *net.DNSError
		op  *net.OpError
	)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		what = "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		what = "connection closed before the whole answer"
	case errors.As(err, &dns):
		what = "host name not resolved"
	case errors.As(err, &op) && op.Op == "dial":
		what = "no connection"
	}
	return fmt.Errorf("%w: %s", ErrUnavailable, what)
}

// shortToken matches what may be repeated of a server's answer: an identifier, not a text.
var shortToken = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// errorDetail returns type and parameter of an OpenAI-style error, in brackets, as far as they are identifiers. The
// error may also be a plain string, as it is for a wrong key; then, or when it is anything else, there is no detail.
func errorDetail(body io.Reader) string {
	text, err := io.ReadAll(io.LimitReader(body, maxErrorBytes))
	if err != nil {
		return ""
	}
	var parsed struct {
		Error struct {
			Type  any `json:"type"`
			Param any `json:"param"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &parsed) != nil {
		return ""
	}
	var details []string
	if t, ok := parsed.Error.Type.(string); ok && shortToken.MatchString(t) {
		details = append(details, "type "+t)
	}
	if p, ok := parsed.Error.Param.(string); ok && shortToken.MatchString(p) {
		details = append(details, "param "+p)
	}
	if details == nil {
		return ""
	}
	return " (" + strings.Join(details, ", ") + ")"
}
