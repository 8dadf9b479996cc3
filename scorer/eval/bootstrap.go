package eval

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Interval is a figure with its 95 % bootstrap interval. A figure that the data
// does not define is a nil *Interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// fixed reports whether a figure is the same in every resample, rounding aside.
func (i *Interval) fixed() bool { return i.High-i.Low < rounding }

// sheet is the figures of one resample, or of the sample itself, each with what
// it is of and its name. It is filled again for every resample.
type sheet struct {
	names  [][2]string
	values []float64
}

func (s *sheet) put(of, name string, value float64) {
	s.names = append(s.names, [2]string{of, name})
	s.values = append(s.values, value)
}

func (s *sheet) clear() { s.names, s.values = s.names[:0], s.values[:0] }

// clusters lists the rows of each task.
func clusters(tasks []int, rows int) [][]int {
	if tasks == nil {
		out := make([][]int, rows)
		for i := range out {
			out[i] = []int{i}
		}
		return out
	}
	at := map[int]int{}
	var out [][]int
	for i, t := range tasks {
		c, seen := at[t]
		if !seen {
			c = len(out)
			at[t] = c
			out = append(out, nil)
		}
		out[c] = append(out[c], i)
	}
	return out
}

// resampler draws as many tasks as there are, with replacement. The slice that it
// returns is used again.
func resampler(groups [][]int, rows int, rng *rand.Rand) func() []float64 {
	weights := make([]float64, rows)
	return func() []float64 {
		clear(weights)
		for range groups {
			for _, row := range groups[rng.IntN(len(groups))] {
				weights[row]++
			}
		}
		return weights
	}
}

// intervals measures the sample and runs resamples of it. measure must put the
// same names in the same order each time.
func intervals(measure func(out *sheet, weights []float64), rows, runs int, resample func() []float64) map[string]*Interval {
	var whole, drawn sheet
	measure(&whole, ones(rows))
	columns := make([][]float64, len(whole.values))
	for range runs {
		drawn.clear()
		measure(&drawn, resample())
		for i, v := range drawn.values {
			if !math.IsNaN(v) {
				columns[i] = append(columns[i], v)
			}
		}
	}
	out := make(map[string]*Interval, len(whole.names))
	for i, name := range whole.names {
		if math.IsNaN(whole.values[i]) {
			continue
		}
		slices.Sort(columns[i])
		out[name[0]+name[1]] = &Interval{
			Value: whole.values[i],
			Low:   quantile(columns[i], 0.025, whole.values[i]),
			High:  quantile(columns[i], 0.975, whole.values[i]),
		}
	}
	return out
}

// quantile of sorted values, linear between them.
func quantile(sorted []float64, q, absent float64) float64 {
	if len(sorted) == 0 {
		return absent
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
