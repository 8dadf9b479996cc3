//go:build race

package cache

// raceEnabled is true under the race detector, which makes sync.Pool drop objects and so makes allocation counts meaningless.
const raceEnabled = true
