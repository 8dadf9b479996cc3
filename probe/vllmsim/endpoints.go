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

// modelList is the answer of GET /v1/models.
type modelList struct {
	Object string      `json:"object"`
	Data   []modelCard `json:"data"`
}

// modelCard describes a served model.
type modelCard struct {
	ID          string  `json:"id"`
	Object      string  `json:"object"`
	Created     int64   `json:"created"` // Unix seconds
	OwnedBy     string  `json:"owned_by"`
	Root        string  `json:"root"`
	Parent      *string `json:"parent"`
	MaxModelLen int     `json:"max_model_len"`
}

// models lists the one model.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, modelList{Object: "list", Data: []modelCard{{
		ID: s.cfg.Model, Object: "model", Created: time.Now().Unix(), OwnedBy: "vllm",
		Root: s.cfg.Model, MaxModelLen: s.cfg.MaxModelLen,
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
