package config

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted stands wherever a secret would otherwise be printed.
const redacted = "[redacted]"

// Secret is a value that no formatting, encoding or logging shows. Only Reveal
// does, so that every use can be found by that name.
type Secret struct{ value string }

// NewSecret returns a Secret that holds value.
func NewSecret(value string) Secret { return Secret{value: value} }

// Reveal returns the value itself.
func (s Secret) Reveal() string { return s.value }

// IsSet reports whether there is a value.
func (s Secret) IsSet() bool { return s.value != "" }

// Format prints "[redacted]" for every verb; without it, %d would print the
// fields.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// String returns "[redacted]".
func (s Secret) String() string { return redacted }

// GoString returns "[redacted]".
func (s Secret) GoString() string { return redacted }

// MarshalText returns "[redacted]"; encoding/json and YAML encoders use it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON returns "[redacted]" as a JSON string.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// LogValue returns "[redacted]".
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
