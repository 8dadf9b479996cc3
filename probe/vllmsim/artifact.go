package vllmsim

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// WriteArtifact writes the artifact of tokens as vLLM does: token_ids [T] and
// hidden_states [T, layers, hiddenSize] in the safetensors format
// (github.com/huggingface/safetensors, "Format"). It is a stream: memory does
// not grow with the artifact.
func WriteArtifact(w io.Writer, tokens []int64, layers, hiddenSize int, dtype DType) error {
	dtype = dtype.orDefault()
	if layers < 1 || hiddenSize < 1 || dtype.size() == 0 {
		return fmt.Errorf("vllmsim: cannot write %d layers of %d values as %q: sizes must be at least 1, dtype BF16, F16 or F32", layers, hiddenSize, dtype)
	}
	return newArtifact(tokens, layers, hiddenSize, dtype).write(w)
}

// artifact is what is to be written. A fault changes its fields before it is.
type artifact struct {
	tokens []int64 // token_ids
	states []int64 // the tokens whose states are written: a row each
	layers int
	hidden int
	dtype  DType
	shape  []int // of hidden_states as the header gives it
	// alter changes the states of token t before they are stored; nil: nothing.
	alter func(t int, row []float32)
	// headerSize is the least length of the header; spaces fill it.
	headerSize int
}

func newArtifact(tokens []int64, layers, hidden int, dtype DType) artifact {
	return artifact{
		tokens: tokens, states: tokens, layers: layers, hidden: hidden, dtype: dtype,
		shape: []int{len(tokens), layers, hidden},
	}
}

// rowBytes is the size of one token's states.
func (a artifact) rowBytes() int64 { return int64(a.layers) * int64(a.hidden) * int64(a.dtype.size()) }

// size is the length of the whole file in bytes.
func (a artifact) size() (int64, error) {
	header, err := a.header(len(a.tokens), len(a.states))
	if err != nil {
		return 0, err
	}
	return int64(len(header)) + 8*int64(len(a.tokens)) + int64(len(a.states))*a.rowBytes(), nil
}

// tensorInfo is one entry of a safetensors header.
type tensorInfo struct {
	DType       string   `json:"dtype"`
	Shape       []int    `json:"shape"`
	DataOffsets [2]int64 `json:"data_offsets"`
}

// header returns the eight bytes of length and the header for that many token
// ids and rows of states. The tensors stand
// in the order of their data: vLLM's writer sorts by alignment, so the I64
// token_ids come first. There is no __metadata__. The JSON is padded with
// spaces to a multiple of 8, so that the data is aligned.
func (a artifact) header(ids, rows int) ([]byte, error) {
	idBytes := 8 * int64(ids)
	text, err := json.Marshal(struct {
		TokenIDs     tensorInfo `json:"token_ids"`
		HiddenStates tensorInfo `json:"hidden_states"`
	}{
		TokenIDs:     tensorInfo{"I64", []int{ids}, [2]int64{0, idBytes}},
		HiddenStates: tensorInfo{string(a.dtype), a.shape, [2]int64{idBytes, idBytes + int64(rows)*a.rowBytes()}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode artifact header: %w", err)
	}
	for len(text) < a.headerSize || len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

// writeBuffer is large enough that system calls do not matter and small enough
// that a hundred writers do not either.
const writeBuffer = 256 << 10

// write streams the artifact, a token at a time.
func (a artifact) write(w io.Writer) error {
	header, err := a.header(len(a.tokens), len(a.states))
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, writeBuffer)
	if _, err := out.Write(header); err != nil {
		return fmt.Errorf("write artifact header: %w", err)
	}
	var scratch []byte
	for _, id := range a.tokens {
		scratch = binary.LittleEndian.AppendUint64(scratch[:0], uint64(id))
		if _, err := out.Write(scratch); err != nil {
			return fmt.Errorf("write token ids: %w", err)
		}
	}
	row := make([]float32, a.layers*a.hidden)
	for t := range a.states {
		fillRow(row, a.states, t, a.hidden)
		if a.alter != nil {
			a.alter(t, row)
		}
		scratch = appendRow(scratch[:0], row, a.dtype)
		if _, err := out.Write(scratch); err != nil {
			return fmt.Errorf("write hidden states: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write artifact: %w", err)
	}
	return nil
}
