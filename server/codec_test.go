package server

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pointsman-dev/pointsman/cache"
	cachev1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/cache/v1"
	"github.com/pointsman-dev/pointsman/scorer"
)

func storedExample(t testing.TB) (cache.Header, cache.Entry[Scores], []byte) {
	t.Helper()
	header := cache.Header{Schema: cache.SchemaVersion, Key: cache.Key{1, 2, 3}, Checkpoint: "sha256:abc"}
	entry := cache.Entry[Scores]{
		Computed: time.Unix(1_800_000_000, 123_000_000).UTC(),
		Value: Scores{
			Probabilities: scorer.Probabilities{Members: 2, Heads: 3, Values: []float32{0, 0.25, 1, 0.5, 0.125, 0.75}},
			Tokens:        42, Digest: header.Checkpoint,
		},
	}
	data, err := scoresCodec{}.Marshal(header, entry)
	if err != nil {
		t.Fatal(err)
	}
	return header, entry, data
}

func TestStoredScoresComeBackAsTheyWere(t *testing.T) {
	header, want, data := storedExample(t)
	got, err := scoresCodec{}.Unmarshal(header, data)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestStoredScoresThatDoNotFitAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*cache.Header, *cachev1.StoredScores){
		"another schema":             func(h *cache.Header, _ *cachev1.StoredScores) { h.Schema++ },
		"another key":                func(h *cache.Header, _ *cachev1.StoredScores) { h.Key[31]++ },
		"another checkpoint":         func(h *cache.Header, _ *cachev1.StoredScores) { h.Checkpoint += "d" },
		"a short key":                func(_ *cache.Header, s *cachev1.StoredScores) { s.KeyDigest = s.GetKeyDigest()[:31] },
		"negative tokens":            func(_ *cache.Header, s *cachev1.StoredScores) { s.Tokens = -1 },
		"no time":                    func(_ *cache.Header, s *cachev1.StoredScores) { s.ComputeTime = nil },
		"an invalid time":            func(_ *cache.Header, s *cachev1.StoredScores) { s.ComputeTime.Nanos = -1 },
		"too few probabilities":      func(_ *cache.Header, s *cachev1.StoredScores) { s.Probabilities = s.GetProbabilities()[1:] },
		"members and heads overflow": func(_ *cache.Header, s *cachev1.StoredScores) { s.Members, s.Heads = 1<<30, 1<<30 },
		"negative sizes":             func(_ *cache.Header, s *cachev1.StoredScores) { s.Members, s.Heads = -2, -3 },
		"no member":                  func(_ *cache.Header, s *cachev1.StoredScores) { s.Members, s.Probabilities = 0, nil },
		"no probability":             func(_ *cache.Header, s *cachev1.StoredScores) { s.Probabilities[3] = 1.5 },
	} {
		t.Run(name, func(t *testing.T) {
			header, _, data := storedExample(t)
			var stored cachev1.StoredScores
			if err := proto.Unmarshal(data, &stored); err != nil {
				t.Fatal(err)
			}
			spoil(&header, &stored)
			spoilt, err := proto.Marshal(&stored)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := (scoresCodec{}).Unmarshal(header, spoilt); err == nil {
				t.Errorf("accepted: %+v", got)
			}
		})
	}
}

func FuzzStoredScores(f *testing.F) {
	header, _, data := storedExample(f)
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		entry, err := scoresCodec{}.Unmarshal(header, data)
		if err == nil && entry.Value.Probabilities.Validate() != nil {
			t.Errorf("accepted what cannot be scored: %+v", entry)
		}
	})
}
