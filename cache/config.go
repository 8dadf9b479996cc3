package cache

import (
	"errors"
	"fmt"
	"time"
)

// Config holds the limits of a [Ladder].
type Config struct {
	// TTL is how long a value may be used, counted from the end of its computation on every layer.
	TTL time.Duration
	// MaxEntries bounds the local cache.
	MaxEntries int
	// ComputeTimeout bounds one computation, whoever waits for it, unless the call says otherwise (Options.ComputeTimeout). It must
	// exceed everything a healthy computation may take.
	ComputeTimeout time.Duration
	// LeaseTTL is how long other processes wait for one that has died. A live one renews its lease every third of it.
	LeaseTTL time.Duration
}

const minLeaseTTL = 6 * backgroundTimeout

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		TTL: 24 * time.Hour, // a key names everything its value depends on, so age is about memory rather than truth
		// About 1 KiB an entry (three heads by eight members, its key and the cache's own records): 64 MiB at most.
		MaxEntries: 65536,
		// The probe's own limits (2 s in the queue, 60 s for the answer, 10 s for the artifact) and 3 s for scoring and scheduling.
		ComputeTimeout: 75 * time.Second,
		LeaseTTL:       5 * time.Second, // long enough to survive a pause of the process, short enough for a caller to see its end
	}
}

// Validate reports everything that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	if c.TTL <= 0 {
		errs = append(errs, fmt.Errorf("cache: ttl is %v, must be positive", c.TTL))
	}
	if c.MaxEntries <= 0 {
		errs = append(errs, fmt.Errorf("cache: max entries is %d, must be positive", c.MaxEntries))
	}
	if c.ComputeTimeout <= 0 {
		errs = append(errs, fmt.Errorf("cache: compute timeout is %v, must be positive", c.ComputeTimeout))
	}
	// Three renewals must fit in, each with its limit and time to spare.
	if c.LeaseTTL < minLeaseTTL {
		errs = append(errs, fmt.Errorf("cache: lease ttl is %v, must be at least %v", c.LeaseTTL, minLeaseTTL))
	}
	if c.TTL > 0 && c.TTL < c.LeaseTTL {
		errs = append(errs, fmt.Errorf("cache: ttl is %v, must be at least the lease ttl, %v, or waiters could miss the value", c.TTL, c.LeaseTTL))
	}
	return errors.Join(errs...)
}
