// Package rediscache is the shared layer of the cache ladder over Redis: one server, Sentinel or Cluster. Its main type is [Cache], a
// [cache.SharedLayer].
//
// It is made to be done without. Every exchange has a short limit and is tried once; after a few failures in a row a breaker opens,
// and until Redis answers again, which one goroutine finds out in the background, every exchange fails at once. Nothing here waits
// for Redis to be there, neither New nor the service's readiness.
//
// It stores two keys a value, in one hash slot: pointsman:<schema>:{<hex of the key>}:v holds the value, and …:l, while somebody
// computes it, the lease. Both always have an end. With a secret, values are sealed, and what was not sealed for that very key with
// that secret counts as not there.
package rediscache

import (
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/pointsman-dev/pointsman/cache"
)

const (
	// maxValue is the largest value read. Ours are about a kilobyte; what is larger by this much is not ours.
	maxValue = 1 << 20

	// longestLease is the longest life a lease can have left. What claims to live longer is not a lease, and waiting for its end would
	// be waiting for nothing.
	longestLease = time.Minute
)

//go:embed claim.lua
var claimSource string

//go:embed store.lua
var storeSource string

//go:embed renew.lua
var renewSource string

//go:embed release.lua
var releaseSource string

// Cache is a shared layer over Redis. It is safe for concurrent use.
type Cache struct {
	client   redis.UniversalClient
	pipeline *pipeline
	guard    *guard
	seal     *sealer // nil without a secret
	prefix   string

	claimScript, storeScript, renewScript, releaseScript *redis.Script
}

// New returns a Cache for the Redis of cfg. It fails only if the configuration is wrong; whether Redis is there shows in Status. The
// caller closes it, after the ladders that use it.
func New(cfg Config, opts ...Option) (*Cache, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	target, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	set := settings{schema: cache.SchemaVersion, observer: nopObserver{}}
	for _, o := range opts {
		o(&set)
	}
	// The client logs to the process's standard error by itself, with addresses, and a line for each failed connection. What it has to
	// say is in the errors.
	redis.SetLogger(&logging.VoidLogger{})
	c := &Cache{
		client:        redis.NewUniversalClient(options(cfg, target)),
		prefix:        "pointsman:" + strconv.Itoa(set.schema) + ":{",
		claimScript:   redis.NewScript(claimSource),
		storeScript:   redis.NewScript(storeSource),
		renewScript:   redis.NewScript(renewSource),
		releaseScript: redis.NewScript(releaseSource),
	}
	if c.pipeline, err = newPipeline(c.client); err != nil {
		return nil, errors.Join(err, c.client.Close())
	}
	if len(cfg.Secret) > 0 {
		if c.seal, err = newSealer(cfg.Secret); err != nil {
			return nil, errors.Join(err, c.client.Close())
		}
	}
	c.guard = newGuard(cfg, set.observer, c.probe, c.relearn)
	c.guard.start()
	return c, nil
}

func options(cfg Config, target target) *redis.UniversalOptions {
	o := &redis.UniversalOptions{
		Addrs:            target.addrs,
		DB:               target.db,
		MasterName:       target.master,
		IsClusterMode:    target.cluster,
		Username:         target.username,
		Password:         target.password,
		SentinelUsername: cfg.SentinelUsername,
		SentinelPassword: cfg.SentinelPassword,
		Dialer:           dialer(cfg.TLS, target.tls),
		// One connection is the pipeline's, and the rest for what no answer waits for.
		PoolSize:         max(cfg.PoolSize-1, 1),
		PipelinePoolSize: 1,

		// A second try is the breaker's business, and a caller's time is not to be spent on it.
		MaxRetries:    -1,
		DialerRetries: 1,
		DialTimeout:   dialTimeout,
		PoolTimeout:   cfg.OpTimeout,

		// The client would otherwise wait for its own time-outs, whatever the context says.
		ContextTimeoutEnabled: true,
		ReadTimeout:           backgroundTimeout,
		WriteTimeout:          backgroundTimeout,

		// Neither is used, and both cost an exchange for each new connection.
		Protocol:                 2,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if cfg.Username != "" {
		o.Username = cfg.Username
	}
	if cfg.Password != "" {
		o.Password = cfg.Password
	}
	return o
}

// Close ends what is under way, soon, and closes the connections.
func (c *Cache) Close() error {
	c.guard.close()
	if err := c.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("rediscache: close: %w", classify(err))
	}
	return nil
}

// Read implements [cache.SharedLayer].
func (c *Cache) Read(ctx context.Context, key cache.Key) (cache.Stored, error) {
	valueKey, _ := c.keys(key)
	return guarded(ctx, c.guard, "read", c.guard.opTimeout, here, func(ctx context.Context) (cache.Stored, error) {
		raw, err := c.pipeline.read(ctx, valueKey)
		switch {
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
			return cache.Stored{Raw: []byte{}}, nil
		case err != nil || len(raw) == 0:
			return cache.Stored{}, err
		case len(raw) > maxValue:
			return cache.Stored{Raw: raw}, nil
		}
		return c.open(key, raw), nil
	})
}

// Claim implements [cache.SharedLayer].
func (c *Cache) Claim(ctx context.Context, lease cache.Lease, unfit []byte) (cache.Claim, error) {
	valueKey, leaseKey := c.keys(lease.Key)
	return guarded(ctx, c.guard, "claim", c.guard.opTimeout, here, func(ctx context.Context) (cache.Claim, error) {
		reply, err := c.pipeline.run(ctx, claimSource, c.claimScript.Hash(), valueKey, leaseKey, claimArgs(lease, unfit))
		if err != nil {
			return cache.Claim{}, err
		}
		switch reply := reply.(type) {
		case string:
			return cache.Claim{Stored: c.open(lease.Key, []byte(reply))}, nil
		case int64:
			return cache.Claim{Won: reply == 1}, nil
		}
		return cache.Claim{}, errUnexpectedReply
	})
}

// Renew implements [cache.SharedLayer].
func (c *Cache) Renew(ctx context.Context, lease cache.Lease) (bool, error) {
	_, leaseKey := c.keys(lease.Key)
	return guarded(ctx, c.guard, "renew", backgroundTimeout, apart, func(ctx context.Context) (bool, error) {
		n, err := c.renewScript.Run(ctx, c.client, []string{leaseKey}, lease.Token[:], lease.TTL.Milliseconds()).Int64()
		return n == 1, err
	})
}

// Release implements [cache.SharedLayer].
func (c *Cache) Release(ctx context.Context, lease cache.Lease) error {
	_, leaseKey := c.keys(lease.Key)
	_, err := guarded(ctx, c.guard, "release", backgroundTimeout, apart, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.releaseScript.Run(ctx, c.client, []string{leaseKey}, lease.Token[:]).Err()
	})
	return err
}

// Store implements [cache.SharedLayer].
func (c *Cache) Store(ctx context.Context, lease cache.Lease, value []byte, ttl time.Duration) error {
	if c.seal != nil {
		var err error
		if value, err = c.seal.seal(lease.Key, value); err != nil {
			return fmt.Errorf("rediscache: seal: %w", err)
		}
	}
	if len(value) > maxValue {
		return ErrTooLarge
	}
	token := lease.Token[:]
	if lease.Token == (cache.Token{}) {
		token = nil
	}
	valueKey, leaseKey := c.keys(lease.Key)
	_, err := guarded(ctx, c.guard, "store", backgroundTimeout, apart, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.storeScript.Run(ctx, c.client, []string{valueKey, leaseKey}, value, max(ttl.Milliseconds(), 1), token).Err()
	})
	return err
}

// claimArgs are the arguments of claim.lua.
func claimArgs(lease cache.Lease, unfit []byte) []any {
	return []any{lease.Token[:], lease.TTL.Milliseconds(), unfit, maxValue, longestLease.Milliseconds()}
}

// open says what raw bytes are worth under key.
func (c *Cache) open(key cache.Key, raw []byte) cache.Stored {
	if c.seal == nil {
		return cache.Stored{Raw: raw, Value: raw}
	}
	return cache.Stored{Raw: raw, Value: c.seal.open(key, raw)}
}

// keys returns the names of the value and of the lease. The braces make Cluster keep the two in one slot.
func (c *Cache) keys(key cache.Key) (value, lease string) {
	name := c.prefix + hex.EncodeToString(key[:])
	return name + "}:v", name + "}:l"
}

// probe does once, on a key nobody uses, what a computed value needs: a claim and its release. Passing means that Redis is there, lets
// us in, is not loading and lets us write, and answers in time.
func (c *Cache) probe(ctx context.Context) error {
	lease := cache.Lease{TTL: time.Second}
	fillRandom(lease.Key[:])
	fillRandom(lease.Token[:])
	valueKey, leaseKey := c.keys(lease.Key)
	args := claimArgs(lease, nil)
	apart := func(ctx context.Context) error {
		return c.claimScript.Run(ctx, c.client, []string{valueKey, leaseKey}, args...).Err()
	}
	piped := func(ctx context.Context) error {
		_, err := c.pipeline.run(ctx, claimSource, c.claimScript.Hash(), valueKey, leaseKey, args)
		return err
	}
	// The first exchange of either kind may have to connect; only the last, on the pipeline's connection, must keep to the limit of
	// those that answers wait for. What is wrong with a connection is told best by the one that is not shared.
	for _, try := range []struct {
		limit time.Duration
		claim func(ctx context.Context) error
	}{{connectTimeout, apart}, {connectTimeout, piped}, {c.guard.opTimeout, piped}} {
		limited, cancel := context.WithTimeout(ctx, try.limit)
		err := try.claim(limited)
		cancel()
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, backgroundTimeout)
	defer cancel()
	return c.releaseScript.Run(ctx, c.client, []string{leaseKey}, lease.Token[:]).Err()
}

// relearn asks for the cluster's layout again, in the background and at most a few times a second. The client does so by itself only
// when a node says that it has changed, which a dead node cannot.
func (c *Cache) relearn() {
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

// Check tries once whether Redis can be used, for `pointsman check`. Its error is one of ErrConnect, ErrTLS, ErrAuth, ErrTimeout and
// ErrReply, wrapped.
func (c *Cache) Check(ctx context.Context) error {
	if err := c.probe(ctx); err != nil {
		return classify(err)
	}
	return nil
}

// Status says whether Redis is in use, for /readyz.
func (c *Cache) Status() Status { return c.guard.status() }
