package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBenchmarksAreRead(t *testing.T) {
	got := parseBenchmarks(`goos: linux
pkg: example.com/a
BenchmarkKey/task=1KiB-2   	 1000000	      1234 ns/op	 829.82 MB/s	       0 B/op	       0 allocs/op
BenchmarkBroken
PASS
ok  	example.com/a	1.2s
`)
	want := []benchmark{{
		Package: "example.com/a", Name: "Key/task=1KiB-2",
		Metrics: map[string]float64{"ns/op": 1234, "MB/s": 829.82, "B/op": 0, "allocs/op": 0},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
