package server

import (
	"context"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/metadata"
)

// call is what the interceptors and the handler of one RPC know together.
type call struct {
	// id is the call's own, a UUIDv7, and that of the decision it is about. requestID is
	// the caller's, or the same where it gave none.
	id, requestID string
	arrived       time.Time
	// caller is the name of the token that the call came with; empty without one.
	caller string
	// answerBy is when the answer must leave; zero without a deadline.
	answerBy time.Time
	// decision is set by the handler, for the access log and the trailers.
	decision *Decision
}

// The trailers of a call. Only the request id is there without a decision.
const (
	requestIDHeader       = "x-request-id" // in both directions
	trailerBasis          = "pointsman-basis"
	trailerFallbackReason = "pointsman-fallback-reason"
	trailerDecisionID     = "pointsman-decision-id"
)

// trailers are what meshes and logs want to know of the call.
func (c *call) trailers() metadata.MD {
	const most = 4
	values := make([]string, 0, most) // one array for all: this is made for every call
	md := make(metadata.MD, most)
	set := func(name, value string) {
		values = append(values, value)
		md[name] = values[len(values)-1 : len(values) : len(values)]
	}
	set(requestIDHeader, c.requestID)
	if dec := c.decision; dec != nil {
		set(trailerBasis, enumName(dec.Basis))
		set(trailerDecisionID, dec.ID)
		if dec.Reason != reasonNone {
			set(trailerFallbackReason, enumName(dec.Reason))
		}
	}
	return md
}

type callKey struct{}

// withCall puts the call into the ctx.
func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callOf returns the ctx's call. Outside of the interceptors, as in a test of the
// handler alone, it is one that begins now.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{id: newID(), arrived: time.Now()}
}

// DeadlineMargin is how long before the caller's deadline an answer leaves.
type DeadlineMargin time.Duration

// answerBy returns when an answer must leave to reach the caller in time: the
// margin before the deadline, and at most a quarter of what remains on arrival,
// so that a short deadline is not all margin.
func (m DeadlineMargin) answerBy(arrived, deadline time.Time) time.Time {
	return deadline.Add(-min(time.Duration(m), deadline.Sub(arrived)/4))
}

// maxRequestID is the longest request id that is accepted from a caller; a UUID
// with a prefix fits.
const maxRequestID = 128

// newID makes a UUIDv7. That fails only if the system has no randomness, which Go treats
// as fatal.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// requestID accepts a caller's id if it is short and plain, so that it can stand
// in a log and a header as it is, and is the call's own otherwise.
func requestID(given []string, own string) string {
	if len(given) == 1 && plainID(given[0]) {
		return given[0]
	}
	return own
}

// plainID says whether an id is 1 to maxRequestID of A-Z a-z 0-9 . _ -.
func plainID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
