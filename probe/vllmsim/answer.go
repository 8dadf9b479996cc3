package vllmsim

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

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
	_, _ = out.Write(encode(completion)[1:]) // what follows the brace
	_ = out.Close()
}
