package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time, written with its unit: 25ms, 2s, 1m30s, 24h.
type Duration time.Duration

// String returns the shortest form that ParseDuration reads back: 24h, not
// 24h0m0s.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText writes d as String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// ParseDuration reads a length of time. A number without a unit is refused, zero
// included: seconds and milliseconds are too easily taken for each other.
func ParseDuration(s string) (Duration, error) {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("a duration needs a unit: write %ss or %sms", s, s)
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("must be a duration such as 25ms, 2s, 1m30s or 24h")
	}
	if d < 0 {
		return 0, errors.New("must not be negative")
	}
	return Duration(d), nil
}

// ByteSize is a number of bytes, written plainly or with a unit: 1MiB (2^20),
// 16MB (10^6 each), 512.
type ByteSize int64

// byteUnits are the units, the largest first, so that String finds the shortest
// exact form.
func byteUnits() []byteUnit {
	return []byteUnit{
		{"TiB", 1 << 40},
		{"TB", 1e12},
		{"GiB", 1 << 30},
		{"GB", 1e9},
		{"MiB", 1 << 20},
		{"MB", 1e6},
		{"KiB", 1 << 10},
		{"KB", 1e3},
		{"kB", 1e3},
		{"B", 1},
	}
}

type byteUnit struct {
	name  string
	bytes int64
}

// String returns the size in the largest unit that divides it.
func (b ByteSize) String() string {
	if b != 0 {
		for _, u := range byteUnits() {
			if int64(b)%u.bytes == 0 {
				return strconv.FormatInt(int64(b)/u.bytes, 10) + u.name
			}
		}
	}
	return "0B"
}

// MarshalText writes b as String does.
func (b ByteSize) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// ParseByteSize reads a size: digits, and a unit if any.
func ParseByteSize(s string) (ByteSize, error) {
	digits := strings.TrimRight(s, "KMGTkiB")
	unit := int64(1)
	if name := s[len(digits):]; name != "" {
		unit = 0
		for _, u := range byteUnits() {
			if u.name == name {
				unit = u.bytes
			}
		}
	}
	n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
	if errors.Is(err, strconv.ErrRange) || (err == nil && unit > 0 && n > uint64(math.MaxInt64/unit)) {
		return 0, errors.New("is too large: at most 8388607TiB")
	}
	if err != nil || unit == 0 {
		return 0, errors.New("must be a size such as 512KiB, 16MB or 8GiB, or a whole number of bytes")
	}
	return ByteSize(int64(n) * unit), nil
}
