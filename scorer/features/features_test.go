package features

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nlpodyssey/safetensors"
)

var header = Header{Encoder: "maker/model", Layers: 2, HiddenSize: 3, ProbeRevision: "r1", VLLMLayerIDs: []int{4, 8}}

func row(i int) []float32 {
	out := make([]float32, header.Dim())
	for j := range out {
		out[j] = float32(i) + float32(j)/8
	}
	return out
}

func appendRows(t *testing.T, w *Writer, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := w.Append(DigestOf(strconv.Itoa(i)), row(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func create1(t *testing.T, path string) *Writer {
	t.Helper()
	w, err := Create(path, header)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// check reads the finished file and wants rows 0..n-1 in it.
func check(t *testing.T, path string, n int) {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if diff := cmp.Diff(header, f.Header()); diff != "" || f.Len() != n {
		t.Fatalf("%d rows, want %d; header (-want +got):\n%s", f.Len(), n, diff)
	}
	got := make([]float32, header.Dim())
	for i := range n {
		if err := f.ReadRow(i, got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, row(i)) || f.Digests()[i] != DigestOf(strconv.Itoa(i)) {
			t.Fatalf("row %d is %v with digest %v", i, got, f.Digests()[i])
		}
	}
	left, err := filepath.Glob(path + ".*")
	if err != nil || len(left) != 0 {
		t.Errorf("left beside it: %v", left)
	}
}

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.safetensors")
	w := create1(t, path)
	appendRows(t, w, 0, 200)
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	check(t, path, 200)

	// Any reader of safetensors can read it.
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := safetensors.Deserialize(data)
	if err != nil {
		t.Fatal(err)
	}
	view, ok := st.Tensor("features")
	if !ok || !slices.Equal(view.Shape(), []uint64{200, 6}) {
		t.Errorf("features has shape %v", view.Shape())
	}
}

func TestFinishedFileGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.safetensors")
	for _, n := range []int{3, 10} {
		w := create1(t, path)
		appendRows(t, w, w.Len(), n)
		if err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		check(t, path, n)
	}
}

// A crash may leave any number of bytes that were not flushed, in both files.
func TestResumeAfterCrash(t *testing.T) {
	for _, c := range []struct {
		name          string
		rows, digests string // what is appended to each file as litter
		cutRows       int64  // bytes cut from the rows instead
		want          int    // rows that survive
	}{
		{name: "nothing unflushed", want: flushRows},
		{name: "half a row", rows: "litter", want: flushRows},
		{name: "a row without a digest", rows: string(make([]byte, 24)), want: flushRows},
		{name: "half a digest", digests: "litter", want: flushRows},
		{name: "a digest without its row", cutRows: 1, want: flushRows - 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f.safetensors")
			w := create1(t, path)
			appendRows(t, w, 0, flushRows+5) // 5 remain in memory
			if err := w.closeFiles(); err != nil {
				t.Fatal(err)
			}
			litter(t, path+partialSuffix, c.rows, c.cutRows)
			litter(t, path+digestsSuffix, c.digests, 0)
			w = create1(t, path)
			if w.Len() != c.want {
				t.Fatalf("%d rows survive, want %d", w.Len(), c.want)
			}
			if !w.Has(DigestOf("0")) || w.Has(DigestOf(strconv.Itoa(c.want))) {
				t.Error("Has disagrees with what survived")
			}
			appendRows(t, w, w.Len(), 100)
			if err := w.Finish(); err != nil {
				t.Fatal(err)
			}
			check(t, path, 100)
		})
	}
}

func litter(t *testing.T, path, text string, cut int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	// Rows in the buffer may have been written without being flushed; cut below them.
	if cut > 0 {
		if err := f.Truncate(min(info.Size(), headerBytes+flushRows*24) - cut); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCloseLeavesItUnfinished(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.safetensors")
	w := create1(t, path)
	appendRows(t, w, 0, 5)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
	w = create1(t, path)
	if w.Len() != 5 {
		t.Errorf("%d rows after Close", w.Len())
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	check(t, path, 5)
}

func TestOtherProbeIsRefused(t *testing.T) {
	for _, finished := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "f.safetensors")
		w := create1(t, path)
		appendRows(t, w, 0, 2)
		end := w.Close
		if finished {
			end = w.Finish
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(*Header){
			"encoder":  func(h *Header) { h.Encoder = "other" },
			"shape":    func(h *Header) { h.Layers, h.HiddenSize, h.VLLMLayerIDs = 3, 2, nil },
			"revision": func(h *Header) { h.ProbeRevision = "r2" },
			"layers":   func(h *Header) { h.VLLMLayerIDs = []int{4, 9} },
		} {
			h := header
			change(&h)
			if _, err := Create(path, h); !errors.Is(err, ErrOtherProbe) {
				t.Errorf("finished %v, other %s: %v", finished, name, err)
			}
		}
		w = create1(t, path)
		if w.Len() != 2 {
			t.Errorf("finished %v: refusing touched it: %d rows", finished, w.Len())
		}
		w.Close()
	}
}

func TestAppendRefuses(t *testing.T) {
	w := create1(t, filepath.Join(t.TempDir(), "f.safetensors"))
	defer w.Close()
	appendRows(t, w, 0, 1)
	nan := row(1)
	nan[4] = float32(math.NaN())
	if err := w.Append(DigestOf("1"), nan); !errors.Is(err, ErrNonFinite) {
		t.Errorf("NaN: %v", err)
	}
	if err := w.Append(DigestOf("0"), row(0)); err == nil {
		t.Error("a task was taken twice")
	}
	if err := w.Append(DigestOf("1"), row(1)[1:]); err == nil {
		t.Error("a short row was taken")
	}
	if w.Len() != 1 {
		t.Errorf("%d rows", w.Len())
	}
}

func TestOpenRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.safetensors")
	w := create1(t, path)
	appendRows(t, w, 0, 4)
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"empty":           nil,
		"text":            []byte("question,model,isCorrect\n"),
		"cut off":         whole[:len(whole)-1],
		"cut in header":   whole[:100],
		"unfinished head": slices.Concat(whole[:headerBytes], whole[headerBytes+24:]),
	} {
		t.Run(name, func(t *testing.T) {
			bad := filepath.Join(t.TempDir(), "bad")
			if err := os.WriteFile(bad, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(bad); !errors.Is(err, ErrFormat) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	head, err := header.encode(3)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(head[prefixBytes:], uint64(3*(24+32)))
	f.Add([]byte(`{"__metadata__":{"format":"pointsman-features-1"}}`), uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, rest uint64) {
		h, doc, err := decode(data)
		if err != nil {
			return
		}
		rows, err := doc.layout(h, rest)
		if err == nil && uint64(rows)*uint64(h.Dim())*bytesPerFloat > rest {
			t.Errorf("%d rows of %d numbers in %d bytes", rows, h.Dim(), rest)
		}
	})
}
