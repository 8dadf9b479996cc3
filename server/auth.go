package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// permission is a set of overrides that a caller may send.
type permission uint8

// The permissions of a tokens file.
const (
	mayTradeOff permission = 1 << iota
	mayRefresh
	mayBypass
	mayAll = mayTradeOff | mayRefresh | mayBypass
)

// permissionWords are the permissions as a tokens file spells them.
var permissionWords = map[string]permission{
	"trade_off": mayTradeOff,
	"refresh":   mayRefresh,
	"bypass":    mayBypass,
	"all":       mayAll,
}

// caller is who sent a call.
type caller struct {
	// name is the token's, for the log; empty without authentication.
	name string
	may  permission
}

type callerKey struct{}

// callerOf returns who sent the call. Where nobody has to say so, everybody may
// do everything.
func callerOf(ctx context.Context) caller {
	if c, ok := ctx.Value(callerKey{}).(caller); ok {
		return c
	}
	return caller{may: mayAll}
}

// tokens are the accepted bearer tokens. Only their digests are kept.
type tokens []token

type token struct {
	digest [sha256.Size]byte
	caller caller
}

// find returns the caller whose token this is. It takes the same time for every
// token that was not accepted and, but for its length, for every one that was: all
// digests are compared, each in constant time.
func (t tokens) find(presented string) (found caller, ok bool) {
	digest := sha256.Sum256([]byte(presented))
	for i := range t {
		if subtle.ConstantTimeCompare(digest[:], t[i].digest[:]) == 1 {
			found, ok = t[i].caller, true
		}
	}
	return found, ok
}

// Limits of a tokens file.
const (
	// minTokenBytes keeps tokens out of reach of guessing: 128 bits in base64 take 22
	// characters, in hex 32.
	minTokenBytes = 16
	// maxTokensBytes holds ten thousand tokens; a path typed wrongly may lead anywhere.
	maxTokensBytes = 1 << 20
)

// callerName is what the name of a token may look like: it stands in the log.
var callerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// loadTokens reads a tokens file.
func loadTokens(path string) (tokens, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err // names the path and the cause
	}
	data, err := io.ReadAll(io.LimitReader(f, maxTokensBytes+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	found, err := parseTokens(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return found, nil
}

// parseTokens reads lines of NAME TOKEN [PERMISSION,…]. Empty lines and those that
// begin with # are passed over. Several lines may have one name, so that a token
// can be replaced without a gap. No error holds anything of a line but its number:
// a token may stand where it should not.
func parseTokens(data []byte) (tokens, error) {
	if len(data) > maxTokensBytes {
		return nil, fmt.Errorf("is larger than %d bytes", maxTokensBytes)
	}
	var (
		out  tokens
		seen = map[[sha256.Size]byte]int{}
		errs []error
	)
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxTokensBytes)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		t, err := parseToken(line)
		if err == nil {
			if first := seen[t.digest]; first > 0 {
				err = fmt.Errorf("has the token of line %d: each line needs its own", first)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d %w", number, err))
			continue
		}
		seen[t.digest] = number
		out = append(out, t)
	}
	errs = append(errs, lines.Err())
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, errors.New("holds no token: write lines of NAME TOKEN [PERMISSION,...]")
	}
	return out, nil
}

func parseToken(line string) (token, error) {
	fields := strings.Fields(line)
	switch {
	case len(fields) < 2 || len(fields) > 3:
		return token{}, errors.New("is not NAME TOKEN [PERMISSION,...]")
	case !callerName.MatchString(fields[0]):
		return token{}, errors.New("has a name that is not 1 to 64 letters, digits, dots, dashes or underscores")
	case len(fields[1]) < minTokenBytes:
		return token{}, fmt.Errorf("has a token shorter than %d bytes: make one with openssl rand -hex 32", minTokenBytes)
	}
	t := token{digest: sha256.Sum256([]byte(fields[1])), caller: caller{name: fields[0]}}
	if len(fields) == 3 {
		for word := range strings.SplitSeq(fields[2], ",") {
			p, ok := permissionWords[word]
			if !ok {
				return token{}, errors.New("has an unknown permission: there are trade_off, refresh, bypass and all")
			}
			t.caller.may |= p
		}
	}
	return t, nil
}

// doorman lets connections and calls in. Of a call it sees the headers alone: of a
// caller who has no token no message is read, let alone decoded.
type doorman struct {
	certificates certificates
	// accepted is nil where nobody has to show a token.
	accepted   atomic.Pointer[tokens]
	openHealth atomic.Bool
	observer   DoorObserver
}

func newDoorman(observer DoorObserver) *doorman { return &doorman{observer: observer} }

// use lets in whom e says, from the next handshake and the next call on.
func (d *doorman) use(e entrance) {
	d.certificates.current.Store(e.tls)
	d.openHealth.Store(e.openHealth)
	d.accepted.Store(e.tokens)
}

// DoorObserver is told of calls that were turned away. They are counted rather than
// logged, so that a stranger cannot fill the log.
type DoorObserver interface {
	// Refused is told that a call came without a valid token.
	Refused(ctx context.Context)
}

// callLimit is how long a call may take, sending its message included, whatever
// deadline it has: a stranger's stream that never ends must not be kept for good.
// It is the longest decide_timeout and a minute to send.
const callLimit = 11 * time.Minute

const (
	authorizationHeader = "authorization"
	bearerScheme        = "bearer"
)

// enter implements [tap.ServerInHandle]. It runs on the connection's reading
// goroutine and must be quick: it costs one SHA-256 and a comparison a token.
func (d *doorman) enter(ctx context.Context, info *tap.Info) (context.Context, error) {
	accepted := d.accepted.Load()
	if accepted == nil {
		return limitCall(ctx, info), nil
	}
	if c, ok := accepted.find(bearerToken(info.Header)); ok {
		visitorOf(ctx).letIn()
		return context.WithValue(limitCall(ctx, info), callerKey{}, c), nil
	}
	// Not Watch, whose streams stay: strangers could hold as many as connections allow.
	if d.openHealth.Load() && info.FullMethodName == healthv1.Health_Check_FullMethodName {
		return context.WithValue(ctx, callerKey{}, caller{}), nil
	}
	d.observer.Refused(ctx)
	visitorOf(ctx).refuse()
	return nil, errUnauthenticated.GRPCStatus().Err()
}

// limitCall ends a call after callLimit. It is for calls that are let in: the ctx of one
// that is refused is never cancelled, and would keep the timer.
func limitCall(ctx context.Context, info *tap.Info) context.Context {
	if deadline, ok := ctx.Deadline(); !strings.HasPrefix(info.FullMethodName, servicePrefix) || (ok && time.Until(deadline) <= callLimit) {
		return ctx
	}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	context.AfterFunc(ctx, cancel) // the timer goes with the call
	return limited
}

// errUnauthenticated says nothing of what was wrong: neither who there is nor which
// part of a token was right.
var errUnauthenticated = &callError{
	reason:  pointsmanv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED,
	message: "a valid bearer token is needed in the authorization header",
}

// bearerToken returns the one token of the headers, or "", which is nobody's.
func bearerToken(header metadata.MD) string {
	values := header.Get(authorizationHeader)
	if len(values) != 1 {
		return ""
	}
	scheme, presented, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, bearerScheme) {
		return ""
	}
	return strings.TrimSpace(presented)
}
