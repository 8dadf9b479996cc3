package server

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pointsman-dev/pointsman/cache"
	cachev1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/cache/v1"
	"github.com/pointsman-dev/pointsman/scorer"
)

// scoresCodec turns scores into what is kept in a shared cache, and back.
type scoresCodec struct{}

// Marshal implements [cache.Codec].
func (scoresCodec) Marshal(header cache.Header, entry cache.Entry[Scores]) ([]byte, error) {
	p := entry.Value.Probabilities
	return proto.Marshal(&cachev1.StoredScores{
		SchemaVersion:    header.Schema,
		KeyDigest:        header.Key[:],
		CheckpointDigest: header.Checkpoint,
		ComputeTime:      timestamppb.New(entry.Computed),
		Tokens:           int32(entry.Value.Tokens), // a prompt has fewer
		Members:          int32(p.Members),          // so has a checkpoint in memory
		Heads:            int32(p.Heads),
		Probabilities:    p.Values,
	})
}

// Unmarshal implements [cache.Codec]. It refuses what was stored under another
// header, and probabilities that nothing could have scored.
func (scoresCodec) Unmarshal(header cache.Header, data []byte) (cache.Entry[Scores], error) {
	var entry cache.Entry[Scores]
	var stored cachev1.StoredScores
	if err := proto.Unmarshal(data, &stored); err != nil {
		return entry, errors.New("not stored scores") // the library's text may quote what it read
	}
	switch {
	case stored.GetSchemaVersion() != header.Schema:
		return entry, fmt.Errorf("of schema version %d, not %d", stored.GetSchemaVersion(), header.Schema)
	case !bytes.Equal(stored.GetKeyDigest(), header.Key[:]):
		return entry, errors.New("stored under another key")
	case stored.GetCheckpointDigest() != header.Checkpoint:
		return entry, errors.New("of another checkpoint")
	case stored.GetTokens() < 0:
		return entry, errors.New("of fewer than no tokens")
	}
	if err := stored.GetComputeTime().CheckValid(); err != nil {
		return entry, errors.New("without a valid time")
	}
	entry.Computed = stored.GetComputeTime().AsTime()
	entry.Value = Scores{
		Probabilities: scorer.Probabilities{
			Members: int(stored.GetMembers()), Heads: int(stored.GetHeads()), Values: stored.GetProbabilities(),
		},
		Tokens: int(stored.GetTokens()),
		Digest: header.Checkpoint,
	}
	if err := entry.Value.Probabilities.Validate(); err != nil {
		return cache.Entry[Scores]{}, err
	}
	return entry, nil
}
