// Package drift tells how far live scores have moved from those a checkpoint was
// made with.
//
// A [Distribution] is a histogram of one head's scores, kept beside a checkpoint;
// [PSI] compares two sets of shares over the same bins.
package drift

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// Bins is the usual number of bins of a population stability index.
const Bins = 10

// Distribution is a histogram of scores. Bin i reaches from Edges[i-1], inclusive,
// to Edges[i], exclusive; the first and the last are open to 0 and 1.
type Distribution struct {
	Edges  []float64 `json:"edges"`  // ascending, one fewer than the shares
	Shares []float64 `json:"shares"` // of all scores, a bin each; they add up to 1
	Count  int       `json:"count"`  // scores it was made from
}

// New makes a distribution with bins of about equal share; fewer bins if many
// scores are equal. Scores must not be empty.
func New(scores []float64, bins int) Distribution {
	sorted := slices.Clone(scores)
	slices.Sort(sorted)
	d := Distribution{Count: len(sorted)}
	for i := 1; i < bins; i++ {
		edge := sorted[i*len(sorted)/bins]
		if edge > sorted[0] && (len(d.Edges) == 0 || edge > d.Edges[len(d.Edges)-1]) {
			d.Edges = append(d.Edges, edge)
		}
	}
	counts := make([]float64, len(d.Edges)+1)
	for _, s := range sorted {
		counts[d.Bin(s)]++
	}
	d.Shares = make([]float64, len(counts))
	for i, c := range counts {
		d.Shares[i] = c / float64(len(sorted))
	}
	return d
}

// Bin returns the bin of a score.
func (d Distribution) Bin(score float64) int {
	return sort.Search(len(d.Edges), func(i int) bool { return score < d.Edges[i] })
}

// Validate checks a distribution that was read from a file.
func (d Distribution) Validate() error {
	if len(d.Shares) != len(d.Edges)+1 {
		return fmt.Errorf("%d shares between %d edges, want one more", len(d.Shares), len(d.Edges))
	}
	sum := 0.0
	for i, s := range d.Shares {
		if !(s >= 0 && s <= 1) {
			return fmt.Errorf("share %d is %v, want 0 to 1", i, s)
		}
		sum += s
	}
	if math.Abs(sum-1) > 1e-6 {
		return fmt.Errorf("the shares add up to %v, want 1", sum)
	}
	for i, e := range d.Edges {
		if !(e >= 0 && e <= 1) || i > 0 && e <= d.Edges[i-1] {
			return fmt.Errorf("edge %d is %v, want 0 to 1 and ascending", i, e)
		}
	}
	return nil
}

// PSI is the population stability index of live counts against the
// distribution's shares: the sum over the bins of (live - expected) *
// ln(live/expected), the symmetrised Kullback-Leibler divergence. Below 0.1 is
// usually called stable, above 0.25 a shift. Counts has a number a bin.
//
// An empty bin would make it infinite, so half a score is added to every bin of
// both sides. Where nothing has moved, n live scores in B bins still give (B-1)/n
// on average: with fewer than some hundred scores the value says little.
func (d Distribution) PSI(counts []float64) float64 {
	const half = 0.5
	total := 0.0
	for _, c := range counts {
		total += c
	}
	bins := float64(len(d.Shares))
	psi := 0.0
	for i, share := range d.Shares {
		expected := (share*float64(d.Count) + half) / (float64(d.Count) + half*bins)
		live := (counts[i] + half) / (total + half*bins)
		psi += (live - expected) * math.Log(live/expected)
	}
	return psi
}
