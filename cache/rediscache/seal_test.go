package rediscache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
)

func TestSealedValueOpensOnlyAsItWasSealed(t *testing.T) {
	s, err := newSealer(secret)
	if err != nil {
		t.Fatal(err)
	}
	other, err := newSealer(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	value := []byte("a value")
	sealed, err := s.seal(keyOf("a"), value)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.open(keyOf("a"), sealed); !bytes.Equal(got, value) {
		t.Errorf("opened %q, want %q", got, value)
	}
	if bytes.Contains(sealed, value) {
		t.Error("the sealed value shows the value")
	}
	if got := s.open(keyOf("b"), sealed); got != nil {
		t.Error("opens under another key")
	}
	if got := other.open(keyOf("a"), sealed); got != nil {
		t.Error("opens with another secret")
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if s.open(keyOf("a"), changed) != nil {
			t.Errorf("opens with byte %d changed", i)
		}
		if s.open(keyOf("a"), sealed[:i]) != nil {
			t.Errorf("opens when cut off after %d bytes", i)
		}
	}
	again, _ := s.seal(keyOf("a"), value)
	if bytes.Equal(again, sealed) {
		t.Error("the same value is sealed alike twice")
	}
}

// What somebody who reads and writes Redis learns and can do.
func TestWithASecretRedisShowsNothingAndSteersNothing(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	keyer, err := cache.NewKeyer(secret)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config("redis://" + server.Addr)
	cfg.Secret = secret
	c := connect(t, cfg)
	writer := ladder(t, c, nil)
	tasks := []string{"What is 2+2?", "Prove Fermat's last theorem."}
	key := func(task string) cache.Key { return keyer.Key(cache.KeyFields{Task: task}) }
	opts := cache.Options{Checkpoint: "sha256:cafe"}
	for _, task := range tasks {
		if _, err := writer.Get(t.Context(), key(task), opts, compute("scores of "+task)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both values are stored", func() bool { return len(names(t, client)) == 2 })

	var dump []string
	for _, name := range names(t, client) {
		dump = append(dump, name, client.Get(t.Context(), name).Val())
	}
	all := strings.Join(dump, "\n")
	for _, task := range tasks {
		plain := keyOf(task)
		for what, text := range map[string]string{
			"the task": task, "the value": "scores of", "the checkpoint": "cafe", "the guessable key": fmt.Sprintf("%x", plain[:]),
			"the raw guessable key": string(plain[:]),
		} {
			if strings.Contains(all, text) {
				t.Errorf("the dump shows %s", what)
			}
		}
	}

	// A reader without the secret of a namesake, a changed value and a copied one: each is a miss.
	reader := func() *cache.Ladder[string] { return ladder(t, c, nil) }
	miss := func(what, task string) {
		t.Helper()
		if r, err := reader().Get(t.Context(), key(task), cache.Options{Policy: cache.OnlyIfCached, Checkpoint: "sha256:cafe"}, nil); !errors.Is(err, cache.ErrNotCached) {
			t.Errorf("%s: got %q, %v; want a miss", what, r.Value, err)
		}
	}
	a, _ := c.keys(key(tasks[0]))
	b, _ := c.keys(key(tasks[1]))
	good := client.Get(t.Context(), a).Val()
	if r, err := reader().Get(t.Context(), key(tasks[0]), cache.Options{Policy: cache.OnlyIfCached, Checkpoint: "sha256:cafe"}, nil); err != nil || r.Origin != cache.Shared {
		t.Fatalf("the untouched value: %v", err)
	}
	client.Set(t.Context(), b, good, time.Minute)
	miss("copied to another key", tasks[1])
	client.Set(t.Context(), a, good[:len(good)-1]+"x", time.Minute)
	miss("changed", tasks[0])
	client.Set(t.Context(), a, good[:30], time.Minute)
	miss("cut off", tasks[0])
	cfg.Secret = bytes.Repeat([]byte{9}, 32)
	other := ladder(t, connect(t, cfg), nil)
	client.Set(t.Context(), a, good, time.Minute)
	if _, err := other.Get(t.Context(), key(tasks[0]), cache.Options{Policy: cache.OnlyIfCached, Checkpoint: "sha256:cafe"}, nil); !errors.Is(err, cache.ErrNotCached) {
		t.Errorf("with another secret: %v, want a miss", err)
	}
	if r, err := writer.Get(context.Background(), key(tasks[0]), opts, nil); err != nil || r.Origin != cache.Local {
		t.Errorf("the local cache: %v", err)
	}
}

func BenchmarkSeal(b *testing.B) {
	s, err := newSealer(secret)
	if err != nil {
		b.Fatal(err)
	}
	value, key := make([]byte, 512), keyOf("a")
	b.ReportAllocs()
	for b.Loop() {
		sealed, _ := s.seal(key, value)
		if s.open(key, sealed) == nil {
			b.Fatal("does not open")
		}
	}
}
