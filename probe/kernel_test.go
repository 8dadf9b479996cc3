package probe

import (
	"math"
	"testing"
)

// TestFloat16 compares every half float with its value computed from the standard's definition.
func TestFloat16(t *testing.T) {
	for b := range uint32(1 << 16) {
		sign, exponent, fraction := 1.0, int(b>>10&0x1f), float64(b&0x3ff)
		if b>>15 == 1 {
			sign = -1
		}
		var want float64
		switch {
		case exponent == 0x1f && fraction != 0:
			want = math.NaN()
		case exponent == 0x1f:
			want = math.Inf(int(sign))
		case exponent == 0:
			want = sign * math.Ldexp(fraction, -24)
		default:
			want = sign * math.Ldexp(1024+fraction, exponent-25)
		}
		got := float16(b)
		if math.IsNaN(want) {
			if !math.IsNaN(float64(got)) {
				t.Fatalf("float16(%#04x) = %v, want NaN", b, got)
			}
			continue
		}
		if math.Float32bits(got) != math.Float32bits(float32(want)) {
			t.Fatalf("float16(%#04x) = %v, want %v", b, got, want)
		}
	}
}

// TestKernels checks every kernel on lengths around its step, and that a vector of zeros of either sign is seen as one.
func TestKernels(t *testing.T) {
	half := map[float32][]byte{1: {0x00, 0x3c}, -2: {0x00, 0xc0}, 0.5: {0x00, 0x38}}
	encoders := map[string]func(float32) []byte{
		dtypeF32:  func(v float32) []byte { return f32s(v) },
		dtypeBF16: func(v float32) []byte { return bf16s(v) },
		dtypeF16:  func(v float32) []byte { return half[v] },
	}
	values := []float32{1, -2, 0.5}
	for dtype, encode := range encoders {
		t.Run(dtype, func(t *testing.T) {
			add, ok := kernelFor(dtype)
			if !ok {
				t.Fatal("no kernel")
			}
			for n := range 19 {
				var src []byte
				sums := make([]float32, n)
				for i := range n {
					src = append(src, encode(values[i%3])...)
					sums[i] = 10
				}
				if seen := add(sums, src); (seen == 0) != (n == 0) {
					t.Errorf("%d elements that are not zero: seen %#x", n, seen)
				}
				for i, sum := range sums {
					if want := 10 + values[i%3]; sum != want {
						t.Errorf("%d elements: sum %d is %v, want %v", n, i, sum, want)
					}
				}
				width, _ := dtypeBytes(dtype)
				zeros := make([]byte, n*int(width))
				for i := int(width) - 1; i < len(zeros); i += 2 * int(width) {
					zeros[i] = 0x80 // -0
				}
				if seen := add(sums, zeros); seen != 0 {
					t.Errorf("%d zeros: seen %#x, want 0", n, seen)
				}
				// Every place in the step counts: one value among zeros.
				for i := range n {
					one := make([]byte, n*int(width))
					copy(one[i*int(width):], encode(1))
					if add(sums, one) == 0 {
						t.Errorf("a value at %d of %d was not seen", i, n)
					}
				}
			}
		})
	}
}
