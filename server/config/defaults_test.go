package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The defaults of sections that need no entry, in absolute values: a change
// here is a change for every user. Those of routes and probes are pinned with
// the minimal file.
func TestDefaults(t *testing.T) {
	want := &Config{
		GRPC: GRPC{
			Listen:          "127.0.0.1:50051",
			MaxTaskBytes:    1048576,
			MaxMessageBytes: 16777216,
			DeadlineMargin:  5_000_000,
			Reflection:      true,
			Health:          true,
			MaxInFlight:     4096,
			Connections: Connections{
				Max: 1024, MaxStreams: 1024, MaxIdle: 900_000_000_000, MaxAge: 1800_000_000_000,
				MinPing: 10_000_000_000, Handshake: 10_000_000_000,
			},
			Overrides: Overrides{TradeOff: true, Refresh: true, Bypass: true},
		},
		Admin:    Admin{Listen: "127.0.0.1:9464"},
		Cache:    Cache{TTL: 86400_000_000_000, Local: LocalCache{MaxEntries: 65536}},
		Log:      Log{Level: "info", Format: "json"},
		Reload:   Reload{Watch: true},
		Shutdown: Shutdown{DrainDelay: 5_000_000_000, Timeout: 20_000_000_000},
	}
	if diff := cmp.Diff(want, Default(), secrets); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	record := new(Record)
	record.setDefaults()
	if diff := cmp.Diff(&Record{MaxBytes: 134217728, MaxFiles: 5, Queue: 4096}, record, secrets); diff != "" {
		t.Errorf("defaults of record (-want +got):\n%s", diff)
	}
	redis := new(Redis)
	redis.setDefaults()
	if diff := cmp.Diff(&Redis{OpTimeout: 25_000_000}, redis, secrets); diff != "" {
		t.Errorf("defaults of cache.redis (-want +got):\n%s", diff)
	}
}
