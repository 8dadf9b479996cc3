package vllmsim_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

const task = "Prove that there are infinitely many primes."

func write(t *testing.T, tokens []int64, layers, hidden int, dtype vllmsim.DType) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := vllmsim.WriteArtifact(&out, tokens, layers, hidden, dtype); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestHeaderIsWhatSafetensorsWrites(t *testing.T) {
	for n := range 12 { // enough for every amount of padding
		tokens := make([]int64, n*n*n)
		data := write(t, tokens, 2, 8, vllmsim.BF16)
		p := parse(t, data)
		ids := 8 * len(tokens)
		want := fmt.Sprintf(`{"token_ids":{"dtype":"I64","shape":[%d],"data_offsets":[0,%d]},`+
			`"hidden_states":{"dtype":"BF16","shape":[%d,2,8],"data_offsets":[%d,%d]}}`,
			len(tokens), ids, len(tokens), ids, ids+len(tokens)*2*8*2)
		if got := strings.TrimRight(p.header, " "); got != want {
			t.Errorf("header\n%s, want\n%s", got, want)
		}
		if p.headerSize%8 != 0 || p.headerSize-len(want) > 7 {
			t.Errorf("header of %d bytes for %d bytes of JSON", p.headerSize, len(want))
		}
		if p.missing != 0 {
			t.Errorf("file lacks %d bytes", p.missing)
		}
	}
}

func TestArtifactHoldsTheStatesRounded(t *testing.T) {
	tokens := vllmsim.Tokens(task)
	states := vllmsim.HiddenStates(tokens, 3, 10)
	for dtype, precision := range map[vllmsim.DType]float64{vllmsim.BF16: 1.0 / 256, vllmsim.F16: 1.0 / 2048, vllmsim.F32: 0} {
		t.Run(string(dtype), func(t *testing.T) {
			p := parse(t, write(t, tokens, 3, 10, dtype))
			if !slices.Equal(p.tokens, tokens) {
				t.Errorf("token ids %v, want %v", p.tokens, tokens)
			}
			if len(p.values) != len(states) {
				t.Fatalf("%d values, want %d", len(p.values), len(states))
			}
			sums := make([]float64, 30)
			for i, v := range p.values {
				want := float64(states[i])
				// A subnormal F16 is coarser, relatively: never by more than 2^-25.
				if math.Abs(v-want) > math.Abs(want)*precision+math.Ldexp(precision, -14) || v == 0 || math.Abs(v) > 1.5 {
					t.Fatalf("value %d is %v, want %v", i, v, want)
				}
				sums[i%30] += v
			}
			for i, mean := range vllmsim.Features(task, 3, 10, dtype) {
				if want := float32(sums[i] / float64(len(tokens))); mean != want {
					t.Errorf("feature %d is %v, want %v", i, mean, want)
				}
			}
		})
	}
}

// A checkpoint trained on these states is only good for as long as they stay
// the same: on every platform and in every release.
func TestStatesNeverChange(t *testing.T) {
	var all bytes.Buffer
	for _, dtype := range []vllmsim.DType{vllmsim.BF16, vllmsim.F16, vllmsim.F32} {
		all.Write(write(t, vllmsim.Tokens("Grüße, 世界! "+task+"\n\tx == 42"), 3, 7, dtype))
	}
	sum := sha256.Sum256(all.Bytes())
	const want = "44632d0792e94cb361cb182dae0daa9e6ec5c4fd9471518928302e3d42c40b44"
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

func TestTokensComeToAboutFourBytesEach(t *testing.T) {
	prose := strings.Repeat("The service reads the hidden states of a prompt, scores them with an ensemble and weighs "+
		"predicted correctness against cost. It returns strong or weak with a confidence, and never forwards a request.\n", 5)
	if rate := float64(len(prose)) / float64(len(vllmsim.Tokens(prose))); rate < 3 || rate > 6 {
		t.Errorf("%.1f bytes a token", rate)
	}
	if empty := len(vllmsim.Tokens("")); empty < 5 || empty > 15 {
		t.Errorf("the template alone has %d tokens", empty)
	}
	tokens := vllmsim.Tokens("a\xff\xfe\x00 \u00a0  b   ") // odd bytes have tokens too
	if slices.Min(tokens) < 1 {
		t.Errorf("token ids %v", tokens)
	}
}

// The point of the states: what a text is about can be learned from them with a
// linear model. Two class means stand in for one here.
func TestFeaturesTellTopicsApart(t *testing.T) {
	hard := []string{
		"Prove that the sum converges.", "Prove the theorem about compact sets by induction.",
		"Derive a lower bound and prove that it is tight.", "Give a rigorous proof that the algorithm terminates.",
	}
	easy := []string{
		"What is the capital of France?", "What is 2+2?", "Say hello in Spanish.", "What colour is the sky?",
	}
	features := func(text string) []float32 { return vllmsim.Features(text, 2, 256, vllmsim.BF16) }
	direction := make([]float64, 2*256) // from one class mean to the other
	for n := range hard {
		h, e := features(hard[n]), features(easy[n])
		for i := range direction {
			direction[i] += float64(h[i]) - float64(e[i])
		}
	}
	score := func(text string) (s float64) {
		for i, v := range features(text) {
			s += direction[i] * float64(v)
		}
		return s
	}
	middle := 0.0
	for n := range hard {
		middle += (score(hard[n]) + score(easy[n])) / float64(2*len(hard))
	}
	for text, want := range map[string]bool{
		"Now prove that this bound is tight by induction.": true,
		"prove the algorithm converges":                    true,
		"What is the capital of Spain?":                    false,
		"what is 7+5?":                                     false,
	} {
		if got := score(text) > middle; got != want {
			t.Errorf("%q is on the wrong side: %v against %v", text, score(text), middle)
		}
	}
}

func TestWriteArtifactRefusesWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		layers, hidden int
		dtype          vllmsim.DType
	}{{0, 1, vllmsim.BF16}, {1, -1, vllmsim.BF16}, {1, 1, "F64"}} {
		if err := vllmsim.WriteArtifact(io.Discard, nil, c.layers, c.hidden, c.dtype); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	if !bytes.Equal(write(t, []int64{1}, 2, 3, ""), write(t, []int64{1}, 2, 3, vllmsim.BF16)) {
		t.Error("the empty dtype is not BF16")
	}
	if !slices.Equal(vllmsim.Features(task, 1, 4, ""), vllmsim.Features(task, 1, 4, vllmsim.BF16)) {
		t.Error("the empty dtype is not BF16 for features")
	}
}

type failing struct{ after int }

var errFull = errors.New("no space left")

func (f *failing) Write(p []byte) (int, error) {
	if f.after -= len(p); f.after < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestWriteArtifactReportsAFullDisk(t *testing.T) {
	for _, after := range []int{0, 1 << 20} {
		err := vllmsim.WriteArtifact(&failing{after}, make([]int64, 1000), 1, 4096, vllmsim.F32)
		if !errors.Is(err, errFull) {
			t.Errorf("after %d bytes: %v", after, err)
		}
	}
}

func BenchmarkWriteArtifact(b *testing.B) {
	tokens := make([]int64, 64)
	const layers, hidden = 8, 4096
	b.SetBytes(int64(len(tokens) * layers * hidden * 2))
	b.ReportAllocs()
	for b.Loop() {
		if err := vllmsim.WriteArtifact(io.Discard, tokens, layers, hidden, vllmsim.BF16); err != nil {
			b.Fatal(err)
		}
	}
}
