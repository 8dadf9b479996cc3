package rediscache

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/pointsman-dev/pointsman/cache"
)

// valuePurpose separates the key that seals values from every other key derived from the same secret (RFC 5869, "info").
const valuePurpose = "pointsman cache value v1"

// sealer encrypts and authenticates values (AES-256-GCM, random nonces). Each value is sealed under a key of its own, the HMAC of its
// cache key, so the number of nonces that may be drawn at random is never a concern; and the cache key is authenticated too, so a
// value copied to another key does not open.
type sealer struct{ key []byte }

func newSealer(secret []byte) (*sealer, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, valuePurpose, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("rediscache: derive the key that seals values: %w", err)
	}
	return &sealer{key}, nil
}

func (s *sealer) aead(key cache.Key) (cipher.AEAD, error) {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(key[:])
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal returns nonce and ciphertext.
func (s *sealer) seal(key cache.Key, value []byte) ([]byte, error) {
	aead, err := s.aead(key)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, value, key[:]), nil //nolint:gosec // the nonce is random and made by Seal
}

// open returns the value, or nil if raw was not sealed for key with our secret.
func (s *sealer) open(key cache.Key, raw []byte) []byte {
	aead, err := s.aead(key)
	if err != nil {
		return nil
	}
	value, err := aead.Open(nil, nil, raw, key[:])
	if err != nil {
		return nil
	}
	return value
}

func fillRandom(b []byte) { _, _ = rand.Read(b) } // never fails
