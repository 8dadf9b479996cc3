package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"
)

const (
	// poolBufferBytes is what is read at a time: large enough that system calls do not show, small enough for the
	// second-level cache. Together with the sums it is all the memory that a worker takes, whatever the file's size.
	poolBufferBytes = 256 << 10
	// yieldBytes is how much is read, in a quarter of a millisecond, before others get the processor. Where one is idle,
	// to offer it costs some microseconds.
	yieldBytes = 1 << 20
	// blockTokens is how many tokens are summed in float32 before the sums go into float64. An element goes through
	// 16 additions, 3 in its tree and up to 7 at the end, 26 roundings of 2^-24 in all: the sums are within 1.6e-6 of
	// the exact ones, relative to the sums of the absolute values, however many tokens there are.
	blockTokens = 16 * treeRows
	// parallelBytes is the size from which a second processor is used: reading it takes a millisecond, which is much
	// longer than it takes to wake a thread.
	parallelBytes = 4 << 20
)

// summation adds up the vectors of all tokens of an artifact.
//
// The tokens are taken in blocks. A block's sums are float32, in the order that kernel describes; the blocks' sums are
// added in float64, in the blocks' order. The result therefore does not depend on how many workers there were.
type summation struct {
	Shape
	kernels

	r      io.ReaderAt
	begin  int64 // where in r the hidden states begin
	tokens int
	zeros  ZeroVectors

	vectorBytes int // one layer slot of one token
	rowBytes    int // all layer slots of one token
	segment     int // as much of a row as is read at a time; a row has one segment or more
	run         int // as many blocks as a worker takes at a time: one, or as many as one read holds

	totals []float64 // [Layers*HiddenSize], the sums over the blocks added so far; nil with one block
}

func newSummation(r io.ReaderAt, states tensor, features Features, zeros ZeroVectors) *summation {
	s := &summation{Shape: features.Shape, r: r, begin: states.begin, tokens: features.Tokens, zeros: zeros}
	s.kernels, _ = kernelsFor(states.dtype)
	s.vectorBytes = s.bytes * s.HiddenSize
	s.rowBytes = s.vectorBytes * s.Layers
	const most = poolBufferBytes / treeRows
	switch {
	case s.rowBytes <= most: // several whole rows, which lie side by side
		s.segment = s.rowBytes
	case s.vectorBytes <= most: // whole vectors
		s.segment = most / s.vectorBytes * s.vectorBytes
	default:
		s.segment = most
	}
	s.run = max(1, poolBufferBytes/(blockTokens*s.rowBytes))
	if s.blocks() > 1 {
		s.totals = make([]float64, s.columns())
	}
	return s
}

func (s *summation) columns() int { return s.Layers * s.HiddenSize }

func (s *summation) blocks() int { return (s.tokens + blockTokens - 1) / blockTokens }

func (s *summation) runs() int { return (s.blocks() + s.run - 1) / s.run }

// size is the number of bytes that are read.
func (s *summation) size() int { return s.tokens * s.rowBytes }

// means sums all blocks with n workers, of which the caller is one, and sets values, [Layers*HiddenSize], to the means.
func (s *summation) means(ctx context.Context, n int, scratch *scratchPool, values []float32) error {
	if s.totals == nil {
		space := scratch.get()
		defer scratch.put(space)
		if err := s.block(ctx, space, values, 0); err != nil {
			return err
		}
		return s.divide(values)
	}
	// The workers take turns at adding a block's sums to the totals: each waits for the one before it.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make([]chan struct{}, n)
	for i := range turns {
		turns[i] = make(chan struct{}, 1)
	}
	turns[0] <- struct{}{}
	work := func(i int) {
		space := scratch.get()
		defer scratch.put(space)
		if err := s.work(ctx, space, i, n, turns[i], turns[(i+1)%n]); err != nil {
			cancel(err)
		}
	}
	var others sync.WaitGroup
	for i := 1; i < n; i++ {
		others.Go(func() { work(i) })
	}
	work(0)
	others.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for i, total := range s.totals {
		values[i] = float32(total / float64(s.tokens))
	}
	return nil
}

// work sums every n-th run of blocks, beginning with run first. An error is returned in its run's turn, so that of several
// the first run's is reported.
func (s *summation) work(ctx context.Context, space *scratch, first, n int, turn <-chan struct{}, next chan<- struct{}) error {
	for run := first; run < s.runs(); run += n {
		begin, end := run*s.run, min((run+1)*s.run, s.blocks())
		sums := space.sumsFor((end - begin) * s.columns())
		clear(sums)
		err := s.blocksOf(ctx, space, sums, begin, end)
		select {
		case <-turn:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for block := range slices.Chunk(sums, s.columns()) {
			if err == nil {
				err = s.add(block)
			}
		}
		if err != nil {
			return err
		}
		next <- struct{}{}
	}
	return nil
}

// blocksOf adds the tokens of a run, blocks begin to end, to sums, [end-begin, Layers*HiddenSize]. Blocks of narrow rows
// are read together, since a block alone may be a few bytes.
func (s *summation) blocksOf(ctx context.Context, space *scratch, sums []float32, begin, end int) error {
	if s.run == 1 {
		return s.block(ctx, space, sums, begin)
	}
	token, tokens := begin*blockTokens, min(end*blockTokens, s.tokens)
	src := space.buffer[:(tokens-token)*s.rowBytes]
	if err := s.read(ctx, space, src, token, 0, s.rowBytes); err != nil {
		return err
	}
	for ; token < tokens; token += blockTokens {
		n := min(blockTokens, tokens-token)
		if err := s.addRows(sums[:s.columns()], src[:n*s.rowBytes], token, 0, space.nonzero[:n]); err != nil {
			return err
		}
		sums, src = sums[s.columns():], src[n*s.rowBytes:]
	}
	return nil
}

// block adds the tokens of block b to sums, [Layers*HiddenSize], some rows or segments at a time.
func (s *summation) block(ctx context.Context, space *scratch, sums []float32, b int) error {
	first := b * blockTokens
	tokens := min(blockTokens, s.tokens-first)
	for begin := 0; begin < s.rowBytes; begin += s.segment {
		width := min(s.segment, s.rowBytes-begin)
		rows := poolBufferBytes / s.segment / treeRows * treeRows
		for token := 0; token < tokens; token += rows {
			nonzero := space.nonzero[token:min(token+rows, tokens)]
			src := space.buffer[:width*len(nonzero)]
			if err := s.read(ctx, space, src, first+token, begin, width); err != nil {
				return err
			}
			if err := s.addRows(sums, src, first+token, begin, nonzero); err != nil {
				return err
			}
		}
	}
	return nil
}

// read fills dst with the same width bytes, from begin on, of one row after another.
func (s *summation) read(ctx context.Context, space *scratch, dst []byte, token, begin, width int) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	// Pooling is work of milliseconds among answers of microseconds: let those that wait go first.
	if space.unyielded += len(dst); space.unyielded >= yieldBytes {
		space.unyielded = 0
		runtime.Gosched()
	}
	step := width
	if width == s.rowBytes {
		step = len(dst) // one row follows the other in the file too
	}
	offset := s.begin + int64(token)*int64(s.rowBytes) + int64(begin)
	for piece := range slices.Chunk(dst, step) {
		if err := readFull(s.r, piece, offset); err != nil {
			return fmt.Errorf("cannot be read: %w", err)
		}
		offset += int64(s.rowBytes)
	}
	return nil
}

// addRows adds segments of len(nonzero) rows, which stand side by side in src, to sums, and refuses vectors of zeros. The
// first is that of token; the segments begin at byte begin of their rows. nonzero keeps what is known of the vectors
// that end in another segment.
func (s *summation) addRows(sums []float32, src []byte, token, begin int, nonzero []byte) error {
	stride := len(src) / len(nonzero)
	for at := 0; at < stride; {
		layer, offset := (begin+at)/s.vectorBytes, (begin+at)%s.vectorBytes
		n := min(s.vectorBytes-offset, stride-at)
		if offset == 0 {
			clear(nonzero)
		}
		s.best(sums[(begin+at)/s.bytes:][:n/s.bytes], src[at:], stride, nonzero)
		if offset+n == s.vectorBytes && (s.zeros != ZeroAllowSlot0 || layer != 0) {
			if zero := slices.Index(nonzero, 0); zero >= 0 {
				return fmt.Errorf("all values of token %d in layer slot %d are zero", token+zero, layer)
			}
		}
		at += n
	}
	return nil
}

// errNotFinite covers both: infinities and NaN absorb whatever is added to them (an infinity and its opposite give NaN),
// so a sum is finite only if every value was, and if no partial sum left float32.
var errNotFinite = errors.New("a value, or its sum over the tokens, is not finite")

func (s *summation) notFinite(i int) error {
	return fmt.Errorf("%w (layer slot %d)", errNotFinite, i/s.HiddenSize)
}

// add adds a block's sums to the totals. These are held to what float32 can hold too, so that it makes no difference
// where a block ends.
func (s *summation) add(sums []float32) error {
	totals := s.totals[:len(sums)]
	for i, sum := range sums {
		totals[i] += float64(sum)
		if !finite(float32(totals[i])) {
			return s.notFinite(i)
		}
	}
	return nil
}

// divide turns the sums of a single block into means.
func (s *summation) divide(sums []float32) error {
	tokens := float32(s.tokens)
	for i, sum := range sums {
		if !finite(sum) {
			return s.notFinite(i)
		}
		sums[i] = sum / tokens
	}
	return nil
}

func finite(v float32) bool { return math.Float32bits(v)&exponentF32 != exponentF32 }
