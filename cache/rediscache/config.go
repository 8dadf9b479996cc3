package rediscache

import (
	"errors"
	"fmt"
	"time"
)

const (
	// dialTimeout bounds connecting. A connection is not made on a caller's time: the caller goes on without Redis meanwhile.
	dialTimeout = 250 * time.Millisecond

	// backgroundTimeout bounds exchanges no answer waits for.
	backgroundTimeout = 100 * time.Millisecond

	// connectTimeout bounds an exchange that has to connect first: the dialling, TLS and authentication.
	connectTimeout = dialTimeout + 2*backgroundTimeout
)

// Config says which Redis, and how little time it may take.
type Config struct {
	// URL is one of
	//
	//	redis://[user:password@]host[:6379][/db]
	//	redis+sentinel://host[:26379][,host…]/master[/db]
	//	redis+cluster://host[:6379][,host…]
	//
	// with rediss, rediss+sentinel and rediss+cluster for TLS. It may hold a user and a password, percent-encoded, for the data nodes.
	URL string
	// Username and Password are those of the data nodes. They override the URL's.
	Username, Password string
	// SentinelUsername and SentinelPassword are those of the sentinels.
	SentinelUsername, SentinelPassword string
	// TLS is for the rediss schemes. Its files are read for each connection, so renewed ones are used without a restart.
	TLS TLS
	// Secret seals values. It should be the one the keys are made with; empty: values are stored as they are.
	Secret []byte
	// OpTimeout bounds each exchange that an answer waits for.
	OpTimeout time.Duration
	// PoolSize bounds the connections (to each node), and how many exchanges can be under way.
	PoolSize int
	// Failures in a row open the breaker, for OpenFor before each new attempt.
	Failures int
	OpenFor  time.Duration
}

// TLS names files. All are optional: without CAFile the system's authorities are trusted.
type TLS struct {
	CAFile            string
	CertFile, KeyFile string // client certificate; both or neither
	ServerName        string // expected in the server's certificate; default: the host connected to
}

// DefaultConfig returns the defaults, with no URL.
func DefaultConfig() Config {
	return Config{
		OpTimeout: 25 * time.Millisecond, // many times what a healthy Redis takes, and little to a decision that costs tens of ms
		PoolSize:  16,                    // at a fraction of a millisecond an exchange: tens of thousands a second
		Failures:  5,                     // so few that a dead Redis is felt by few calls, so many that one lost packet is not a dead Redis
		OpenFor:   time.Second,           // one attempt a second is no load, and recovery is seen within a second
	}
}

// Validate reports everything that is wrong with c. It does not quote the URL, which may hold a password.
func (c Config) Validate() error {
	var errs []error
	if err := CheckURL(c.URL); err != nil {
		errs = append(errs, fmt.Errorf("rediscache: url: %w", err))
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		errs = append(errs, errors.New("rediscache: tls: a certificate file needs a key file, and a key file a certificate file"))
	}
	if c.OpTimeout < time.Millisecond || c.OpTimeout > backgroundTimeout {
		errs = append(errs, fmt.Errorf("rediscache: op timeout is %v, must be from 1ms to %v", c.OpTimeout, backgroundTimeout))
	}
	if c.PoolSize < 1 {
		errs = append(errs, fmt.Errorf("rediscache: pool size is %d, must be at least 1", c.PoolSize))
	}
	if c.Failures < 1 {
		errs = append(errs, fmt.Errorf("rediscache: failures is %d, must be at least 1", c.Failures))
	}
	if c.OpenFor < 10*time.Millisecond {
		errs = append(errs, fmt.Errorf("rediscache: open for is %v, must be at least 10ms", c.OpenFor))
	}
	return errors.Join(errs...)
}

// Option is an optional collaborator of a [Cache].
type Option func(*settings)

type settings struct {
	schema   int
	observer Observer
}

// WithObserver has every exchange and every change of state reported.
func WithObserver(o Observer) Option { return func(s *settings) { s.observer = o } }

// Observer is told what happens between a [Cache] and Redis. Its methods must not block.
type Observer interface {
	// Exchange reports one exchange: "read", "claim", "renew", "release", "store". Those the breaker refused have ErrUnavailable.
	Exchange(op string, took time.Duration, err error)
	// StateChanged reports that Redis is, or is not, in use from now on.
	StateChanged(status Status)
}

type nopObserver struct{}

func (nopObserver) Exchange(string, time.Duration, error) {}
func (nopObserver) StateChanged(Status)                   {}
