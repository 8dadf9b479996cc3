package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The two tensors of an artifact, and the dtypes that vLLM writes: hidden_states [T, L, H] in the model's own dtype
// (tokens, layer slots, hidden size) and, usually, token_ids [T].
const (
	tensorHiddenStates = "hidden_states"
	tensorTokenIDs     = "token_ids"

	dtypeBF16 = "BF16"
	dtypeF16  = "F16"
	dtypeF32  = "F32"
	dtypeI64  = "I64"
)

// maxFeatures bounds Layers*HiddenSize when the caller accepts any shape: 4 Mi values are 128 layers of 32768.
const maxFeatures = 4 << 20

// pooling says how an artifact is to be pooled.
type pooling struct {
	shape     Shape   // expected; zero: any
	promptIDs []int64 // the answer's prompt_token_ids; nil: not known
	zeros     ZeroVectors
	workers   *workers
}

// pool reads a whole artifact as a stream and returns the mean over the tokens of each layer slot's vectors:
//
//	Values[l*H+h] = (1/T) * sum over t of hidden_states[t, l, h]
//
// The memory it takes does not depend on T. See [summation] for the order of the sums.
func (p pooling) pool(ctx context.Context, r io.ReaderAt, h header) (Features, error) {
	states, err := p.checkShapes(h)
	if err != nil {
		return Features{}, err
	}
	if ids, ok := h.tensors[tensorTokenIDs]; ok {
		if err := p.checkTokenIDs(ctx, section(r, ids)); err != nil {
			return Features{}, fmt.Errorf("%s: %w", tensorTokenIDs, err)
		}
	}
	features := Features{
		Shape:  Shape{Layers: int(states.shape[1]), HiddenSize: int(states.shape[2])},
		Tokens: int(states.shape[0]),
	}
	features.Values = make([]float32, features.Layers*features.HiddenSize)
	if err := p.sum(ctx, newSummation(r, states, features, p.zeros), features.Values); err != nil {
		return Features{}, fmt.Errorf("%s: %w", tensorHiddenStates, err)
	}
	return features, nil
}

// sum runs s with as many workers as there are idle and of use.
func (p pooling) sum(ctx context.Context, s *summation, values []float32) error {
	want := 1
	if s.size() >= parallelBytes {
		want = s.runs()
	}
	n, err := p.workers.take(ctx, want)
	if err != nil {
		return err
	}
	defer p.workers.give(n)
	return s.means(ctx, n, p.workers.scratches(), values)
}

// section is the part of the file that holds a tensor's data.
func section(r io.ReaderAt, t tensor) *io.SectionReader {
	return io.NewSectionReader(r, t.begin, t.size)
}

// checkShapes checks both tensors' dtypes and shapes and returns the hidden states.
func (p pooling) checkShapes(h header) (tensor, error) {
	states, ok := h.tensors[tensorHiddenStates]
	if !ok {
		return tensor{}, fmt.Errorf("tensor %s is missing", tensorHiddenStates)
	}
	if _, ok := kernelsFor(states.dtype); !ok {
		return tensor{}, fmt.Errorf("%s: dtype %s is not BF16, F16 or F32", tensorHiddenStates, states.dtype)
	}
	if len(states.shape) != 3 {
		return tensor{}, fmt.Errorf("%s: rank is %d, not 3 (tokens, layers, hidden size)", tensorHiddenStates, len(states.shape))
	}
	tokens, layers, hidden := states.shape[0], states.shape[1], states.shape[2]
	if tokens == 0 || layers == 0 || hidden == 0 {
		return tensor{}, fmt.Errorf("%s: shape [%d, %d, %d] is empty", tensorHiddenStates, tokens, layers, hidden)
	}
	if want := p.shape; want != (Shape{}) && (layers != uint64(want.Layers) || hidden != uint64(want.HiddenSize)) {
		return tensor{}, fmt.Errorf("%s: %d layers of %d where the checkpoint expects %d of %d",
			tensorHiddenStates, layers, hidden, want.Layers, want.HiddenSize)
	}
	if values, ok := product([]uint64{layers, hidden}); !ok || values > maxFeatures {
		return tensor{}, fmt.Errorf("%s: %d layers of %d are more than %d values", tensorHiddenStates, layers, hidden, maxFeatures)
	}
	if ids, ok := h.tensors[tensorTokenIDs]; ok {
		switch {
		case ids.dtype != dtypeI64:
			return tensor{}, fmt.Errorf("%s: dtype %s is not I64", tensorTokenIDs, ids.dtype)
		case len(ids.shape) != 1 || ids.shape[0] != tokens:
			// vLLM before #43805 wrote fewer rows than tokens when the prefix cache was hit (#44485).
			return tensor{}, fmt.Errorf("%s: shape is not [%d], the tokens of %s", tensorTokenIDs, tokens, tensorHiddenStates)
		}
	}
	return states, nil
}

// checkTokenIDs checks that no id is negative and that the ids are those of the answer: the artifact is then the one of
// our own prompt.
func (p pooling) checkTokenIDs(ctx context.Context, r *io.SectionReader) error {
	want := p.promptIDs
	err := stream(ctx, r, 8, func(chunk []byte) error {
		for ; len(chunk) > 0; chunk = chunk[8:] {
			id := int64(binary.LittleEndian.Uint64(chunk))
			if id < 0 {
				return errors.New("negative token id")
			}
			if p.promptIDs == nil {
				continue
			}
			if len(want) == 0 || want[0] != id {
				return errors.New("differ from the prompt_token_ids of the answer")
			}
			want = want[1:]
		}
		return nil
	})
	if err == nil && len(want) > 0 {
		return errors.New("fewer than the prompt_token_ids of the answer")
	}
	return err
}

// stream reads r to its end through one buffer and hands on chunks of whole elements of width bytes.
func stream(ctx context.Context, r *io.SectionReader, width int64, chunk func([]byte) error) error {
	buffer := make([]byte, min(poolBufferBytes-poolBufferBytes%width, r.Size()))
	for rest := r.Size(); rest > 0; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		buffer = buffer[:min(int64(len(buffer)), rest)]
		if _, err := io.ReadFull(r, buffer); err != nil {
			// The size was right a moment ago, so an early end is a failure like any other.
			return fmt.Errorf("cannot be read: %w", bare(err))
		}
		rest -= int64(len(buffer))
		if err := chunk(buffer); err != nil {
			return err
		}
	}
	return nil
}
