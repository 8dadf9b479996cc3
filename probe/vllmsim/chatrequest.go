package vllmsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// chatRequest is what is read of a chat request; other fields are accepted and
// ignored, as vLLM does.
type chatRequest struct {
	Model          string           `json:"model"`
	Messages       []requestMessage `json:"messages"`
	MaxTokens      *int             `json:"max_tokens"`
	N              *int             `json:"n"`
	Stream         bool             `json:"stream"`
	ReturnTokenIDs bool             `json:"return_token_ids"`
	RequestID      string           `json:"request_id"`
	CacheSalt      *string          `json:"cache_salt"`
	Template       templateArgs     `json:"chat_template_kwargs"`

	tokens []int64 // of the prompt
}

// templateArgs are the arguments the played chat template knows.
type templateArgs struct {
	EnableThinking *bool `json:"enable_thinking"`
}

func (t templateArgs) thinking() bool { return t.EnableThinking == nil || *t.EnableThinking }

// requestMessage is one message; its content is a string or a list of parts.
type requestMessage struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// content is the text of a message, its text parts joined by line feeds.
type content string

// UnmarshalJSON reads both forms of content.
func (c *content) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil { // null too: an empty message
		*c = content(text)
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return fmt.Errorf("read message content: %w", err)
	}
	var texts []string
	for _, part := range parts {
		if part.Type == "text" {
			texts = append(texts, part.Text)
		}
	}
	*c = content(strings.Join(texts, "\n"))
	return nil
}

// task is the text of the last user message.
func (r chatRequest) task() string {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == "user" {
			return string(m.Content)
		}
	}
	return ""
}

// defaultMaxTokens is vLLM's when a chat request does not say: what is left of
// the context; for the check of the input's length it counts as one token.
const defaultMaxTokens = 1

// parseChat reads and checks a request. What it returns is filled as far as it
// could be read, also when it is refused.
func (s *Server) parseChat(body []byte) (chatRequest, *apiError) {
	var req chatRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return req, invalid("the body is not a chat completion request")
	}
	if refusal := s.checkModel(req.Model); refusal != nil {
		return req, refusal
	}
	maxTokens := defaultMaxTokens
	if req.MaxTokens != nil {
		maxTokens = *req.MaxTokens
	}
	switch {
	case len(req.Messages) == 0:
		return req, invalid("messages is empty")
	case req.CacheSalt != nil && *req.CacheSalt == "":
		return req, failure(http.StatusBadRequest, "cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
	case req.Stream:
		return req, failure(http.StatusNotImplemented, "stream", "vllmsim does not stream")
	case req.N != nil && *req.N != 1:
		return req, failure(http.StatusNotImplemented, "n", "vllmsim makes one choice")
	case maxTokens < 1:
		return req, failure(http.StatusBadRequest, "max_tokens", "max_tokens must be at least 1, got %d.", maxTokens)
	case maxTokens > s.cfg.MaxModelLen:
		return req, failure(http.StatusBadRequest, "max_tokens",
			"max_tokens=%d cannot be greater than max_model_len=%d.", maxTokens, s.cfg.MaxModelLen)
	}
	req.tokens = render(texts(req.Messages), req.Template.thinking())
	limit := s.cfg.MaxModelLen - maxTokens
	if len(req.tokens) > limit {
		// vLLM cuts the prompt at one token more than allowed before it counts.
		return req, failure(http.StatusBadRequest, "input_tokens",
			"You passed %d input tokens and requested %d output tokens. However, the model's context length is only %d tokens, "+
				"resulting in a maximum input length of %d tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=%d)",
			limit+1, maxTokens, s.cfg.MaxModelLen, limit, limit+1)
	}
	return req, nil
}

// checkModel refuses a name that is not served; an empty one is not checked.
func (s *Server) checkModel(name string) *apiError {
	if name == "" || name == s.cfg.Model {
		return nil
	}
	return failure(http.StatusNotFound, "model", "The model `%s` does not exist.", name)
}

func texts(messages []requestMessage) []message {
	out := make([]message, len(messages))
	for i, m := range messages {
		out[i] = message{role: m.Role, text: string(m.Content)}
	}
	return out
}
