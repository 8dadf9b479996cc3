package vllmsim

import (
	"math"
	"testing"
)

func TestF16SurvivesEveryValue(t *testing.T) {
	for bits := range 1 << 16 {
		v := fromF16(uint16(bits))
		if v != v {
			if back := fromF16(toF16(v)); back == back {
				t.Fatalf("%#04x: NaN becomes %v", bits, back)
			}
			continue
		}
		if got := toF16(v); got != uint16(bits) {
			t.Fatalf("%#04x is %v and comes back as %#04x", bits, v, got)
		}
	}
}

func TestRoundingIsToNearestEven(t *testing.T) {
	tests := []struct {
		name      string
		in        float32
		bf16, f16 float32
	}{
		{"exact", 1.5, 1.5, 1.5},
		{"bf16 tie goes down to even", 1 + 1.0/256, 1, 1 + 1.0/256},
		{"bf16 tie goes up to even", 1 + 3.0/256, 1 + 2.0/128, 1 + 3.0/256},
		{"bf16 just above the tie", 1 + 1.0/256 + 1.0/1024, 1 + 1.0/128, 1 + 1.0/256 + 1.0/1024},
		{"f16 tie goes down to even", 1 + 1.0/2048, 1, 1},
		{"f16 tie goes up to even", 1 + 3.0/2048, 1, 1 + 2.0/1024},
		{"f16 carry into the exponent", 2 - 1.0/2048, 2, 2},
		{"negative", -(1 + 3.0/2048), -1, -(1 + 2.0/1024)},
		{"f16 subnormal", 3.0 / (1 << 24), 3.0 / (1 << 24), 3.0 / (1 << 24)},
		{"f16 rounds up to normal", 1.0/(1<<14) - 1.0/(1<<26), 1.0 / (1 << 14), 1.0 / (1 << 14)},
		{"f16 largest", 65504, 65536, 65504},
		{"f16 below halfway to infinity", 65519, 65536, 65504},
		{"f16 halfway to infinity", 65520, 65536, float32(math.Inf(1))},
		{"smallest state", stateUnit, stateUnit, stateUnit},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := round(test.in, BF16); got != test.bf16 {
				t.Errorf("BF16: %v becomes %v, want %v", test.in, got, test.bf16)
			}
			if got := round(test.in, F16); got != test.f16 {
				t.Errorf("F16: %v becomes %v, want %v", test.in, got, test.f16)
			}
		})
	}
	if got := round(float32(math.NaN()), BF16); got == got {
		t.Errorf("BF16: NaN becomes %v", got)
	}
}

func TestWordsShareAVectorAndSpellingsDoNot(t *testing.T) {
	one := func(text string) int64 {
		t.Helper()
		ids := appendPieces(nil, text)
		if len(ids) != 1 {
			t.Fatalf("%q has %d tokens", text, len(ids))
		}
		return ids[0]
	}
	seen := map[int64]string{}
	for _, text := range []string{"prove", " prove", "Prove", " Prove", "PROVE"} {
		id := one(text)
		if other, taken := seen[id]; taken {
			t.Errorf("%q and %q have the same token", text, other)
		}
		seen[id] = text
		if wordOf(id) != wordOf(one("prove")) {
			t.Errorf("%q has another word than prove", text)
		}
		if id < firstWord {
			t.Errorf("%q has the id %d of a template token", text, id)
		}
	}
	if wordOf(one("prove")) == wordOf(one("proof")) {
		t.Error("prove and proof are the same word")
	}
}
