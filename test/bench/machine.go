package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// machine says where the numbers were made.
type machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	OS    string `json:"os"`
	Go    string `json:"go"`
}

func lookAtMachine() machine {
	m := machine{CPU: runtime.GOARCH, Cores: runtime.NumCPU(), OS: runtime.GOOS, Go: runtime.Version()}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m // another system than Linux: the architecture must do
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	return m
}

// ramDir is a folder in memory, or the ordinary one for temporary files.
func ramDir() string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err == nil && info.IsDir() {
		return shm
	}
	return os.TempDir()
}

// bandwidthBytes is how much memory is read at a time: far more than the caches hold.
const bandwidthBytes = 512 << 20

// memoryBandwidth returns how many bytes a second the given number of cores read from
// memory at once, in the best of a few tries. The standard library's search for a byte
// that is not there does the reading: it has vector code and does next to nothing else.
func memoryBandwidth(cores int) float64 {
	data := make([]byte, bandwidthBytes)
	for i := range data { // else all of it would be one page of zeros
		data[i] = 2
	}
	part := len(data) / cores
	best := time.Duration(0)
	const tries = 5
	for range tries {
		var wg sync.WaitGroup
		began := time.Now()
		for c := range cores {
			wg.Go(func() {
				if bytes.IndexByte(data[c*part:(c+1)*part], 1) >= 0 {
					panic("memory changed by itself")
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); best == 0 || took < best {
			best = took
		}
	}
	return float64(part*cores) / best.Seconds()
}

// readFile reads a file piece by piece into one buffer, as a pooling that did nothing
// with what it read would.
func readFile(path string) (time.Duration, error) {
	began := time.Now()
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	buf := make([]byte, 256<<10)
	for {
		if _, err := file.Read(buf); err == io.EOF {
			return time.Since(began), nil
		} else if err != nil {
			return 0, err
		}
	}
}

// turns has each of several things measured once a round, and returns the median of
// each. The first round does not count: it warms up.
func turns(ctx context.Context, rounds int, things ...func() (time.Duration, error)) ([]time.Duration, error) {
	all := make([][]time.Duration, len(things))
	for round := range rounds + 1 {
		for i, thing := range things {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			took, err := thing()
			if err != nil {
				return nil, err
			}
			if round > 0 {
				all[i] = append(all[i], took)
			}
		}
	}
	medians := make([]time.Duration, len(things))
	for i := range all {
		medians[i] = median(all[i])
	}
	return medians, nil
}

// median returns the middle value, the lower of two.
func median[T cmp.Ordered](values []T) T {
	if len(values) == 0 {
		var none T
		return none
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}

func contains(list []string, s string) bool { return slices.Contains(list, s) }

// perSecond words a rate in bytes.
func gbPerSecond(bytes int64, took time.Duration) float64 {
	return float64(bytes) / took.Seconds() / 1e9
}

// brief words a duration with three digits.
func brief(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", float64(d)/float64(time.Microsecond))
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
}
