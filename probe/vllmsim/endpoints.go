package vllmsim

import (
	"encoding/json"
	"net/http"
	"time"
)

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
		writeError(w, invalid("the body is not a tokenize request"))
		return
	}
	if refusal := s.checkModel(req.Model); refusal != nil {
		writeError(w, refusal)
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
