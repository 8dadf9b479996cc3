package vllmsim

import (
	"errors"
	"fmt"
	"net/http"
)

// Regime says in which order lock, answer and file appear. The zero value
// means [RegimeC].
type Regime int

const (
	// RegimeA is vLLM 0.17 to 0.21: no lock, and the file is whole before the
	// answer is sent.
	RegimeA Regime = iota + 1
	// RegimeB is vLLM 0.22: the lock is taken before the answer is sent, and a
	// pool of writers writes the file around the answer.
	RegimeB
	// RegimeC is vLLM since #43805: the lock is taken when the request is first
	// scheduled, the answer is sent, then the file is written and the lock
	// released.
	RegimeC
)

// String returns the letter of the regime.
func (r Regime) String() string {
	switch r {
	case RegimeA:
		return "A"
	case RegimeB:
		return "B"
	case RegimeC:
		return "C"
	default:
		return fmt.Sprintf("Regime(%d)", int(r))
	}
}

// locks reports whether this regime has lock files.
func (r Regime) locks() bool { return r != RegimeA }

// run schedules the request and takes lock, file and answer in the order of
// the regime.
func (e *exchange) run(req chatRequest) {
	s := e.server
	requestID, refusal := e.requestID(req)
	if refusal != nil {
		e.refuse(refusal)
		return
	}
	if !e.schedule() {
		return // aborted while queued: there is no lock and no file
	}
	engineID := requestID
	if !s.cfg.NoRandomSuffix {
		engineID += "-" + randomHex(4)
	}
	j, err := s.newJob(engineID, req.tokens, e.fault)
	if err == nil && s.cfg.Regime == RegimeC {
		err = j.place()
	}
	if err != nil {
		e.refuse(failure(http.StatusInternalServerError, "", "EngineCore encountered an issue"))
		s.failed(err)
		return
	}
	if !e.wait(s.cfg.Latency) {
		if s.cfg.Regime == RegimeC {
			s.write(j) // aborted while running: a file that nobody was told of
		}
		return
	}

	switch s.cfg.Regime {
	case RegimeA:
		if err = j.place(); err == nil && e.fault.kind != fileLate {
			err = j.begin()
		}
		defer s.write(j)
	case RegimeB:
		if err = j.place(); err == nil {
			s.write(j)
		}
	case RegimeC:
		defer s.write(j) // deferred: also when the answer breaks off
	}
	if err != nil {
		e.refuse(failure(http.StatusInternalServerError, "", "EngineCore encountered an issue"))
		s.failed(err)
		return
	}
	e.answer(s.completion(requestID, req, j.reported))
}

// write does what is left of a job in a goroutine the server waits for. The
// caller must be counted in running.
func (s *Server) write(j *job) {
	s.running.Go(func() {
		if err := errors.Join(s.finish(j), j.release()); err != nil {
			s.failed(err)
		}
	})
}

// finish writes the file when it is due and waits until the lock may go.
func (s *Server) finish(j *job) error {
	late := j.fault.kind == fileLate
	if s.cfg.Regime != RegimeA {
		s.pause(s.cfg.WriteDelay, nil)
	}
	if late {
		s.pause(j.fault.delay, nil)
	}
	if late || s.cfg.Regime != RegimeA { // in A it stood before the answer
		if err := j.begin(); err != nil {
			return err
		}
	}
	switch {
	case j.fault.kind == truncated && j.fault.delay > 0:
		s.pause(j.fault.delay, nil)
		return j.complete()
	case j.fault.kind == lockKept && j.fault.delay > 0:
		s.pause(j.fault.delay, j.released)
	case j.fault.kind == lockKept:
		select {
		case <-j.released:
		case <-s.done.Done():
		}
	}
	return nil
}
