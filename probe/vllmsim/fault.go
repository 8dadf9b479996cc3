package vllmsim

import (
	"fmt"
	"time"
)

// Fault is one way for an exchange to go wrong. The set is closed: a Fault
// comes from one of the constructors of this package. The zero value is no
// fault. Faults can be compared.
//
// A fault that spoils the answer after the model has run (all but [Status] and
// [Redirect]) leaves an artifact behind that nobody was told of, as a real one
// would.
type Fault struct {
	kind     kind
	status   int
	body     Body
	location string        // where to redirect to, or a folder outside
	size     int64         // of the file, in bytes
	delay    time.Duration // 0 where a fault can last: for good
}

// kind names what a fault spoils.
type kind int

const (
	none kind = iota

	// The answer.
	status
	redirect
	hang
	dropEarly
	dropMidAnswer
	notJSON
	pathMissing
	pathNull
	pathNumber
	endlessBody
	compressedBody

	// Where the artifact is.
	pathOutside
	pathDotDot
	pathNested
	pathExtension

	// The lock.
	lockKept
	noLock
	lockSymlink
	lockFIFO
	lockDir

	// What is at the artifact's path.
	fileLate
	fileMissing
	truncated
	artifactSymlink
	artifactFIFO
	artifactDir
	hugeSparse
	hugeZeros
	garbage

	// What the artifact says.
	headerTooLong
	axesSwapped
	layerTooMany
	tooWide
	rank2
	noTokens
	rowsMissing
	oneNaN
	oneInf
	allZero
	oneZeroVector
	otherTokens
)

// names are for test names and messages.
var names = [...]string{
	none:   "none",
	status: "status", redirect: "redirect", hang: "hang", dropEarly: "drop-early", dropMidAnswer: "drop-mid-answer",
	notJSON: "not-json", pathMissing: "path-missing", pathNull: "path-null", pathNumber: "path-number",
	endlessBody: "endless-body", compressedBody: "compressed-body",
	pathOutside: "path-outside", pathDotDot: "path-dot-dot", pathNested: "path-nested", pathExtension: "path-extension",
	lockKept: "lock-kept", noLock: "no-lock", lockSymlink: "lock-symlink", lockFIFO: "lock-fifo", lockDir: "lock-dir",
	fileLate: "file-late", fileMissing: "file-missing", truncated: "truncated",
	artifactSymlink: "artifact-symlink", artifactFIFO: "artifact-fifo", artifactDir: "artifact-dir",
	hugeSparse: "huge-sparse", hugeZeros: "huge-zeros", garbage: "garbage",
	headerTooLong: "header-too-long", axesSwapped: "axes-swapped", layerTooMany: "layer-too-many", tooWide: "too-wide",
	rank2: "rank-2", noTokens: "no-tokens", rowsMissing: "rows-missing", oneNaN: "one-nan", oneInf: "one-inf",
	allZero: "all-zero", oneZeroVector: "one-zero-vector", otherTokens: "other-tokens",
}

// String names the fault, for the name of a test.
func (f Fault) String() string {
	name := names[f.kind]
	if f.kind == status {
		name = fmt.Sprintf("%s-%d-%s", name, f.status, f.body)
	}
	if f.delay > 0 {
		name += "-for-" + f.delay.String()
	}
	return name
}

// Body says what the body of an answer with a bare status is.
type Body int

const (
	// BodyJSON is vLLM's {"error":{"message",…}}.
	BodyJSON Body = iota
	// BodyString is {"error":"…"}, as vLLM answers a wrong key.
	BodyString
	// BodyHTML is what a proxy in between would send.
	BodyHTML
	// BodyEmpty is nothing.
	BodyEmpty
)

// String names the kind of body.
func (b Body) String() string {
	return [...]string{BodyJSON: "json", BodyString: "string", BodyHTML: "html", BodyEmpty: "empty"}[b]
}

// None is the zero Fault: all goes well.
func None() Fault { return Fault{} }

// Status answers with the code before anything is scheduled.
func Status(code int, body Body) Fault { return Fault{kind: status, status: code, body: body} }

// Redirect answers 307 with a Location of the same server, where a request is
// served without faults: a client that follows gets a good answer.
func Redirect() Fault { return Fault{kind: redirect, location: redirectedPath} }

// Hang sends nothing until the client goes away or the server is closed.
func Hang() Fault { return Fault{kind: hang} }

// DropEarly closes the connection instead of answering.
func DropEarly() Fault { return Fault{kind: dropEarly} }

// DropMidAnswer closes the connection after half of the answer's body.
func DropMidAnswer() Fault { return Fault{kind: dropMidAnswer} }

// NotJSON answers 200 with an HTML page.
func NotJSON() Fault { return Fault{kind: notJSON} }

// PathMissing answers without kv_transfer_params, as other servers do.
func PathMissing() Fault { return Fault{kind: pathMissing} }

// PathNull answers with kv_transfer_params null, as vLLM without the connector
// does.
func PathNull() Fault { return Fault{kind: pathNull} }

// PathNumber answers with the number 42 for a path.
func PathNumber() Fault { return Fault{kind: pathNumber} }

// EndlessBody begins a good answer and follows it with white space until the
// client goes away or the server is closed.
func EndlessBody() Fault { return Fault{kind: endlessBody} }

// CompressedBody sends a good answer with 64 MiB of white space in it, a few
// dozen KiB once compressed, as gzip that was not asked for.
func CompressedBody() Fault { return Fault{kind: compressedBody} }

// PathOutside writes the artifact and its lock to the folder outside and
// reports its path there. Here and below outside is an absolute path.
func PathOutside(outside string) Fault { return Fault{kind: pathOutside, location: outside} }

// PathDotDot writes the artifact and its lock to the folder outside and
// reports a path that begins in the reported folder and leaves it by "..".
func PathDotDot(outside string) Fault { return Fault{kind: pathDotDot, location: outside} }

// PathNested writes the artifact and its lock to a subfolder of Dir and reports
// it there.
func PathNested() Fault { return Fault{kind: pathNested} }

// WrongExtension names the artifact *.bin.
func WrongExtension() Fault { return Fault{kind: pathExtension} }

// LockKept writes the file in time but keeps the lock for d; d = 0:
// until [Server.ReleaseLocks] or Close. In regime A, where vLLM has no lock,
// one is made.
func LockKept(d time.Duration) Fault { return Fault{kind: lockKept, delay: d} }

// NoLock makes no lock file in regimes B and C (use_synchronization_lock
// false); the file appears when it would have.
func NoLock() Fault { return Fault{kind: noLock} }

// LockSymlink makes the lock a symbolic link to a file in the folder outside.
func LockSymlink(outside string) Fault { return Fault{kind: lockSymlink, location: outside} }

// LockFIFO makes the lock a FIFO.
func LockFIFO() Fault { return Fault{kind: lockFIFO} }

// LockDir makes the lock an empty folder.
func LockDir() Fault { return Fault{kind: lockDir} }

// FileLate answers first and writes the file d later than the configuration
// says, in every regime; the lock, where there is one, is held until then.
func FileLate(d time.Duration) Fault { return Fault{kind: fileLate, delay: d} }

// FileMissing writes no file but releases the lock: vLLM's write failed before
// the first byte.
func FileMissing() Fault { return Fault{kind: fileMissing} }

// Truncated writes a good header and half of the data, then releases the lock:
// vLLM's write failed on a full disk.
func Truncated() Fault { return Fault{kind: truncated} }

// TruncatedFor writes half of the file when it is due and the rest d later; the
// lock, where there is one, is held until then.
func TruncatedFor(d time.Duration) Fault { return Fault{kind: truncated, delay: d} }

// ArtifactSymlink writes the artifact to the folder outside and makes its name
// in Dir a symbolic link to it.
func ArtifactSymlink(outside string) Fault { return Fault{kind: artifactSymlink, location: outside} }

// ArtifactFIFO makes the artifact a FIFO, whose opening for reading blocks.
func ArtifactFIFO() Fault { return Fault{kind: artifactFIFO} }

// ArtifactDir makes the artifact an empty folder.
func ArtifactDir() Fault { return Fault{kind: artifactDir} }

// HugeSparse makes the artifact a file of size bytes, all of them holes.
func HugeSparse(size int64) Fault { return Fault{kind: hugeSparse, size: size} }

// HugeZeros makes the artifact a file with a good header that is consistent
// with its size, about size bytes, and holes for data: all states are zero. For
// a huge artifact with good states, ask for a wide shape and a long prompt.
func HugeZeros(size int64) Fault { return Fault{kind: hugeZeros, size: size} }

// Garbage writes 4 KiB of pseudo-random bytes.
func Garbage() Fault { return Fault{kind: garbage} }

// HeaderTooLong pads the header of an otherwise good artifact to 2 MiB.
func HeaderTooLong() Fault { return Fault{kind: headerTooLong} }

// AxesSwapped has a header that says [layers, tokens, hidden size].
func AxesSwapped() Fault { return Fault{kind: axesSwapped} }

// LayerTooMany has one more layer than configured.
func LayerTooMany() Fault { return Fault{kind: layerTooMany} }

// TooWide has a hidden size one larger than configured.
func TooWide() Fault { return Fault{kind: tooWide} }

// Rank2 has a header that says [tokens, layers*hidden size].
func Rank2() Fault { return Fault{kind: rank2} }

// NoTokens has an empty artifact: zero tokens.
func NoTokens() Fault { return Fault{kind: noTokens} }

// RowsMissing has the states of one token less than token_ids (vLLM #44485).
func RowsMissing() Fault { return Fault{kind: rowsMissing} }

// NaN has one NaN among the states.
func NaN() Fault { return Fault{kind: oneNaN} }

// Inf has one infinity among the states.
func Inf() Fault { return Fault{kind: oneInf} }

// AllZero has states that are all zero (vLLM #46301).
func AllZero() Fault { return Fault{kind: allZero} }

// ZeroVector has one token whose last layer is zero.
func ZeroVector() Fault { return Fault{kind: oneZeroVector} }

// OtherTokens has token_ids that are not those of the answer.
func OtherTokens() Fault { return Fault{kind: otherTokens} }
