package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// poolBytes reads and pools a file that is in memory, as the probe does with one on disk.
func poolBytes(ctx context.Context, content []byte, p pooling) (Features, error) {
	r := bytes.NewReader(content)
	h, err := readHeader(r, int64(len(content)), math.MaxInt64)
	if err != nil {
		return Features{}, err
	}
	return p.pool(ctx, r, h)
}

// TestPoolExpected compares with features computed by an independent program.
func TestPoolExpected(t *testing.T) {
	text, err := os.ReadFile("testdata/pooled.json")
	if err != nil {
		t.Fatal(err)
	}
	var expected struct {
		Tolerance float64 `json:"pooled_rel_to_largest"`
		Cases     []struct {
			Artifact   string    `json:"artifact"`
			Tokens     int       `json:"tokens"`
			Layers     int       `json:"layers"`
			HiddenSize int       `json:"hidden_size"`
			Pooled     []float64 `json:"pooled"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(text, &expected); err != nil {
		t.Fatal(err)
	}
	if len(expected.Cases) < 20 {
		t.Fatalf("%d cases", len(expected.Cases))
	}
	for _, c := range expected.Cases {
		t.Run(c.Artifact, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join("testdata/artifacts", c.Artifact))
			if err != nil {
				t.Fatal(err)
			}
			shape := Shape{Layers: c.Layers, HiddenSize: c.HiddenSize}
			got, err := poolBytes(t.Context(), content, pooling{shape: shape})
			if err != nil {
				t.Fatal(err)
			}
			if got.Shape != shape || got.Tokens != c.Tokens || len(got.Values) != len(c.Pooled) {
				t.Fatalf("%v, %d tokens, %d values; want %v, %d, %d", got.Shape, got.Tokens, len(got.Values), shape, c.Tokens, len(c.Pooled))
			}
			var largest float64
			for _, v := range c.Pooled {
				largest = max(largest, math.Abs(v))
			}
			for i, want := range c.Pooled {
				if diff := math.Abs(float64(got.Values[i]) - want); !(diff <= expected.Tolerance*largest) {
					t.Fatalf("value %d is %v, want %v (off by %.2g of the largest)", i, got.Values[i], want, diff/largest)
				}
			}
		})
	}
}

func TestPool(t *testing.T) {
	states := func(dtype string, data []byte, shape ...int) map[string]entry {
		return map[string]entry{tensorHiddenStates: {dtype, shape, data}}
	}
	withIDs := func(ids entry) map[string]entry {
		return map[string]entry{tensorHiddenStates: {dtypeF32, []int{2, 1, 2}, f32s(1, 2, 3, 4)}, tensorTokenIDs: ids}
	}
	good := entry{dtypeI64, []int{2}, i64s(101, 102)}
	big := float32(math.MaxFloat32)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	negZero := float32(math.Copysign(0, -1))
	tests := []struct {
		name    string
		file    map[string]entry
		p       pooling
		want    []float32
		wantErr string
	}{
		{"F32", states("F32", f32s(1, 3, 5, 7, 2, 4, 6, 8), 2, 2, 2), pooling{}, twoTokenMeans, ""},
		{"BF16", states("BF16", bf16s(1, 3, 5, 7, 2, 4, 6, 8), 2, 2, 2), pooling{}, twoTokenMeans, ""},
		{"one token is unchanged", states("F32", f32s(1, 3, 5, 7), 1, 2, 2), pooling{}, []float32{1, 3, 5, 7}, ""},
		{"shape as expected", states("F32", f32s(1, 3, 5, 7), 1, 2, 2), pooling{shape: Shape{2, 2}}, []float32{1, 3, 5, 7}, ""},
		{"largest values that fit", states("F32", f32s(big/2, 1, big/2, 1), 2, 1, 2), pooling{}, []float32{big / 2, 1}, ""},
		{"token ids", withIDs(good), pooling{}, []float32{2, 3}, ""},
		{"token ids as answered", withIDs(good), pooling{promptIDs: []int64{101, 102}}, []float32{2, 3}, ""},

		{"axes swapped", states("F32", f32s(make([]float32, 12)...), 2, 3, 2), pooling{shape: Shape{2, 3}}, nil, "checkpoint expects 2 of 3"},
		{"too wide", states("F32", f32s(1, 2, 3), 1, 1, 3), pooling{shape: Shape{1, 2}}, nil, "checkpoint expects"},
		{"rank 2", states("F32", f32s(1, 2), 1, 2), pooling{}, nil, "rank is 2"},
		{"no tokens", states("F32", nil, 0, 2, 2), pooling{}, nil, "is empty"},
		{"more values than any model has", states("F32", f32s(make([]float32, maxFeatures+1)...), 1, 1, maxFeatures+1), pooling{}, nil, "more than"},
		{"I64", states("I64", i64s(1, 2), 1, 1, 2), pooling{}, nil, "dtype I64"},
		{"F64", states("F64", i64s(1, 2), 1, 1, 2), pooling{}, nil, "dtype F64"},
		{"NaN", states("F32", f32s(1, nan), 1, 1, 2), pooling{}, nil, "not finite"},
		{"infinities that would cancel", states("F32", f32s(1, inf, 1, -inf), 2, 1, 2), pooling{}, nil, "not finite"},
		{"infinity in BF16", states("BF16", bf16s(1, inf), 1, 1, 2), pooling{}, nil, "not finite"},
		{"NaN in F16", states("F16", []byte{1, 0x3c, 1, 0x7c}, 1, 1, 2), pooling{}, nil, "not finite"},
		{"sum leaves float32", states("F32", f32s(big, 1, big, 1), 2, 1, 2), pooling{}, nil, "not finite"},
		{"sum leaves float32 and comes back", states("F32", f32s(big, 1, big, 1, -big, 1), 3, 1, 2), pooling{}, nil, "not finite"},
		{"zero vector", states("F32", f32s(1, 1, 1, 1, 1, 1, 0, 0), 2, 2, 2), pooling{}, nil, "token 1 in layer slot 1 are zero"},
		{"zero vector of either sign", states("F32", f32s(negZero, 0, 1, 1), 1, 2, 2), pooling{}, nil, "token 0 in layer slot 0 are zero"},
		{"zero vector in slot 0, allowed", states("F32", f32s(0, negZero, 1, 1), 1, 2, 2), pooling{zeros: ZeroAllowSlot0}, []float32{0, 0, 1, 1}, ""},
		{"zero vector in slot 1, not exempt", states("F32", f32s(1, 1, 0, 0), 1, 2, 2), pooling{zeros: ZeroAllowSlot0}, nil, "layer slot 1 are zero"},
		{"one zero is no zero vector", states("F32", f32s(0, 1), 1, 1, 2), pooling{}, []float32{0, 1}, ""},
		{"no hidden states", map[string]entry{tensorTokenIDs: good}, pooling{}, nil, "hidden_states is missing"},
		{"fewer token ids than rows", withIDs(entry{dtypeI64, []int{1}, i64s(101)}), pooling{}, nil, "token_ids: shape"},
		{"token ids of rank 2", withIDs(entry{dtypeI64, []int{2, 1}, i64s(101, 102)}), pooling{}, nil, "token_ids: shape"},
		{"negative token id", withIDs(entry{dtypeI64, []int{2}, i64s(101, -1)}), pooling{}, nil, "negative token id"},
		{"token ids in F32", withIDs(entry{dtypeF32, []int{2}, f32s(1, 2)}), pooling{}, nil, "dtype F32 is not I64"},
		{"other token ids", withIDs(good), pooling{promptIDs: []int64{101, 103}}, nil, "differ"},
		{"more token ids answered", withIDs(good), pooling{promptIDs: []int64{101, 102, 103}}, nil, "fewer"},
		{"fewer token ids answered", withIDs(good), pooling{promptIDs: []int64{101}}, nil, "differ"},
		{"no token ids answered", withIDs(good), pooling{promptIDs: []int64{}}, nil, "differ"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := poolBytes(t.Context(), encode(tt.file), tt.p)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want one with %q", err, tt.wantErr)
				}
				if got.Values != nil {
					t.Error("features came with the error")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Values, tt.want) {
				t.Errorf("got %v, want %v", got.Values, tt.want)
			}
		})
	}
}

// TestPoolTruncatedWhileReading: the header promised more than the file holds by now.
func TestPoolTruncatedWhileReading(t *testing.T) {
	whole := twoTokens()
	h, err := readHeader(bytes.NewReader(whole), int64(len(whole)), math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, err := (pooling{}).pool(t.Context(), bytes.NewReader(whole[:n]), h); err == nil && n < len(whole) {
			t.Fatalf("pooled the first %d of %d bytes", n, len(whole))
		}
	}
}

func TestPoolStopsWithContext(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := poolBytes(ctx, twoTokens(), pooling{}); !errors.Is(err, cause) {
		t.Errorf("error %v, want the context's cause", err)
	}
}

// TestBadArtifactsAreRefused: every file is refused by reading it, without a word on how long to wait for it.
func TestBadArtifactsAreRefused(t *testing.T) {
	files, err := filepath.Glob("testdata/bad_artifacts/*.safetensors")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	shape := Shape{Layers: 2, HiddenSize: 8}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := poolBytes(t.Context(), content, pooling{shape: shape}); err == nil {
				t.Error("accepted")
			}
		})
	}
	content, err := os.ReadFile("testdata/artifacts/bad-base-f32-5.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := poolBytes(t.Context(), content, pooling{shape: shape}); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

// FuzzArtifact: no file makes the reader panic, and what it accepts is finite and of the size it says.
func FuzzArtifact(f *testing.F) {
	f.Add(twoTokens())
	for _, pattern := range []string{"testdata/bad_artifacts/*.safetensors", "testdata/artifacts/tiny-*-[17].safetensors"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(content)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := poolBytes(t.Context(), content, pooling{})
		if err != nil {
			return
		}
		if got.Tokens < 1 || len(got.Values) != got.Layers*got.HiddenSize || len(got.Values) == 0 {
			t.Fatalf("%d tokens, %v, %d values", got.Tokens, got.Shape, len(got.Values))
		}
		for _, v := range got.Values {
			if v-v != 0 {
				t.Fatal("a value is not finite")
			}
		}
	})
}
