package rediscache

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestURLs(t *testing.T) {
	for text, want := range map[string]target{
		"redis://localhost":                        {addrs: []string{"localhost:6379"}},
		"redis://127.0.0.1:6380/2":                 {addrs: []string{"127.0.0.1:6380"}, db: 2},
		"rediss://cache.example/":                  {addrs: []string{"cache.example:6379"}, tls: true},
		"redis://user:p%40ss%2F%3Aw@h:1/0":         {addrs: []string{"h:1"}, username: "user", password: "p@ss/:w"},
		"redis://:pw@h":                            {addrs: []string{"h:6379"}, password: "pw"},
		"redis://[::1]":                            {addrs: []string{"[::1]:6379"}},
		"redis://[::1]:7/1":                        {addrs: []string{"[::1]:7"}, db: 1},
		"redis+sentinel://a,b:5/main":              {addrs: []string{"a:26379", "b:5"}, master: "main"},
		"rediss+sentinel://u:p@a,[::1]:3,c/main/4": {addrs: []string{"a:26379", "[::1]:3", "c:26379"}, master: "main", db: 4, username: "u", password: "p", tls: true},
		"redis+cluster://a:1,b,c:3":                {addrs: []string{"a:1", "b:6379", "c:3"}, cluster: true},
		"rediss+cluster://one/0":                   {addrs: []string{"one:6379"}, cluster: true, tls: true},
	} {
		got, err := parseURL(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if !slices.Equal(got.addrs, want.addrs) {
			t.Errorf("%s: addresses %v, want %v", text, got.addrs, want.addrs)
		}
		got.addrs, want.addrs = nil, nil
		if got.db != want.db || got.username != want.username || got.password != want.password || got.master != want.master ||
			got.cluster != want.cluster || got.tls != want.tls {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestMalformedURLsAreRefusedWithoutQuotingThem(t *testing.T) {
	for text, why := range map[string]string{
		"":                                   "no scheme",
		"localhost:6379":                     "no scheme",
		"http://user:hunter2@h":              "unknown scheme",
		"redis+other://h":                    "unknown scheme",
		"redis+cluster+sentinel://h/m":       "unknown scheme",
		"redis://:hunter2@":                  "no host",
		"redis://:hunter2@h:99999":           "port",
		"redis://:hunter2@h:x":               "port",
		"redis://:hunter2@a:1:2":             "malformed",
		"redis://:hunter2@a,b":               "several hosts",
		"redis://:hunter2@h/db":              "database",
		"redis://:hunter2@h/-1":              "database",
		"redis://:hunter2@h/0?x=1":           "query",
		"redis://:hunter2%zz@h":              "percent-encoded",
		"redis+sentinel://:hunter2@h":        "name of the master",
		"redis+sentinel://:hunter2@h/main/x": "database",
		"redis+cluster://:hunter2@h/1":       "only database 0",
		"redis+cluster://:hunter2@a,,b":      "no host",
	} {
		_, err := parseURL(text)
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: error %v, want one about %q", text, err, why)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error quotes the password: %v", err)
		}
	}
}

func FuzzURL(f *testing.F) {
	f.Add("redis+sentinel://u:p@a,[::1]:3/main/4")
	f.Add("rediss://h")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseURL(text)
		if err == nil && len(got.addrs) == 0 {
			t.Errorf("%q gives no address and no error", text)
		}
	})
}

func TestConfigReportsEverything(t *testing.T) {
	err := Config{URL: "x", TLS: TLS{CertFile: "c"}}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"url", "key file", "op timeout", "pool size", "failures", "open for"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not name %s: %v", part, err)
		}
	}
}

func TestDefaultsArePinned(t *testing.T) {
	got := DefaultConfig()
	if got.OpTimeout != 25*time.Millisecond || got.PoolSize != 16 || got.Failures != 5 || got.OpenFor != time.Second {
		t.Errorf("defaults are %+v", got)
	}
}
