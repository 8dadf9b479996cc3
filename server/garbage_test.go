package server

import "testing"

func TestGarbagePercent(t *testing.T) {
	for _, c := range []struct {
		name string
		heap int64
		want int
	}{
		{"nothing known", 0, 1600},
		{"a usual service", 32 << 20, 400},
		{"as large as the room", 128 << 20, 100},
		{"a million entries", 300 << 20, 100},
	} {
		if got := garbagePercent(c.heap); got != c.want {
			t.Errorf("%s: %d %%, want %d", c.name, got, c.want)
		}
	}
}
