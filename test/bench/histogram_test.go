package main

import (
	"math"
	"testing"
	"time"
)

func TestBucketsAreNarrowAndInOrder(t *testing.T) {
	last := -1
	for _, v := range []uint64{0, 1, 63, 64, 127, 128, 129, 130, 255, 256, 1000, 123_456, 1 << 40, math.MaxInt64} {
		i := bucketOf(v)
		if i < last {
			t.Errorf("the bucket of %d comes before that of a smaller value", v)
		}
		last = i
		if end := bucketEnd(i); end < v || float64(end-v) > float64(v)/subBuckets {
			t.Errorf("%d is in a bucket that ends at %d", v, end)
		}
		if bucketOf(bucketEnd(i)) != i || bucketOf(bucketEnd(i)+1) != i+1 {
			t.Errorf("the end of the bucket of %d is wrong", v)
		}
	}
}

func TestQuantiles(t *testing.T) {
	var a, b histogram
	for i := range 1000 {
		h := &a
		if i%2 == 0 {
			h = &b
		}
		h.add(time.Duration(i+1) * time.Microsecond)
	}
	a.merge(&b)
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{
		{0, time.Microsecond}, {0.5, 500 * time.Microsecond}, {0.99, 990 * time.Microsecond}, {1, time.Millisecond},
	} {
		got := a.quantile(c.q)
		if got < c.want || got > c.want+c.want/subBuckets {
			t.Errorf("quantile %v: %v, want %v", c.q, got, c.want)
		}
	}
	if got := new(histogram).quantile(0.5); got != 0 {
		t.Errorf("an empty histogram has the median %v", got)
	}
}
