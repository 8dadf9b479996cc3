package main

import (
	"context"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkServe makes calls over loopback to servers in processes of their own, by 16
// callers at a time. cpu-ns/op is the server's processor time, which other work on the
// machine disturbs less than ns/op.
func BenchmarkServe(b *testing.B) {
	bin := buildSelf(b)
	run := &bench{runCmd: &runCmd{Conns: 4}, dir: b.TempDir(), ram: b.TempDir(), progress: b.Output()}
	p := &processes{dir: run.dir, self: bin}
	b.Cleanup(func() {
		if err := p.stop(); err != nil {
			b.Error(err)
		}
	})
	ways, err := run.ways(b.Context(), p)
	if err != nil {
		b.Fatal(err)
	}
	for _, w := range ways {
		b.Run(w.Name, func(b *testing.B) {
			before, err := w.server.read(b.Context(), true)
			if err != nil {
				b.Fatal(err)
			}
			var next atomic.Int64
			b.SetParallelism(8) // callers a core
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
					if err := w.do(ctx, int(next.Add(1))); err != nil {
						b.Error(err)
					}
					cancel()
				}
			})
			b.StopTimer()
			after, err := w.server.read(b.Context(), false)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(after.CPU-before.CPU)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "server-allocs/op")
		})
	}
}

// buildSelf builds this program, which the benchmark's own binary cannot play.
func buildSelf(b *testing.B) string {
	b.Helper()
	path := b.TempDir() + "/bench"
	if output, err := goBuild(b.Context(), path); err != nil {
		b.Fatalf("%v: %s", err, output)
	}
	return path
}

func goBuild(ctx context.Context, path string) ([]byte, error) {
	return exec.CommandContext(ctx, "go", "build", "-o", path, ".").CombinedOutput()
}
