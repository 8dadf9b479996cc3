package vllmsim

import (
	"net/http"
	"time"
)

// FaultCase is a fault and what a client should make of it.
type FaultCase struct {
	Fault Fault
	// Want is the class of the failure, one of the Want constants; empty when
	// the client should succeed all the same.
	Want string
}

// Name is the name of the case for a test.
func (c FaultCase) Name() string { return c.Fault.String() }

// The classes a client can tell apart.
const (
	WantOK          = ""
	WantTimeout     = "PROBE_TIMEOUT"     // no answer in time, or the lock never came free
	WantUnavailable = "PROBE_UNAVAILABLE" // the connection, 5xx, 408, 425, 429
	WantProtocol    = "PROBE_PROTOCOL"    // an answer that is not vLLM's with the connector
	WantRejected    = "PROBE_REJECTED"    // any other 4xx
	WantArtifact    = "PROBE_ARTIFACT"    // missing, outside, malformed or unusable
)

// AllFaults returns at least one case of every fault. outside is a folder apart
// from the server's, made by the caller, for the faults that point out of it.
// The passing faults last 100 ms; a client with less patience will not see
// them pass.
func AllFaults(outside string) []FaultCase {
	const (
		shortly = 100 * time.Millisecond
		huge    = 1 << 40 // more than any sensible limit, and sparse
		zeros   = 2 << 30 // within a sensible limit
	)
	return []FaultCase{
		{Status(http.StatusNoContent, BodyEmpty), WantProtocol},
		{Status(http.StatusOK, BodyEmpty), WantProtocol},
		{Status(http.StatusMovedPermanently, BodyHTML), WantProtocol},
		{Status(http.StatusNotModified, BodyEmpty), WantProtocol},
		{Redirect(), WantProtocol},
		{Status(http.StatusBadRequest, BodyJSON), WantRejected},
		{Status(http.StatusUnauthorized, BodyString), WantRejected},
		{Status(http.StatusForbidden, BodyHTML), WantRejected},
		{Status(http.StatusNotFound, BodyEmpty), WantRejected},
		{Status(http.StatusUnprocessableEntity, BodyJSON), WantRejected},
		{Status(http.StatusRequestTimeout, BodyEmpty), WantUnavailable},
		{Status(http.StatusTooEarly, BodyEmpty), WantUnavailable},
		{Status(http.StatusTooManyRequests, BodyJSON), WantUnavailable},
		{Status(http.StatusInternalServerError, BodyJSON), WantUnavailable},
		{Status(http.StatusNotImplemented, BodyJSON), WantUnavailable},
		{Status(http.StatusBadGateway, BodyHTML), WantUnavailable},
		{Status(http.StatusServiceUnavailable, BodyString), WantUnavailable},
		{Status(http.StatusGatewayTimeout, BodyEmpty), WantUnavailable},

		{Hang(), WantTimeout},
		{DropEarly(), WantUnavailable},
		{DropMidAnswer(), WantUnavailable},
		{NotJSON(), WantProtocol},
		{PathMissing(), WantProtocol},
		{PathNull(), WantProtocol},
		{PathNumber(), WantProtocol},
		{EndlessBody(), WantProtocol},
		{CompressedBody(), WantProtocol},

		{PathOutside(outside), WantArtifact},
		{PathDotDot(outside), WantArtifact},
		{PathNested(), WantArtifact},
		{WrongExtension(), WantArtifact},

		{LockKept(0), WantTimeout},
		{LockKept(shortly), WantOK},
		{NoLock(), WantOK},
		{LockSymlink(outside), WantArtifact},
		{LockFIFO(), WantArtifact},
		{LockDir(), WantArtifact},

		{FileLate(shortly), WantOK},
		{FileMissing(), WantArtifact},
		{Truncated(), WantArtifact},
		{TruncatedFor(shortly), WantOK},
		{ArtifactSymlink(outside), WantArtifact},
		{ArtifactFIFO(), WantArtifact},
		{ArtifactDir(), WantArtifact},
		{HugeSparse(huge), WantArtifact},
		{HugeZeros(zeros), WantArtifact},
		{Garbage(), WantArtifact},

		{HeaderTooLong(), WantArtifact},
		{AxesSwapped(), WantArtifact},
		{LayerTooMany(), WantArtifact},
		{TooWide(), WantArtifact},
		{Rank2(), WantArtifact},
		{NoTokens(), WantArtifact},
		{RowsMissing(), WantArtifact},
		{NaN(), WantArtifact},
		{Inf(), WantArtifact},
		{AllZero(), WantArtifact},
		{ZeroVector(), WantArtifact},
		{OtherTokens(), WantArtifact},
	}
}
