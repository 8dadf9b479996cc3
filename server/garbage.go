package server

import (
	"os"
	"runtime/debug"
)

const (
	// garbageRoom is how much garbage may gather before it is collected. The service is
	// small, a few tens of megabytes: Go would collect each time it has made as much
	// garbage again, a dozen times a second under load, which costs a tenth of the
	// processor time of cached answers.
	garbageRoom = 128 << 20
	// restOfHeap is what is in use beside cache and checkpoints: connections, buffers.
	restOfHeap int64 = 8 << 20
	// entryBytes is what a cached task takes; see BenchmarkCallCached.
	entryBytes = 300
	// usualPercent is Go's own: as much garbage as there is in use.
	usualPercent = 100
)

// tuneGarbage lets garbage gather up to [garbageRoom] where the environment does not say
// how much (GOGC). A heap that is larger than that is collected as usual, and a memory
// limit (GOMEMLIMIT) is kept all the same. It is the process's setting, so only the
// program itself calls it.
func (s *Server) tuneGarbage() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(garbagePercent(s.now.Load().heapEstimate()))
	}
}

// garbagePercent is the percentage of a heap in use that is [garbageRoom], or the usual
// one if that is more.
func garbagePercent(heap int64) int {
	return int(max(usualPercent, usualPercent*garbageRoom/max(heap, restOfHeap)))
}

// heapEstimate is what will be in use once the local cache is full.
func (g *generation) heapEstimate() int64 {
	const float32Bytes = 4
	heap := restOfHeap + int64(g.cfg.Cache.Local.MaxEntries)*entryBytes
	counted := map[string]bool{}
	for source := range g.snapshot.sources() {
		if digest := source.Checkpoint.Digest(); !counted[digest] {
			counted[digest] = true
			m := source.Checkpoint.Manifest()
			heap += int64(m.Layers) * int64(m.HiddenSize) * int64(m.PCADim) * float32Bytes
		}
	}
	return heap
}
