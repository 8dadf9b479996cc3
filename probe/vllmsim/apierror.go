package vllmsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// apiError is an error as vLLM answers it; an empty param is null.
type apiError struct {
	status  int
	kind    string // "type" in the body
	param   string
	message string
}

// failure is an error of the serving code, whose type follows its status.
func failure(status int, param, format string, args ...any) *apiError {
	return &apiError{status, errorType(status), param, fmt.Sprintf(format, args...)}
}

// invalid is an error of the validation that comes before the serving code; it
// has another type and no param.
func invalid(what string) *apiError {
	return &apiError{http.StatusBadRequest, "Bad Request", "", "1 validation error:\n  " + what}
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
func writeError(w http.ResponseWriter, e *apiError) {
	var param any
	if e.param != "" {
		param = e.param
	}
	writeJSON(w, e.status, map[string]any{"error": map[string]any{
		"message": e.message, "type": e.kind, "param": param, "code": e.status,
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
		writeError(w, failure(status, "", "%s", text))
	}
}
