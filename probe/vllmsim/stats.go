package vllmsim

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// The records are for assertions, not for keeping: a server that runs for long
// (a demo) must not grow with what it is asked.
const (
	maxSeenRequests = 256
	maxSeenText     = 64 << 10 // bytes kept of a body or a task
	maxSeenTasks    = 1024     // distinct ones
)

// Stats counts the chat requests that came past the check of the API key.
type Stats struct {
	Requests int
	// Aborted counts those whose client left before it had an answer.
	Aborted int
	// InFlight is how many have arrived and not been answered, and MaxInFlight
	// the most there were at a time.
	InFlight, MaxInFlight int
	// PerTask counts them by the first 64 KiB of the text of their last user
	// message; beyond 1024 different texts new ones are left out.
	PerTask map[string]int
}

// SeenRequest is one chat request as it came.
type SeenRequest struct {
	Header http.Header
	// Body is its first 64 KiB.
	Body []byte
	// Task is the first 64 KiB of the text of the last user message; empty for a
	// body that could not be read.
	Task string
}

// record keeps the books of a server.
type record struct {
	mu    sync.Mutex
	stats Stats
	seen  []SeenRequest
}

func (r *record) arrived() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Requests++
	r.stats.InFlight++
	r.stats.MaxInFlight = max(r.stats.MaxInFlight, r.stats.InFlight)
}

func (r *record) left() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.InFlight--
}

func (r *record) aborted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Aborted++
}

func (r *record) asked(header http.Header, body []byte, task string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	task = strings.Clone(task[:min(len(task), maxSeenText)])
	if r.stats.PerTask == nil {
		r.stats.PerTask = make(map[string]int)
	}
	if _, known := r.stats.PerTask[task]; known || len(r.stats.PerTask) < maxSeenTasks {
		r.stats.PerTask[task]++
	}
	if len(r.seen) == maxSeenRequests {
		r.seen = slices.Delete(r.seen, 0, 1)
	}
	r.seen = append(r.seen, SeenRequest{
		Header: header.Clone(),
		Body:   slices.Clone(body[:min(len(body), maxSeenText)]),
		Task:   task,
	})
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	stats := s.record.stats
	stats.PerTask = maps.Clone(stats.PerTask)
	return stats
}

// Requests returns the newest 256 chat requests, oldest first. The caller must
// not change them.
func (s *Server) Requests() []SeenRequest {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	return slices.Clone(s.record.seen)
}
