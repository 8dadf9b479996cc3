package drift

import (
	"sync"
	"sync/atomic"
	"time"
)

// Least is how many scores either side of a comparison must have. Where nothing has
// moved, 200 on both sides and ten bins still give a [Distribution.PSI] of 0.09 on
// average, and seldom 0.2.
const Least = 200

// A window of live scores. It lasts an hour, so that one busy minute does not stand for
// the traffic, and until it has scores enough for their own chance to be small: but no
// longer than a day, so that a quiet route is seen too, and a shift is not hidden by
// scores of long ago.
const (
	windowAtLeast = time.Hour
	windowAtMost  = 24 * time.Hour
	windowScores  = 2000
)

// Live compares the scores of late with a distribution. It counts them in the
// distribution's bins, in the window that is open and the one before. It is safe for
// concurrent use; only the opening of a window takes a lock or allocates.
type Live struct {
	expected Distribution
	turning  sync.Mutex // held by the one who opens a window
	windows  atomic.Pointer[windows]
}

// windows are the open one and the one before, which may be nil.
type windows struct{ open, last *window }

// window is a histogram of the scores since it was opened.
type window struct {
	opened time.Time
	total  atomic.Int64
	counts []atomic.Int64 // a bin each
}

// NewLive begins a comparison with a valid distribution.
func NewLive(expected Distribution, now time.Time) *Live {
	l := &Live{expected: expected}
	l.windows.Store(&windows{open: l.newWindow(now)})
	return l
}

// Expected is the distribution that scores are compared with.
func (l *Live) Expected() Distribution { return l.expected }

// Add counts a score.
func (l *Live) Add(score float64, now time.Time) {
	w := l.at(now).open
	w.counts[l.expected.Bin(score)].Add(1)
	w.total.Add(1)
}

// PSI is the [Distribution.PSI] of the scores of late, and false while they, or those
// of the distribution, are fewer than [Least].
func (l *Live) PSI(now time.Time) (psi float64, ok bool) {
	both := l.at(now)
	counts := make([]float64, len(l.expected.Shares))
	total := 0.0
	for _, w := range []*window{both.open, both.last} {
		if w == nil {
			continue
		}
		for i := range w.counts {
			n := float64(w.counts[i].Load())
			counts[i] += n
			total += n
		}
	}
	if total < Least || l.expected.Count < Least {
		return 0, false
	}
	return l.expected.PSI(counts), true
}

// at returns the windows of a moment, and opens a new one if it is time. A score that
// is counted meanwhile may go to the one before, where it counts as much.
func (l *Live) at(now time.Time) *windows {
	both := l.windows.Load()
	if !both.open.over(now) {
		return both
	}
	l.turning.Lock()
	defer l.turning.Unlock()
	if both = l.windows.Load(); !both.open.over(now) {
		return both // somebody else was first
	}
	next := &windows{open: l.newWindow(now)}
	if now.Sub(both.open.opened) < 2*windowAtMost { // else nobody has looked for a day
		next.last = both.open
	}
	l.windows.Store(next)
	return next
}

func (l *Live) newWindow(now time.Time) *window {
	return &window{opened: now, counts: make([]atomic.Int64, len(l.expected.Shares))}
}

func (w *window) over(now time.Time) bool {
	age := now.Sub(w.opened)
	return age >= windowAtMost || age >= windowAtLeast && w.total.Load() >= windowScores
}
