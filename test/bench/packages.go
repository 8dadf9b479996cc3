package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// benchmark is one line of `go test -bench`.
type benchmark struct {
	Package string             `json:"package"`
	Name    string             `json:"name"`
	Metrics map[string]float64 `json:"metrics"` // by unit, such as ns/op
}

// packages runs the packages' own benchmarks, for what is not to be seen from outside:
// pooling in memory, the key, a cache of many entries.
func (b *bench) packages(ctx context.Context, r *report) error {
	goTool, err := exec.LookPath("go")
	if err != nil {
		b.sayf("  skipped: there is no go tool")
		return nil //nolint:nilerr // said
	}
	benchtime := "1s"
	if b.Quick {
		benchtime = "200ms"
	}
	args := []string{"test", "-run", "^$", "-benchmem", "-benchtime", benchtime, "-timeout", "1h"}
	for _, one := range []struct{ pattern, pkg string }{
		{"^Benchmark(Kernel|PoolFile)", "github.com/pointsman-dev/pointsman/probe"},
		{"^Benchmark(Product|Choose)", "github.com/pointsman-dev/pointsman/scorer"},
		{"^Benchmark(Key|LocalHit)$", "github.com/pointsman-dev/pointsman/cache"},
		{"^Benchmark(CallCached|ServedCached)$", "github.com/pointsman-dev/pointsman/server"},
	} {
		cmd := exec.CommandContext(ctx, goTool, append(args, "-bench", one.pattern, one.pkg)...) //nolint:gosec // the packages above
		cmd.Env = append(cmd.Environ(), fmt.Sprintf("POINTSMAN_BENCH_TEN_MILLION=%t", b.TenMillion))
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("benchmarks of %s: %w: %s", one.pkg, err, output.String())
		}
		found := parseBenchmarks(output.String())
		b.sayf("  %s: %d benchmarks", one.pkg, len(found))
		r.Benchmarks = append(r.Benchmarks, found...)
	}
	return nil
}

// parseBenchmarks reads the standard benchmark format.
func parseBenchmarks(text string) []benchmark {
	var (
		found []benchmark
		pkg   string
	)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 2 && fields[0] == "pkg:" {
			pkg = fields[1]
		}
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		one := benchmark{Package: pkg, Name: strings.TrimPrefix(fields[0], "Benchmark"), Metrics: map[string]float64{}}
		for i := 2; i+1 < len(fields); i += 2 {
			if value, err := strconv.ParseFloat(fields[i], 64); err == nil {
				one.Metrics[fields[i+1]] = value
			}
		}
		found = append(found, one)
	}
	return found
}
