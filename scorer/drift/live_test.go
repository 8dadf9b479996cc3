package drift

import (
	"math"
	"sync"
	"testing"
	"time"
)

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	// halves has as many scores below a half as above.
	halves = Distribution{Edges: []float64{0.5}, Shares: []float64{0.5, 0.5}, Count: 999}
)

func addLow(l *Live, n int, now time.Time)  { addAll(l, 0.2, n, now) }
func addHigh(l *Live, n int, now time.Time) { addAll(l, 0.7, n, now) }

func addAll(l *Live, score float64, n int, now time.Time) {
	for range n {
		l.Add(score, now)
	}
}

// By hand: 299 low and 99 high scores, with the half that is added to each, are shares
// of 299.5/399 and 99.5/399; expected are 1/2 each. With d = 100/399, the index is
// d ln(299.5/199.5) - d ln(99.5/199.5) = d ln(299.5/99.5) = 0.27620.
func TestLivePSIByHand(t *testing.T) {
	l := NewLive(halves, start)
	addLow(l, 299, start)
	addHigh(l, 99, start.Add(time.Minute))
	got, ok := l.PSI(start.Add(time.Minute))
	want := 100.0 / 399 * math.Log(299.5/99.5)
	if !ok || math.Abs(got-want) > 1e-12 || math.Abs(got-0.2762) > 1e-4 {
		t.Errorf("PSI %v %v, want %v", got, ok, want)
	}
}

func TestFewScoresSayNothing(t *testing.T) {
	l := NewLive(halves, start)
	addLow(l, Least-1, start)
	if psi, ok := l.PSI(start); ok {
		t.Errorf("PSI %v of %d scores", psi, Least-1)
	}
	addLow(l, 1, start)
	if _, ok := l.PSI(start); !ok {
		t.Errorf("no PSI of %d scores", Least)
	}
	few := halves
	few.Count = Least - 1
	l = NewLive(few, start)
	addLow(l, Least, start)
	if psi, ok := l.PSI(start); ok {
		t.Errorf("PSI %v against %d scores", psi, few.Count)
	}
}

// TestWindowsTurn follows what is counted as time goes by: low scores first, then high
// ones.
func TestWindowsTurn(t *testing.T) {
	for _, c := range []struct {
		name      string
		low, high int
		highAfter time.Duration
		// what is counted when the high ones are there, and a day and two days later
		now, aDay, twoDays int
	}{
		{"all in one window, however many", 5000, 500, windowAtLeast - 1, 5500, 5500, 0},
		{"a full window ends after an hour", 5000, 500, windowAtLeast, 5500, 500, 0},
		{"one that is not full ends after a day", 500, 500, windowAtMost, 1000, 500, 0},
		{"nor before", 500, 500, windowAtMost - 1, 1000, 1000, 0},
		{"what is two days old is gone", 500, 500, 2 * windowAtMost, 500, 500, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := NewLive(halves, start)
			addLow(l, c.low, start)
			then := start.Add(c.highAfter)
			addHigh(l, c.high, then)
			for later, want := range []int{c.now, c.aDay, c.twoDays} {
				at := then.Add(time.Duration(later) * windowAtMost)
				if _, ok := l.PSI(at); ok != (want > 0) || counted(l) != want {
					t.Errorf("after %d more days: %d counted, reported %v, want %d", later, counted(l), ok, want)
				}
			}
		})
	}
}

func counted(l *Live) int {
	both := l.windows.Load()
	total := both.open.total.Load()
	if both.last != nil {
		total += both.last.total.Load()
	}
	return int(total)
}

func TestAddIsForMany(t *testing.T) {
	const adders, each = 8, windowScores
	l := NewLive(halves, start)
	var all sync.WaitGroup
	for i := range adders {
		all.Go(func() {
			for j := range each {
				// All meet the first window's end.
				l.Add(float64(i)/adders, start.Add(time.Duration(j)*2*windowAtLeast/each))
				if j%100 == 0 {
					l.PSI(start)
				}
			}
		})
	}
	all.Wait()
	if n := counted(l); n != adders*each {
		t.Errorf("%d scores counted, want %d", n, adders*each)
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	l := NewLive(New([]float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}, Bins), start)
	if got := testing.AllocsPerRun(1000, func() { l.Add(0.55, start) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkAdd(b *testing.B) {
	l := NewLive(New([]float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}, Bins), start)
	b.ReportAllocs()
	for b.Loop() {
		l.Add(0.55, start)
	}
}
