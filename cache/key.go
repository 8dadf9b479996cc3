package cache

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"sync"
)

// SchemaVersion is the version of the key's encoding and of what a stored value means. Raise it when either changes: old and new
// processes then use different keys and never read each other's values.
const SchemaVersion = 1

// minSecret is the least length of a secret in bytes. Below 128 bits a secret could be found by trying, and then it hides nothing.
const minSecret = 16

// keyPurpose separates the key that names values from every other key derived from the same secret (RFC 5869, "info").
const keyPurpose = "pointsman cache key v1"

// ErrWeakSecret is returned for a secret too short to protect anything.
var ErrWeakSecret = errors.New("cache: secret is shorter than 16 bytes")

// Key names one value. Without a secret it is a SHA-256, so whoever sees it can confirm a guessed task; with one it is an
// HMAC-SHA256 and tells nothing. Either way it belongs in no log, label or error.
type Key [sha256.Size]byte

// KeyFields is everything a value depends on. What only weighs a value afterwards (costs, targets, trade-off, the route's name)
// must stay out, or callers that could share a value would not.
type KeyFields struct {
	Namespace        string // values are shared only within it
	Encoder          string // the probe's encoder
	Revision         string // the probe's revision: weights, quantisation, layers
	ChatTemplate     []byte // chat-template arguments as canonical JSON; nil and empty are the same
	CheckpointDigest string
	Task             string
}

// Keyer makes keys. It is safe for concurrent use.
type Keyer struct {
	states sync.Pool // of *keyState: hashing a key allocates nothing
}

type keyState struct {
	hash  hash.Hash
	chunk [4096]byte // a task passes through here piece by piece, so it is never copied whole
}

// NewKeyer returns a Keyer. With a nil or empty secret keys are plain SHA-256; else HMAC-SHA256 under a key derived from the secret.
func NewKeyer(secret []byte) (*Keyer, error) {
	newHash := sha256.New
	if len(secret) > 0 {
		if len(secret) < minSecret {
			return nil, ErrWeakSecret
		}
		key, err := hkdf.Key(sha256.New, secret, nil, keyPurpose, sha256.Size)
		if err != nil {
			return nil, fmt.Errorf("cache: derive the key that names values: %w", err)
		}
		newHash = func() hash.Hash { return hmac.New(sha256.New, key) }
	}
	k := &Keyer{}
	k.states.New = func() any { return &keyState{hash: newHash()} }
	return k, nil
}

// Key returns the key of fields. The encoding is injective: every field stands in a fixed place behind its number, its type and its
// length, so no two different KeyFields are encoded alike, whatever bytes they hold.
func (k *Keyer) Key(fields KeyFields) Key {
	s, _ := k.states.Get().(*keyState) // nothing else is ever in there
	defer k.states.Put(s)
	s.hash.Reset()

	s.version(1, SchemaVersion)
	s.text(2, fields.Namespace)
	s.text(3, fields.Encoder)
	s.text(4, fields.Revision)
	s.bytes(5, fields.ChatTemplate)
	s.text(6, fields.CheckpointDigest)
	s.text(7, fields.Task)

	var key Key
	copy(key[:], s.hash.Sum(s.chunk[:0]))
	return key
}

// The types of a field. They are part of the encoding: do not change them without SchemaVersion.
const (
	typeVersion = 'u'
	typeText    = 's'
	typeBytes   = 'b'
)

// header writes what stands before a field: its number, its type, its length in bytes.
func (s *keyState) header(number, kind byte, length int) {
	h := append(s.chunk[:0], number, kind)
	s.hash.Write(binary.BigEndian.AppendUint64(h, uint64(length)))
}

func (s *keyState) version(number byte, v uint32) {
	s.header(number, typeVersion, 4)
	s.hash.Write(binary.BigEndian.AppendUint32(s.chunk[:0], v))
}

func (s *keyState) text(number byte, text string) {
	s.header(number, typeText, len(text))
	for len(text) > 0 {
		n := copy(s.chunk[:], text)
		s.hash.Write(s.chunk[:n])
		text = text[n:]
	}
}

func (s *keyState) bytes(number byte, b []byte) {
	s.header(number, typeBytes, len(b))
	s.hash.Write(b)
}
