package vllmsim

import (
	"context"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Server plays one vLLM server. Its methods may be called at any time from any
// goroutine.
type Server struct {
	cfg     Config
	handler http.Handler
	slots   chan struct{} // a place for each scheduled request; nil: any number
	record  record

	// done ends every wait once Close is called.
	done  context.Context
	close context.CancelFunc
	// running counts handlers and writers. It grows only under mu and while
	// open, or by someone who is counted already.
	running sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	pick     func(task string) Fault // nil: no faults
	queue    []Fault
	release  chan struct{} // closed by ReleaseLocks and made anew
	writeErr error         // the first write that failed without a fault
}

// New makes a server that is ready to be asked. The caller serves its Handler
// and closes it.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("vllmsim: invalid config: %w", err)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("vllmsim: %w", err)
	}
	s := &Server{cfg: cfg, release: make(chan struct{})}
	s.done, s.close = context.WithCancel(context.Background())
	if cfg.MaxConcurrent > 0 {
		s.slots = make(chan struct{}, cfg.MaxConcurrent)
	}
	s.handler = s.authenticated(s.routes())
	return s, nil
}

// Handler returns the HTTP side of the server.
func (s *Server) Handler() http.Handler { return s.handler }

// redirectedPath is where [Redirect] points to.
const redirectedPath = "/v1/redirected/chat/completions"

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.chat(w, r, s.nextFault) })
	mux.HandleFunc("POST "+redirectedPath, func(w http.ResponseWriter, r *http.Request) {
		s.chat(w, r, func(string) Fault { return None() })
	})
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("POST /tokenize", s.tokenize)
	mux.HandleFunc("GET /health", s.health)
	return mux
}

// authenticated asks for the API key below /v1 and nowhere else, as vLLM does.
func (s *Server) authenticated(next http.Handler) http.Handler {
	want := []byte("Bearer " + s.cfg.APIKey)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guarded := s.cfg.APIKey != "" && strings.HasPrefix(r.URL.Path, "/v1")
		if guarded && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			writeBody(w, http.StatusUnauthorized, BodyString)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Close ends all delays, writes what was promised, releases every lock and
// waits for it. Requests that are waiting are dropped and later ones get 503.
// It returns the first error in writing a file that was no fault's doing.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeErr
}

// enter counts a handler in, unless the server is closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// SetFault makes every request from now on go wrong like this; [None] ends it.
func (s *Server) SetFault(fault Fault) {
	s.SetFaultFunc(func(string) Fault { return fault })
}

// SetFaultFunc lets pick choose the fault of each request from the text of its
// last user message. It is called under a lock: it must not call the server.
func (s *Server) SetFaultFunc(pick func(task string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pick = pick
}

// QueueFaults makes the next requests go wrong, one each, before SetFault and
// SetFaultFunc apply.
func (s *Server) QueueFaults(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, faults...)
}

// nextFault chooses the fault of one request.
func (s *Server) nextFault(task string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		fault := s.queue[0]
		s.queue = s.queue[1:]
		return fault
	}
	if s.pick == nil {
		return None()
	}
	return s.pick(task)
}

// ReleaseLocks releases the locks that [LockKept] keeps of the requests
// received so far.
func (s *Server) ReleaseLocks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.release)
	s.release = make(chan struct{})
}

// lockRelease is what the next ReleaseLocks closes.
func (s *Server) lockRelease() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.release
}

// pause waits for d, or until early or the server is closed. A d of 0 is no
// time at all.
func (s *Server) pause(d time.Duration, early <-chan struct{}) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-s.done.Done():
	}
}

// failed keeps the first error of a write.
func (s *Server) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr == nil {
		s.writeErr = err
	}
}
