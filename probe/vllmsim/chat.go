package vllmsim

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"net/http"
	"regexp"
	"time"
)

// maxRequestBody is far above any context in bytes; it only keeps a mistake
// from filling memory.
const maxRequestBody = 64 << 20

// plainID is what a request id must look like to become part of a file's name.
// The length keeps the name, with what is put around it, below 255 bytes.
var plainID = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}$`)

// chat serves one chat completion, wrong in the way pick says.
func (s *Server) chat(w http.ResponseWriter, r *http.Request, pick func(task string) Fault) {
	if !s.enter() {
		writeError(w, failure(http.StatusServiceUnavailable, "", "the engine is dead"))
		return
	}
	defer s.running.Done()
	s.record.arrived()
	e := &exchange{server: s, w: w, r: r}
	defer e.leave()

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBody))
	if err != nil {
		if r.Context().Err() != nil {
			s.record.aborted()
		}
		e.refuse(invalid("the body could not be read"))
		return
	}
	req, refusal := s.parseChat(body)
	task := req.task()
	s.record.asked(r.Header, body, task)
	if refusal != nil {
		e.refuse(refusal)
		return
	}
	e.fault = pick(task)
	switch e.fault.kind { //nolint:exhaustive // the others come later
	case status:
		e.leave()
		writeBody(w, e.fault.status, e.fault.body)
		return
	case redirect:
		e.leave()
		http.Redirect(w, r, e.fault.location, http.StatusTemporaryRedirect)
		return
	}
	e.run(req)
}

// exchange is one request on its way through the server.
type exchange struct {
	server    *Server
	w         http.ResponseWriter
	r         *http.Request
	fault     Fault
	scheduled bool // holds one of the server's slots
	gone      bool // leave was called
}

// leave is called before the answer is sent, not after: a client that sends
// its next request on seeing the answer must not be counted twice.
func (e *exchange) leave() {
	if e.gone {
		return
	}
	e.gone = true
	if e.scheduled {
		<-e.server.slots
	}
	e.server.record.left()
}

// refuse answers with an error.
func (e *exchange) refuse(err *apiError) {
	e.leave()
	writeError(e.w, err)
}

// schedule waits for a slot. It reports false when the client left or the
// server was closed.
func (e *exchange) schedule() bool {
	if e.server.slots == nil {
		return true
	}
	select {
	case e.server.slots <- struct{}{}:
		e.scheduled = true
		return true
	case <-e.r.Context().Done():
	case <-e.server.done.Done():
	}
	e.cutShort()
	return false
}

// wait lets the model run. It reports false when the client left or the server
// was closed.
func (e *exchange) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-e.r.Context().Done():
	case <-e.server.done.Done():
	}
	e.cutShort()
	return false
}

// cutShort ends an exchange that will have no answer, because the client left
// or because the server was closed.
func (e *exchange) cutShort() {
	if e.r.Context().Err() != nil {
		e.server.record.aborted()
	}
	e.refuse(failure(http.StatusServiceUnavailable, "", "the engine is shutting down"))
}

// requestID returns the external id: chatcmpl- and the client's own id, or 16
// random hexadecimal characters.
func (e *exchange) requestID(req chatRequest) (string, *apiError) {
	id := e.r.Header.Get("X-Request-ID")
	if id == "" {
		id = req.RequestID
	}
	if id == "" {
		id = randomHex(8)
	}
	if !plainID.MatchString(id) {
		return "", failure(http.StatusBadRequest, "request_id", "vllmsim accepts letters, digits, '_', '-' and '.' in a request id")
	}
	return "chatcmpl-" + id, nil
}

// randomHex returns n random bytes as hexadecimal characters.
func randomHex(n int) string {
	buf := make([]byte, n)
	_, _ = rand.Read(buf) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(buf)
}

// completion is the body of a good answer. Its fields are vLLM's.
func (s *Server) completion(id string, req chatRequest, path string) map[string]any {
	answer := map[string]any{
		"id": id, "object": "chat.completion", "created": time.Now().Unix(), "model": s.cfg.Model,
		"choices": []any{map[string]any{
			"index":         0,
			"message":       map[string]any{"role": "assistant", "content": "The", "refusal": nil, "tool_calls": []any{}, "reasoning": nil},
			"finish_reason": "length", "stop_reason": nil, "logprobs": nil, "token_ids": nil,
		}},
		"usage": map[string]any{
			"prompt_tokens": len(req.tokens), "completion_tokens": 1, "total_tokens": len(req.tokens) + 1, "prompt_tokens_details": nil,
		},
		"service_tier": nil, "system_fingerprint": nil, "prompt_logprobs": nil, "prompt_token_ids": nil,
		"kv_transfer_params": map[string]any{"hidden_states_path": path},
	}
	if req.ReturnTokenIDs {
		answer["prompt_token_ids"] = req.tokens
	}
	return answer
}
