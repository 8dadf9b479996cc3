package config

import (
	"math"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	const form = "must be a duration such as 25ms, 2s, 1m30s or 24h"
	tests := []struct {
		in   string
		want Duration
		text string // what String makes of it
		err  string
	}{
		{in: "2s", want: Duration(2 * time.Second), text: "2s"},
		{in: "90s", want: Duration(90 * time.Second), text: "1m30s"},
		{in: "24h", want: Duration(24 * time.Hour), text: "24h"},
		{in: "90m", want: Duration(90 * time.Minute), text: "1h30m"},
		{in: "1h30s", want: Duration(time.Hour + 30*time.Second), text: "1h0m30s"},
		{in: "10m", want: Duration(10 * time.Minute), text: "10m"},
		{in: "1.5ms", want: Duration(1500 * time.Microsecond), text: "1.5ms"},
		{in: "0s", want: 0, text: "0s"},
		{in: "0", err: "a duration needs a unit: write 0s or 0ms"},
		{in: "2", err: "a duration needs a unit: write 2s or 2ms"},
		{in: "0.5", err: "a duration needs a unit: write 0.5s or 0.5ms"},
		{in: "-1s", err: "must not be negative"},
		{in: "2 s", err: form},
		{in: "1d", err: form},
		{in: "", err: form},
		{in: "9999999h", err: form},
	}
	for _, tt := range tests {
		got, err := ParseDuration(tt.in)
		if errText(err) != tt.err || got != tt.want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v, %q", tt.in, got, err, tt.want, tt.err)
		}
		if err == nil && got.String() != tt.text {
			t.Errorf("ParseDuration(%q).String() = %q, want %q", tt.in, got, tt.text)
		}
	}
}

func TestParseByteSize(t *testing.T) {
	const form = "must be a size such as 512KiB, 16MB or 8GiB, or a whole number of bytes"
	const large = "is too large: at most 8388607TiB"
	tests := []struct {
		in   string
		want ByteSize
		text string
		err  string
	}{
		{in: "0", want: 0, text: "0B"},
		{in: "512", want: 512, text: "512B"},
		{in: "512B", want: 512, text: "512B"},
		{in: "1KiB", want: 1024, text: "1KiB"},
		{in: "1024", want: 1024, text: "1KiB"},
		{in: "1kB", want: 1000, text: "1KB"},
		{in: "1KB", want: 1000, text: "1KB"},
		{in: "1MiB", want: 1048576, text: "1MiB"},
		{in: "16MB", want: 16000000, text: "16MB"},
		{in: "8GiB", want: 8589934592, text: "8GiB"},
		{in: "3GB", want: 3000000000, text: "3GB"},
		{in: "1TiB", want: 1099511627776, text: "1TiB"},
		{in: "2 TB", want: 2000000000000, text: "2TB"},
		{in: "9223372036854775807", want: math.MaxInt64, text: "9223372036854775807B"},
		{in: "9223372036854775808", err: large},
		{in: "8388608TiB", err: large},
		{in: "-1", err: form},
		{in: "1.5GiB", err: form},
		{in: "1Gib", err: form},
		{in: "1iB", err: form},
		{in: "MiB", err: form},
		{in: "", err: form},
		{in: "0x10", err: form},
	}
	for _, tt := range tests {
		got, err := ParseByteSize(tt.in)
		if errText(err) != tt.err || got != tt.want {
			t.Errorf("ParseByteSize(%q) = %d, %v; want %d, %q", tt.in, got, err, tt.want, tt.err)
		}
		if err != nil {
			continue
		}
		if got.String() != tt.text {
			t.Errorf("ParseByteSize(%q).String() = %q, want %q", tt.in, got, tt.text)
		}
		if again, err := ParseByteSize(got.String()); err != nil || again != got {
			t.Errorf("ParseByteSize(%q) = %d, %v; want %d back", got, again, err, got)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestNearest(t *testing.T) {
	known := []string{"max_in_flight", "max_queue", "mode", "probe"}
	tests := map[string]string{
		"max_in_fligth": "max_in_flight",
		"MAX_QUEUE":     "max_queue",
		"maxqueue":      "max_queue",
		"prob":          "probe",
		"mod":           "mode",
		"xyz":           "",
		"":              "",
		"model_name":    "",
	}
	for key, want := range tests {
		if got := nearest(key, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", key, got, want)
		}
	}
}
