package vllmsim

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// apiError is an error as vLLM answers it; an empty param is null.
type apiError struct {
	status  int
	param   string
	message string
}

// errorType is the "type" of vLLM's error bodies.
func errorType(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "BadRequestError"
	case http.StatusNotFound:
		return "NotFoundError"
	case http.StatusUnprocessableEntity:
		return "UnprocessableEntityError"
	case http.StatusInternalServerError:
		return "InternalServerError"
	case http.StatusNotImplemented:
		return "NotImplementedError"
	default:
		return http.StatusText(status)
	}
}

// writeError answers {"error":{"message","type","param","code"}}.
func writeError(w http.ResponseWriter, e apiError) {
	var param any
	if e.param != "" {
		param = e.param
	}
	writeJSON(w, e.status, map[string]any{"error": map[string]any{
		"message": e.message, "type": errorType(e.status), "param": param, "code": e.status,
	}})
}

// writeJSON answers with value, whole and with its length.
func writeJSON(w http.ResponseWriter, status int, value any) {
	writeBytes(w, status, "application/json", encode(value))
}

// encode turns one of this package's own answers into JSON.
func encode(value any) []byte {
	body, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("vllmsim: an answer cannot be encoded: %v", err)) // made of maps, strings and numbers only
	}
	return body
}

func writeBytes(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone: nothing to be done about it
}

// page is what a proxy answers.
const page = "<!DOCTYPE html><html><head><title>%[1]s</title></head><body><h1>%[1]s</h1></body></html>\n"

// writeBody answers a bare status.
func writeBody(w http.ResponseWriter, status int, body Body) {
	text := http.StatusText(status)
	switch {
	case body == BodyEmpty || status == http.StatusNoContent || status == http.StatusNotModified:
		w.WriteHeader(status)
	case body == BodyString:
		writeJSON(w, status, map[string]any{"error": text})
	case body == BodyHTML:
		writeBytes(w, status, "text/html", fmt.Appendf(nil, page, text))
	default:
		writeError(w, apiError{status, "", text})
	}
}

// answer sends a completion, or what the fault makes of it, and flushes it, so
// that what follows in regime C follows the answer.
func (e *exchange) answer(completion map[string]any) {
	if e.fault.kind == hang {
		e.hang()
	}
	e.leave()
	switch e.fault.kind {
	case dropEarly:
		panic(http.ErrAbortHandler) // how net/http is told to close the connection
	case dropMidAnswer:
		body := encode(completion)
		e.w.Header().Set("Content-Type", "application/json")
		e.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = e.w.Write(body[:len(body)/2])
		e.flush()
		panic(http.ErrAbortHandler)
	case notJSON:
		writeBytes(e.w, http.StatusOK, "text/html", fmt.Appendf(nil, page, "Welcome"))
	case pathMissing:
		delete(completion, "kv_transfer_params")
		writeJSON(e.w, http.StatusOK, completion)
	case pathNull:
		completion["kv_transfer_params"] = nil
		writeJSON(e.w, http.StatusOK, completion)
	case pathNumber:
		completion["kv_transfer_params"] = map[string]any{"hidden_states_path": 42}
		writeJSON(e.w, http.StatusOK, completion)
	case endlessBody:
		e.endless()
	case compressedBody:
		e.compressed(completion)
	default:
		writeJSON(e.w, http.StatusOK, completion)
	}
	e.flush()
}

func (e *exchange) flush() {
	_ = http.NewResponseController(e.w).Flush() // a recorder may not know how
}

// hang waits for the client to go away and then closes the connection.
func (e *exchange) hang() {
	select {
	case <-e.r.Context().Done():
		e.server.record.aborted()
	case <-e.server.done.Done():
	}
	panic(http.ErrAbortHandler)
}

// blank is white space that JSON allows anywhere between its parts.
var blank = bytes.Repeat([]byte{' '}, 64<<10)

// endless sends white space after an opening brace for as long as the client
// takes it.
func (e *exchange) endless() {
	// A client that stops reading without leaving would keep Close waiting.
	controller := http.NewResponseController(e.w)
	stop := context.AfterFunc(e.server.done, func() { _ = controller.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	e.w.Header().Set("Content-Type", "application/json")
	_, err := e.w.Write([]byte("{"))
	for err == nil && e.r.Context().Err() == nil && e.server.done.Err() == nil {
		_, err = e.w.Write(blank)
	}
	panic(http.ErrAbortHandler)
}

// compressedBlanks makes 64 MiB of white space, in pieces of blank.
const compressedBlanks = 1024

// compressed sends a good answer with much white space in it as gzip.
func (e *exchange) compressed(completion map[string]any) {
	e.w.Header().Set("Content-Type", "application/json")
	e.w.Header().Set("Content-Encoding", "gzip")
	out := gzip.NewWriter(e.w)
	_, err := out.Write([]byte("{"))
	for n := 0; n < compressedBlanks && err == nil; n++ {
		_, err = out.Write(blank)
	}
	if err != nil {
		return // the client has seen enough
	}
	_, _ = strings.NewReader(string(encode(completion)[1:])).WriteTo(out)
	_ = out.Close()
}

// health answers 200 with nothing, or 503 once the server is closed.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if s.done.Err() != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// models lists the one model.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{
		"id": s.cfg.Model, "object": "model", "created": time.Now().Unix(), "owned_by": "vllm",
		"root": s.cfg.Model, "parent": nil, "max_model_len": s.cfg.MaxModelLen,
	}}})
}

// tokenize answers with the tokens of a prompt as it is, or of messages in the
// chat template.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model    string           `json:"model"`
		Prompt   string           `json:"prompt"`
		Messages []requestMessage `json:"messages"`
		Template templateArgs     `json:"chat_template_kwargs"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequestBody)).Decode(&req); err != nil {
		writeError(w, apiError{http.StatusBadRequest, "", "1 validation error: the body is not a tokenize request"})
		return
	}
	if refusal := s.checkModel(req.Model); refusal != nil {
		writeError(w, *refusal)
		return
	}
	tokens := appendPieces([]int64{}, req.Prompt)
	if len(req.Messages) > 0 {
		tokens = render(texts(req.Messages), req.Template.thinking())
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"count": len(tokens), "max_model_len": s.cfg.MaxModelLen, "tokens": tokens, "token_strs": nil,
	})
}
