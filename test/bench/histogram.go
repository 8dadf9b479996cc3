package main

import (
	"math/bits"
	"time"
)

// subBuckets is how many buckets every doubling has: values are kept within 1/64.
const (
	subBits    = 6
	subBuckets = 1 << subBits
)

// histogram counts durations in buckets whose width grows with the value, after the
// manner of HdrHistogram. The zero value is empty.
type histogram struct {
	counts [64 * subBuckets]uint64
	total  uint64
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucketOf(uint64(max(d, 0)))]++
	h.total++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
}

// quantile returns the least duration, to the upper end of its bucket, that the part q
// of all values does not exceed; 0 for an empty histogram.
func (h *histogram) quantile(q float64) time.Duration {
	wanted := uint64(q*float64(h.total) + 0.5)
	wanted = min(max(wanted, 1), h.total)
	var seen uint64
	for i, n := range h.counts {
		if seen += n; n > 0 && seen >= wanted {
			return time.Duration(bucketEnd(i))
		}
	}
	return 0
}

// bucketOf returns the bucket of v: below 2*subBuckets each value has its own; above,
// the leading subBits+1 bits decide.
func bucketOf(v uint64) int {
	shift := max(bits.Len64(v)-subBits-1, 0)
	return shift*subBuckets + int(v>>shift)
}

// bucketEnd returns the greatest value of a bucket.
func bucketEnd(i int) uint64 {
	shift := max(i/subBuckets-1, 0)
	return uint64(i-shift*subBuckets+1)<<shift - 1
}
