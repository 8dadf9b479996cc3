package scorer

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// compareScalings checks that both ways give the same bits, or the same error.
func compareScalings(t *testing.T, s scaling, x []float32) {
	t.Helper()
	if !canVectorise {
		t.Skip("no vector instructions")
	}
	want, got := make([]float64, len(x)), make([]float64, len(x))
	wantErr := s.applyPortably(want, x, 0)
	done := s.applyVectorised(got, x)
	gotErr := s.applyPortably(got, x, done)
	switch {
	case wantErr != nil || gotErr != nil:
		if wantErr == nil || gotErr == nil || wantErr.Error() != gotErr.Error() {
			t.Fatalf("%d features: vectorised %v, portable %v", len(x), gotErr, wantErr)
		}
	case done != len(x)&^7:
		t.Fatalf("%d features: only %d vectorised", len(x), done)
	case !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }):
		t.Fatalf("%d features: vectorised %v, portable %v", len(x), got, want)
	}
}

func TestStandardisingIsTheSameEverywhere(t *testing.T) {
	for _, n := range []int{1, 7, 8, 9, 16, 100, 32_768, 3*32_768 + 13} {
		s := scaling{mean: randomValues(n, 1), scale: randomValues(n, 2), centre: randomValues(n, 3)}
		x := randomValues(n, 4)
		compareScalings(t, s, x)
		for _, bad := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
			for _, at := range []int{0, n / 2, n - 1} {
				spoilt := slices.Clone(x)
				spoilt[at] = float32(bad)
				compareScalings(t, s, spoilt)
			}
		}
	}
}

func FuzzStandardise(f *testing.F) {
	f.Add([]byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x80, 1, 0, 0, 0, 0xff, 0xff, 0x7f, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		n := len(data) / 16
		if n == 0 {
			return
		}
		next := func() []float32 {
			values := make([]float32, n)
			for i := range values {
				values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data))
				data = data[4:]
			}
			return values
		}
		compareScalings(t, scaling{mean: next(), scale: next(), centre: next()}, next())
	})
}
