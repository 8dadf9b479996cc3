package cache

import (
	"context"
	"encoding/binary"
	"time"
)

// SharedLayer is what processes have in common: bytes under a key, and at most one lease a key, which says that somebody is
// computing the value. Every method is one short exchange under a limit of its own, and may fail at any time: the ladder then does
// without. An implementation must pass cachetest.RunShared.
type SharedLayer interface {
	// Read returns what is stored under key. Bytes that are there and not ours are a Stored with a nil Value.
	Read(ctx context.Context, key Key) (Stored, error)

	// Claim returns what is stored under the lease's key, unless that is exactly unfit, bytes that the caller has already rejected.
	// If there is nothing else it takes the lease, unless somebody holds it. Looking and taking are one step.
	Claim(ctx context.Context, lease Lease, unfit []byte) (Claim, error)

	// Renew prolongs the lease by its TTL from now, and says whether it was still held. One that has been lost is never taken again.
	Renew(ctx context.Context, lease Lease) (held bool, err error)

	// Release ends the lease if it is still held. Releasing one that is not is no error.
	Release(ctx context.Context, lease Lease) error

	// Store stores value under the lease's key for ttl, whoever holds the lease, and ends the lease if it is held. The two are one
	// step. A lease with the zero token stands for none.
	Store(ctx context.Context, lease Lease, value []byte, ttl time.Duration) error
}

// Stored is what a shared layer holds under a key. The zero value is nothing.
type Stored struct {
	Raw   []byte // as it is stored; to be handed back as unfit
	Value []byte // what Raw says, or nil if it says nothing to us: foreign, damaged or forged
}

// Claim is the answer to a claim: something stored, or the lease, or neither because another holds it.
type Claim struct {
	Stored
	Won bool
}

// Lease is the right to compute the value of a key while others wait. Whoever knows the token holds it.
type Lease struct {
	Key   Key
	Token Token
	TTL   time.Duration
}

// Token tells one holder of a lease from all others. It is random and used once.
type Token [16]byte

// Header stands before a stored value and is checked when it is read: nothing is used that was stored under another key, by another
// checkpoint or in another schema.
type Header struct {
	Schema     uint32
	Key        Key
	Checkpoint string // Options.Checkpoint
}

// Codec turns an entry into bytes and back. Unmarshal fails on anything that Marshal did not make of the same header; its errors are
// counted and not shown. Both are safe for concurrent use, and neither keeps data.
type Codec[V any] interface {
	Marshal(header Header, entry Entry[V]) ([]byte, error)
	Unmarshal(header Header, data []byte) (Entry[V], error)
}

// sharing is the rung of the shared cache. lease.go has what it does when the value is not there.
type sharing[V any] struct {
	layer      SharedLayer
	codec      Codec[V]
	cfg        Config
	now        func() time.Time
	observer   Observer
	background *background
	leases     *leases
	next       rung[V]
}

func (r *sharing[V]) get(ctx context.Context, req request[V]) (Result[V], error) {
	switch {
	case req.opts.Policy == Bypass:
		return r.next.get(ctx, req)
	case req.opts.Policy == Refresh:
		// No lease: whoever waits for another's lease finds this value as soon as it is stored, and nobody waits for this one.
		result, err := r.next.get(ctx, req)
		if err == nil {
			r.store(ctx, Lease{Key: req.key}, req, result.Entry)
		}
		return result, err
	case !req.mayCompute():
		return r.read(ctx, req)
	}
	return r.claim(ctx, req)
}

// read looks once and takes no lease.
func (r *sharing[V]) read(ctx context.Context, req request[V]) (Result[V], error) {
	stored, err := r.layer.Read(ctx, req.key)
	if err != nil {
		r.observer.Lookup(ctx, LayerShared, Failed)
		return r.next.get(ctx, req)
	}
	entry, outcome := r.open(stored, req)
	r.observer.Lookup(ctx, LayerShared, outcome)
	if outcome != Hit {
		return r.next.get(ctx, req)
	}
	return Result[V]{Entry: entry, Origin: Shared}, nil
}

// open says whether what is stored will do for the call.
func (r *sharing[V]) open(stored Stored, req request[V]) (Entry[V], Outcome) {
	if stored.Raw == nil {
		return Entry[V]{}, Miss
	}
	if stored.Value == nil {
		return Entry[V]{}, Unfit
	}
	entry, err := r.codec.Unmarshal(req.header(), stored.Value)
	if err != nil {
		return Entry[V]{}, Unfit
	}
	now := r.now()
	if entry.Computed.After(now) {
		entry.Computed = now // a process whose clock is ahead must not lend a value a longer life
	}
	if entry.Computed.Before(req.oldest) || now.Sub(entry.Computed) >= r.cfg.TTL {
		return Entry[V]{}, Old
	}
	return entry, Hit
}

// store has the entry stored and the lease ended, off the path of the answer. It returns false if that could not even be queued.
func (r *sharing[V]) store(ctx context.Context, lease Lease, req request[V], entry Entry[V]) bool {
	ctx = context.WithoutCancel(ctx)
	queued := r.background.do(func(limit context.Context) {
		value, err := r.codec.Marshal(req.header(), entry)
		if err == nil {
			err = r.layer.Store(limit, lease, value, sharedTTL(r.cfg.TTL, req.key))
		} else if lease.Token != (Token{}) {
			_ = r.layer.Release(limit, lease)
		}
		if err != nil {
			r.observer.Count(ctx, StoreFailed)
		}
	})
	if !queued {
		r.observer.Count(ctx, StoreDropped)
	}
	return queued
}

// sharedTTL shortens ttl by up to a tenth, so that values stored together do not all expire together. The key decides by how much: it
// is as good as random, and every process gives the same value the same life.
func sharedTTL(ttl time.Duration, key Key) time.Duration {
	part := float64(binary.BigEndian.Uint16(key[:])) / (1 << 16) // of a tenth, from 0 to 1
	return ttl - time.Duration(part*float64(ttl/10))
}

func (r request[V]) header() Header {
	return Header{Schema: SchemaVersion, Key: r.key, Checkpoint: r.opts.Checkpoint}
}
