package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// statesFile is an artifact of hidden states and nothing else.
func statesFile(dtype string, data []byte, shape ...int) []byte {
	return encode(map[string]entry{tensorHiddenStates: {dtype, shape, data}})
}

// randomStates returns normal values in a dtype, n of them.
func randomStates(dtype string, n int, seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 7))
	data := make([]byte, 0, n*dtypes[dtype])
	for range n {
		bits := math.Float32bits(float32(random.NormFloat64()))
		switch dtype {
		case dtypeBF16:
			data = binary.LittleEndian.AppendUint16(data, uint16(bits>>16))
		case dtypeF16: // the fraction is cut; what would be subnormal becomes the smallest that is not
			magnitude := max(bits&^signF32, (127-14)<<23) - (127-15)<<23
			data = binary.LittleEndian.AppendUint16(data, uint16(bits>>16&0x8000|magnitude>>13))
		default:
			data = binary.LittleEndian.AppendUint32(data, bits)
		}
	}
	return data
}

// plainMeans sums as [summation] says, as plainly as it can be said.
func plainMeans(dtype string, data []byte, tokens, columns int) []float32 {
	add, stride := plainKernel(dtype), columns*dtypes[dtype]
	totals := make([]float64, columns)
	for first := 0; first < tokens; first += 128 {
		sums, rows := make([]float32, columns), min(128, tokens-first)
		add(sums, data[first*stride:], stride, make([]byte, rows))
		for i, sum := range sums {
			totals[i] += float64(sum)
		}
	}
	means := make([]float32, columns)
	for i, total := range totals {
		means[i] = float32(total / float64(tokens))
	}
	return means
}

// poolWith pools as the probe does, with n workers and however few bytes.
func poolWith(t *testing.T, n int, content []byte) (Features, error) {
	t.Helper()
	r := bytes.NewReader(content)
	h, err := readHeader(r, int64(len(content)), math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	return poolReaderWith(t.Context(), n, r, h)
}

func poolReaderWith(ctx context.Context, n int, r io.ReaderAt, h header) (Features, error) {
	states, err := pooling{}.checkShapes(h)
	if err != nil {
		return Features{}, err
	}
	f := Features{Shape: Shape{int(states.shape[1]), int(states.shape[2])}, Tokens: int(states.shape[0])}
	f.Values = make([]float32, f.Layers*f.HiddenSize)
	err = newSummation(r, states, f, ZeroRefuse).means(ctx, n, new(scratchPool), f.Values)
	return f, err
}

// TestSumInPieces compares with plain sums, bit for bit: rows that are read many at a time, one at a time and in pieces;
// vectors that are cut; tokens around the steps of eight and of a block; and any number of workers.
func TestSumInPieces(t *testing.T) {
	for _, shape := range [][3]int{
		{1, 1, 1},
		{7, 1, 2},
		{8, 2, 8},
		{9, 36, 2},
		{127, 4, 40},
		{128, 1, 16},
		{129, 3, 7},
		{1000, 3, 24},
		{4097, 3, 7},
		{70_001, 1, 1},
		{2, 3, 4096},
		{200, 3, 4096},
		{17, 1, 20_000},
		{133, 2, 9_000},
		{3, 2, poolBufferBytes/8 + 3},
		{130, 1, poolBufferBytes/8 + 5},
	} {
		for dtype := range dtypes {
			t.Run(fmt.Sprint(dtype, shape), func(t *testing.T) {
				tokens, layers, hidden := shape[0], shape[1], shape[2]
				data := randomStates(dtype, tokens*layers*hidden, 1)
				want := plainMeans(dtype, data, tokens, layers*hidden)
				for _, n := range []int{1, 2, 5} {
					got, err := poolWith(t, n, statesFile(dtype, data, shape[:]...))
					if err != nil {
						t.Fatal(err)
					}
					if !sameBits(got.Values, want) {
						t.Fatalf("with %d workers, features differ from the plain sums", n)
					}
				}
			})
		}
	}
}

// TestSumIsExact: the error does not grow with the tokens. The values of a column are of one sign and hardly differ,
// where the roundings of plain float32 sums add up: 32,768 of them are off by 1e-4.
func TestSumIsExact(t *testing.T) {
	const tokens, columns, tolerance = 1 << 15, 16, 1.6e-6
	random := rand.New(rand.NewPCG(8, 9))
	values := make([]float32, tokens*columns)
	exact := make([]float64, columns)
	for i := range values {
		values[i] = float32(i%columns+1) * (1 + 0.1*random.Float32())
		exact[i%columns] += float64(values[i]) / tokens
	}
	got, err := poolWith(t, 1, statesFile(dtypeF32, f32s(values...), tokens, 1, columns))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range exact {
		if off := math.Abs(float64(got.Values[i])-want) / want; !(off <= tolerance) {
			t.Errorf("mean %d is %v, want %v: off by %.2g", i, got.Values[i], want, off)
		}
	}
}

// TestSumRefuses: whatever is wrong is found wherever it stands, by any number of workers, and of several the first
// block's is reported.
func TestSumRefuses(t *testing.T) {
	const tokens, layers, hidden = 1000, 3, 256 // a run is one block
	big := float32(math.MaxFloat32)
	type change struct {
		token, layer int
		set          func(vector []float32)
	}
	fill := func(v float32) func([]float32) {
		return func(vector []float32) {
			for i := range vector {
				vector[i] = v
			}
		}
	}
	first := func(v float32) func([]float32) { return func(vector []float32) { vector[0] = v } }
	tests := []struct {
		name    string
		changes []change
		want    string // "": accepted
	}{
		{"nothing", nil, ""},
		{"zeros in the first token", []change{{0, 0, fill(0)}}, "token 0 in layer slot 0 are zero"},
		{"zeros in the last token", []change{{999, 2, fill(0)}}, "token 999 in layer slot 2 are zero"},
		{"zeros twice", []change{{900, 1, fill(0)}, {200, 2, fill(0)}}, "token 200 in layer slot 2 are zero"},
		{"zeros, then NaN", []change{{200, 1, fill(0)}, {700, 1, fill(float32(math.NaN()))}}, "token 200"},
		{"NaN, then zeros", []change{{200, 1, first(float32(math.NaN()))}, {700, 1, fill(0)}}, "not finite (layer slot 1)"},
		{"infinities that cancel across blocks", []change{{3, 2, first(float32(math.Inf(1)))}, {800, 2, first(float32(math.Inf(-1)))}}, "not finite (layer slot 2)"},
		{"a sum that leaves float32 across blocks", []change{{3, 0, first(big)}, {800, 0, first(big)}}, "not finite (layer slot 0)"},
		{"and comes back", []change{{3, 0, first(big)}, {300, 0, first(big)}, {999, 0, first(-big)}}, "not finite (layer slot 0)"},
		{"a large sum that stays", []change{{3, 0, first(big)}, {300, 0, first(-big)}, {999, 0, first(big)}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			values := make([]float32, tokens*layers*hidden)
			fill(1)(values)
			for _, c := range tt.changes {
				c.set(values[(c.token*layers+c.layer)*hidden:][:hidden])
			}
			file := statesFile(dtypeF32, f32s(values...), tokens, layers, hidden)
			for _, n := range []int{1, 2, 3, 8, 20} {
				_, err := poolWith(t, n, file)
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%d workers: error %v, want %q", n, err, tt.want)
				}
			}
		})
	}
}

// cancelAt is a file whose reading cancels a context once.
type cancelAt struct {
	io.ReaderAt
	offset int64
	cancel func()
}

func (c cancelAt) ReadAt(p []byte, off int64) (int, error) {
	if off >= c.offset {
		c.cancel()
	}
	return c.ReaderAt.ReadAt(p, off)
}

// TestSumStopsInTheMiddle: the end of the context stops all workers, with its cause.
func TestSumStopsInTheMiddle(t *testing.T) {
	const tokens, hidden = 4096, 512
	file := statesFile(dtypeF32, bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, tokens*hidden), tokens, 1, hidden)
	r := bytes.NewReader(file)
	h, err := readHeader(r, int64(len(file)), math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("enough")
	for _, n := range []int{1, 2, 5} {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := poolReaderWith(ctx, n, cancelAt{r, int64(len(file)) / 2, func() { cancel(cause) }}, h)
		if !errors.Is(err, cause) {
			t.Errorf("%d workers: error %v, want the context's cause", n, err)
		}
		cancel(nil)
	}
}

// fileInMemory writes a file where reading it does not touch a disk, if there is such a place.
func fileInMemory(b *testing.B, content []byte) *os.File {
	b.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "pointsman-bench-")
	if err != nil {
		dir = b.TempDir()
	} else {
		b.Cleanup(func() { os.RemoveAll(dir) })
	}
	path := filepath.Join(dir, "x"+artifactSuffix)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f
}

// BenchmarkPoolFile pools a file in tmpfs, with one worker and with all. "read" reads the same file with pread into one
// buffer and does nothing with it. The largest shape is that of Qwen3-8B with all its layers, at 512 tokens.
func BenchmarkPoolFile(b *testing.B) {
	for _, bench := range []struct {
		dtype string
		shape [3]int
	}{
		{dtypeBF16, [3]int{512, 4, 4096}},
		{dtypeBF16, [3]int{512, 36, 4096}},
		{dtypeF16, [3]int{512, 36, 4096}},
		{dtypeF32, [3]int{512, 36, 4096}},
		{dtypeBF16, [3]int{1 << 22, 1, 16}},
		{dtypeBF16, [3]int{33, 36, 4096}},
	} {
		elements := bench.shape[0] * bench.shape[1] * bench.shape[2]
		content := statesFile(bench.dtype, bytes.Repeat([]byte{0x12, 0x34}, elements*dtypes[bench.dtype]/2), bench.shape[:]...)
		f := fileInMemory(b, content)
		h, err := readHeader(f, int64(len(content)), math.MaxInt64)
		if err != nil {
			b.Fatal(err)
		}
		name := fmt.Sprintf("%s/%dx%dx%d", bench.dtype, bench.shape[0], bench.shape[1], bench.shape[2])
		b.Run(name+"/read", func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			buffer := make([]byte, poolBufferBytes)
			for b.Loop() {
				if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{io.NewSectionReader(f, 0, math.MaxInt64)}, buffer); err != nil || n != int64(len(content)) {
					b.Fatal(n, err)
				}
			}
		})
		for _, n := range slices.Compact([]int{1, runtime.GOMAXPROCS(0)}) {
			b.Run(fmt.Sprintf("%s/workers=%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(len(content)))
				b.ReportAllocs()
				p := pooling{workers: newWorkers(n)}
				for b.Loop() {
					if _, err := p.pool(b.Context(), f, h); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
