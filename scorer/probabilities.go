package scorer

import (
	"fmt"
	"math"
)

// Probabilities holds the predicted probability of a correct answer, for each
// head by each member of the ensemble. Heads are independent of one another:
// they do not add up to 1.
type Probabilities struct {
	Members, Heads int
	Values         []float32 // row-major [Members, Heads], each in [0,1]
}

// At returns the probability of a head by one member.
func (p Probabilities) At(member, head int) float64 {
	return float64(p.Values[member*p.Heads+head])
}

// Mean returns the ensemble's probability of a head: the mean over the members.
func (p Probabilities) Mean(head int) float64 {
	sum := 0.0
	for m := range p.Members {
		sum += p.At(m, head)
	}
	return sum / float64(p.Members)
}

// Validate checks that the sizes agree and that every value is finite and in
// [0,1]. Whoever gets probabilities from outside (a cache) must call it before
// the other methods, which trust them.
func (p Probabilities) Validate() error {
	if p.Members <= 0 || p.Heads <= 0 {
		return fmt.Errorf("%w: probabilities of %d members by %d heads, want at least one of each", ErrShape, p.Members, p.Heads)
	}
	// Divided, since the product may overflow.
	if len(p.Values)%p.Heads != 0 || len(p.Values)/p.Heads != p.Members {
		return fmt.Errorf("%w: %d probabilities for %d members by %d heads", ErrShape, len(p.Values), p.Members, p.Heads)
	}
	for i, v := range p.Values {
		member, head := i/p.Heads, i%p.Heads
		switch {
		case !finite(v):
			return fmt.Errorf("%w: probability of head %d by member %d", ErrNonFinite, head, member)
		case v < 0 || v > 1:
			return fmt.Errorf("%w: probability of head %d by member %d is %v, want 0 to 1", ErrRange, head, member, v)
		}
	}
	return nil
}

// checkUnit checks that v is a number from 0 to 1.
func checkUnit(name string, v float64) error {
	if math.IsNaN(v) || v < 0 || v > 1 {
		return fmt.Errorf("%w: %s is %v, want 0 to 1", ErrRange, name, v)
	}
	return nil
}
