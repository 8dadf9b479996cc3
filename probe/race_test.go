//go:build race

package probe

// raceDetector makes pooling some twenty times slower.
const raceDetector = true
