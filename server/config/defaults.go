package config

import "time"

// defaultTolerance is the field's usual starting point: give up at most a fifth
// of the probability of a right answer for a cheaper model.
const defaultTolerance = 0.2

// messageSlack is what a request holds besides its task: route, target names,
// namespace and framing. 64 KiB is far above any sane sum of them.
const messageSlack ByteSize = 64 << 10

// Default returns the configuration of an empty file: everything but routes and
// probes, which have no default.
func Default() *Config {
	c := new(Config)
	c.setDefaults()
	return c
}

func (c *Config) setDefaults() {
	*c = Config{
		GRPC: GRPC{
			// Loopback, since plaintext without authentication is the default too.
			Listen:       "127.0.0.1:50051",
			MaxTaskBytes: 1 << 20,
			// Conversations carry far more than the task: tool results, earlier turns.
			// gRPC's own 4 MiB is a frequent complaint of gateways.
			MaxMessageBytes: 16 << 20,
			DeadlineMargin:  Duration(5 * time.Millisecond),
			Reflection:      true,
			Health:          true,
			// A decision under way costs some 20 KiB beside its message.
			MaxInFlight: 4096,
			Connections: Connections{
				// Gateways hold a few connections each. A thousand idle ones cost some 50 MB.
				Max:        1024,
				MaxStreams: 1024, // above any sane gateway's, below what would let one connection take all memory
				MaxIdle:    Duration(15 * time.Minute),
				MaxAge:     Duration(30 * time.Minute),
				MinPing:    Duration(10 * time.Second), // the most often that gRPC libraries advise
				Handshake:  Duration(10 * time.Second),
			},
			Overrides: Overrides{TradeOff: true, Refresh: true, Bypass: true},
		},
		Admin: Admin{Listen: "127.0.0.1:9464"},
		Cache: Cache{
			TTL:   Duration(24 * time.Hour),
			Local: LocalCache{MaxEntries: 65536},
		},
		Log:    Log{Level: LogLevelInfo, Format: LogFormatJSON},
		Reload: Reload{Watch: true},
		// Together below the 30 s that Kubernetes waits before it kills.
		Shutdown: Shutdown{
			DrainDelay: Duration(5 * time.Second),
			Timeout:    Duration(20 * time.Second),
		},
	}
}

func (r *Route) setDefaults() {
	*r = Route{
		Mode:          ModeServe,
		TaskFrom:      TaskFromFirstUser,
		Policy:        Policy{Tolerance: new(defaultTolerance)},
		DecideTimeout: Duration(2 * time.Second),
	}
}

// setDefaults clears the policy that a route has by default: a policy section
// that is there must say itself what it wants.
func (p *Policy) setDefaults() { *p = Policy{} }

func (p *Probe) setDefaults() {
	*p = Probe{
		Kind:         ProbeKindVLLM,
		MaxInFlight:  32,
		MaxQueue:     64,
		QueueTimeout: Duration(2 * time.Second),
		// The last resort only: cancelling a request that vLLM has queued can cost
		// older releases their engine.
		RequestTimeout:  Duration(60 * time.Second),
		ArtifactTimeout: Duration(10 * time.Second),
		// 32k tokens of a 36 x 4096 model in BF16 are 9.7 GB; 8 GiB leaves room for
		// 29k tokens and refuses what can only be a mistake.
		MaxArtifactBytes: 8 << 30,
		MaxPromptBytes:   1 << 20, // no less than grpc.max_task_bytes allows by default
		HealthInterval:   Duration(5 * time.Second),
		ZeroVectors:      ZeroVectorsRefuse,
		Breaker:          Breaker{Failures: 5, OpenFor: Duration(10 * time.Second)},
		Sweep:            Sweep{Interval: Duration(time.Minute), MinAge: Duration(5 * time.Minute)},
	}
}

func (r *Record) setDefaults() {
	*r = Record{
		// About 200,000 decisions of two targets a file, a million in all.
		MaxBytes: 128 << 20,
		MaxFiles: 5,
		// A second's worth at thousands of decisions a second; some megabytes.
		Queue: 4096,
	}
}

func (r *Redis) setDefaults() {
	// A computed decision costs tens of milliseconds at best; a cache slower than
	// this does not pay.
	*r = Redis{OpTimeout: Duration(25 * time.Millisecond)}
}
