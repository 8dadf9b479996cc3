package test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkObservation measures what being observed costs a Decide that is answered
// from the local cache, over gRPC, with the access log on: without metrics and traces,
// with metrics, and with tracing of one call in a hundred beside. The services take turns of a fraction of a second, so that a busy machine is busy for all
// of them alike.
//
//	go test -run '^$' -bench Observation -benchtime 40x ./test
func BenchmarkObservation(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // what is lost is nothing to this test
	}))
	b.Cleanup(collector.Close)
	const (
		callers = 8
		turn    = 2000 // calls
	)
	traced := map[string]string{
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector.URL + "/v1/traces",
		"OTEL_TRACES_SAMPLER":                "parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG":            "0.01",
	}
	variants := []struct {
		name  string
		env   map[string]string
		world *world
		took  time.Duration
		cpu   time.Duration // of this process: service and callers
	}{
		{name: "none", env: map[string]string{"OTEL_SDK_DISABLED": "true"}},
		{name: "metrics"},
		{name: "traced-1%", env: traced},
	}
	for i := range variants {
		v := &variants[i]
		for key, value := range v.env {
			b.Setenv(key, value)
		}
		v.world = start(b, setup{logTo: io.Discard})
		v.world.decide(b, task("Again and again."))
		for key := range v.env {
			b.Setenv(key, "")
		}
	}
	for b.Loop() {
		for i := range variants {
			v := &variants[i]
			began, cpu := time.Now(), cpuTime(b)
			var group sync.WaitGroup
			for range callers {
				group.Go(func() {
					for range turn / callers {
						v.world.decide(b, task("Again and again."))
					}
				})
			}
			group.Wait()
			v.took += time.Since(began)
			v.cpu += cpuTime(b) - cpu
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, v := range variants {
		calls := float64(b.N) * turn
		b.ReportMetric(calls/v.took.Seconds(), v.name+"-calls/s")
		b.ReportMetric(v.cpu.Seconds()*1e6/calls, v.name+"-cpu-us/call")
	}
}

// cpuTime is the processor time this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
