package server

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
)

// adminHandler serves the port for operators.
func adminHandler(s *Server) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "alive"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		report := s.readiness()
		code := http.StatusOK
		if !report.Ready {
			code = http.StatusServiceUnavailable
		}
		writeJSON(w, code, report)
	})
	mux.HandleFunc("GET /configz", func(w http.ResponseWriter, _ *http.Request) {
		text, err := s.now.Load().cfg.Redacted()
		if err != nil {
			http.Error(w, "the configuration cannot be shown", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(text) // the reader has left if it fails
	})
	mux.Handle("GET /metrics", s.telemetry.MetricsHandler())
	mux.HandleFunc("GET /loglevel", s.showLogLevel)
	mux.HandleFunc("PUT /loglevel", s.setLogLevel)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(body) //nolint:errchkjson // the bodies are plain data; the reader has left if it fails
}
