package rediscache

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// What can be wrong with an exchange. No error says anything a server sent but the short code of its error reply.
var (
	ErrUnavailable = errors.New("redis is not in use after failures in a row")
	ErrTimeout     = errors.New("redis did not answer in time")
	ErrConnect     = errors.New("no connection to redis")
	ErrTLS         = errors.New("no secure connection to redis")
	ErrAuth        = errors.New("redis refuses the user or password")
	ErrReply       = errors.New("redis answered with an error")
	ErrTooLarge    = errors.New("rediscache: value is too large to be stored")
)

var errUnexpectedReply = fmt.Errorf("%w: unexpected type", ErrReply)

// replyCode is what the first word of an error reply may be to be repeated.
var replyCode = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)

// classify says which of the above an error of the client is. Of its text nothing is kept.
func classify(err error) error {
	for _, known := range []error{ErrUnavailable, ErrTimeout, ErrConnect, ErrTLS, ErrAuth, ErrReply, ErrTooLarge} {
		if errors.Is(err, known) {
			return err // ours already
		}
	}
	var reply redis.Error
	if errors.As(err, &reply) && !errors.Is(err, redis.Nil) {
		code, _, _ := strings.Cut(reply.Error(), " ")
		switch {
		case code == "WRONGPASS" || code == "NOAUTH" || code == "NOPERM":
			return fmt.Errorf("%w: %s", ErrAuth, code)
		case replyCode.MatchString(code):
			return fmt.Errorf("%w: %s", ErrReply, code)
		}
		return ErrReply
	}
	if secure := secureError(err); secure != "" {
		return fmt.Errorf("%w: %s", ErrTLS, secure)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrTimeout
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return ErrTimeout
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: connection refused", ErrConnect)
	}
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return fmt.Errorf("%w: host not found", ErrConnect)
	}
	return ErrConnect
}

// secureError says what a TLS error is about, or returns the empty string for others.
func secureError(err error) string {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		op        *net.OpError
	)
	switch {
	case errors.As(err, &authority):
		return "certificate signed by an unknown authority"
	case errors.As(err, &host):
		return "certificate is for another host"
	case errors.As(err, &invalid), errors.As(err, &verify):
		return "certificate is not valid"
	case errors.As(err, &record):
		return "the server does not speak TLS"
	case errors.As(err, &op) && op.Op == "remote error": // crypto/tls for an alert it received
		return "the server refuses our certificate or protocol"
	}
	return ""
}
