package probe

import (
	"strings"
	"testing"
	"time"
)

func validConfig() Config {
	cfg := DefaultConfig()
	cfg.Model = "encoder"
	cfg.Endpoint = Endpoint{BaseURL: "http://127.0.0.1:8000/v1", HiddenStatesDir: "/dev/shm/pointsman"}
	return cfg
}

func TestDefaultConfig(t *testing.T) {
	cfg := DefaultConfig()
	if cfg.MaxInFlight != 32 || cfg.MaxQueue != 64 || cfg.QueueTimeout != 2*time.Second ||
		cfg.RequestTimeout != time.Minute || cfg.ArtifactTimeout != 10*time.Second || cfg.MaxArtifactBytes != 8589934592 || cfg.MaxOutstandingBytes != 0 ||
		cfg.ZeroVectors != ZeroRefuse || cfg.Breaker != (Breaker{5, 10 * time.Second}) ||
		cfg.Sweep != (Sweep{time.Minute, 5 * time.Minute, false}) {
		t.Errorf("defaults changed: %+v", cfg)
	}
	if err := validConfig().Validate(); err != nil {
		t.Errorf("defaults with what has none: %v", err)
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		want   string
		change func(*Config)
	}{
		{"model:", func(c *Config) { c.Model = "" }},
		{"base_url: must be set", func(c *Config) { c.Endpoint.BaseURL = "" }},
		{"base_url: is not a URL", func(c *Config) { c.Endpoint.BaseURL = "http://[::1" }},
		{"base_url: must be http", func(c *Config) { c.Endpoint.BaseURL = "ftp://host" }},
		{"base_url: must be http", func(c *Config) { c.Endpoint.BaseURL = "http:///v1" }},
		{"base_url: must not hold", func(c *Config) { c.Endpoint.BaseURL = "http://u:p@host/v1" }},
		{"base_url: must not hold", func(c *Config) { c.Endpoint.BaseURL = "http://host/v1?x" }},
		{"hidden_states_dir:", func(c *Config) { c.Endpoint.HiddenStatesDir = "" }},
		{"reported_dir:", func(c *Config) { c.Endpoint.ReportedDir = "shm" }},
		{"api key:", func(c *Config) { c.APIKey = "a\nb" }},
		{"chat_template_kwargs:", func(c *Config) { c.ChatTemplateKwargs = map[string]any{"x": func() {}} }},
		{"max_in_flight:", func(c *Config) { c.MaxInFlight = 0 }},
		{"max_queue:", func(c *Config) { c.MaxQueue = -1 }},
		{"queue_timeout:", func(c *Config) { c.QueueTimeout = 0 }},
		{"request_timeout:", func(c *Config) { c.RequestTimeout = 0 }},
		{"artifact_timeout:", func(c *Config) { c.ArtifactTimeout = -1 }},
		{"max_artifact_bytes:", func(c *Config) { c.MaxArtifactBytes = 0 }},
		{"max_outstanding_bytes:", func(c *Config) { c.MaxOutstandingBytes = -1 }},
		{"zero_vectors:", func(c *Config) { c.ZeroVectors = 7 }},
		{"breaker.failures:", func(c *Config) { c.Breaker.Failures = 0 }},
		{"breaker.open_for:", func(c *Config) { c.Breaker.OpenFor = 0 }},
		{"sweep.interval:", func(c *Config) { c.Sweep.Interval = 0 }},
		{"sweep.min_age:", func(c *Config) { c.Sweep.MinAge = 72 * time.Second }},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			cfg := validConfig()
			tt.change(&cfg)
			err := cfg.Validate()
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, tt.want)
			}
			if _, newErr := New(cfg); newErr == nil {
				t.Error("New accepts it")
			}
		})
	}
	if err := (Config{}).Validate(); err == nil || strings.Count(err.Error(), "\n") < 8 {
		t.Errorf("not everything is reported: %v", err)
	}
	for _, secret := range []string{"http://user:hunter2@host/v1", "http://user:hunter2@[::1"} {
		cfg := validConfig()
		cfg.Endpoint.BaseURL = secret
		if err := cfg.Validate(); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v, want one without the password", err)
		}
	}
}
