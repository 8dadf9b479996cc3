package scorer

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"
)

// Candidate is something that can be chosen: a head of the checkpoint and what
// choosing it costs, in any unit the candidates share.
type Candidate struct {
	Head int
	Cost float64 // finite, from 0 up
}

// Choice is what Choose found.
type Choice struct {
	Index int // of the chosen candidate
	// Margin is how far the choice is from tipping, in the trade-off's own unit:
	// utility for a quality weight, probability for a tolerance. Never negative.
	Margin float64
	// Confidence, 0.5 to 1, is how stable the choice is over the ensemble: the
	// chance that one more member drawn like these agrees. Nil for one member. It
	// is not the chance that the chosen model answers correctly.
	Confidence *float64
	Scores     []CandidateScore // in the order of the candidates
}

// CandidateScore is how one candidate was judged.
type CandidateScore struct {
	Probability    float64  // mean over the members
	Stddev         *float64 // sample standard deviation over the members; nil for one
	NormalizedCost float64  // min-max scaled over the candidates; all 0 if equal
	Utility        float64  // under a tolerance: the probability
}

// minCandidates is the fewest between which there is something to choose.
const minCandidates = 2

// Choose picks one of two or more candidates. Between equally good ones it takes
// the later in the list.
//
// Under a quality weight w the greatest utility w*p - (1-w)*c wins; the margin
// is its distance to the best other. Under a tolerance t the cheapest candidate
// with p >= p_max - t wins; the margin is the smallest, over the others o, of
// p_choice - (p_o - t), or of (p_max - t) - p_o if o is cheaper.
//
// The errors are [ErrShape], [ErrNonFinite], [ErrRange] and [ErrNoTradeOff].
func Choose(p Probabilities, candidates []Candidate, t TradeOff) (Choice, error) {
	if err := t.Validate(); err != nil {
		return Choice{}, err
	}
	if err := p.Validate(); err != nil {
		return Choice{}, err
	}
	if err := checkCandidates(candidates, p.Heads); err != nil {
		return Choice{}, err
	}

	column := make([]float64, p.Members) // one value a member; used for one thing after another
	c := Choice{Scores: score(p, candidates, t, column)}
	var closest contest
	if w, ok := t.QualityWeight(); ok {
		c.Index, closest = chooseByUtility(c.Scores, w)
	} else {
		tolerance, _ := t.Tolerance()
		c.Index, closest = chooseWithin(c.Scores, candidates, tolerance)
	}

	c.Margin = closest.margin(c.Scores[closest.ahead].Probability, c.Scores[closest.behind].Probability)
	c.Margin = max(0, c.Margin) // rounding may leave a tie just below 0
	if p.Members > 1 {
		for m := range column {
			column[m] = closest.margin(p.At(m, candidates[closest.ahead].Head), p.At(m, candidates[closest.behind].Head))
		}
		c.Confidence = new(confidence(column))
	}
	return c, nil
}

func checkCandidates(candidates []Candidate, heads int) error {
	if len(candidates) < minCandidates {
		return fmt.Errorf("%w: %d candidates, want at least %d", ErrShape, len(candidates), minCandidates)
	}
	for i, c := range candidates {
		if c.Head < 0 || c.Head >= heads {
			return fmt.Errorf("%w: candidate %d has head %d, the checkpoint has %d", ErrShape, i, c.Head, heads)
		}
		if err := checkCost(i, c.Cost); err != nil {
			return err
		}
	}
	return nil
}

// score judges every candidate by the ensemble's mean. column is room for one value a member.
func score(p Probabilities, candidates []Candidate, t TradeOff, column []float64) []CandidateScore {
	least, greatest := math.Inf(1), math.Inf(-1)
	for _, c := range candidates {
		least, greatest = min(least, c.Cost), max(greatest, c.Cost)
	}
	scores := make([]CandidateScore, len(candidates))
	var spreads []float64 // one array for all
	if p.Members > 1 {
		spreads = make([]float64, len(candidates))
	}
	for i, c := range candidates {
		s := &scores[i]
		s.Probability = p.Mean(c.Head)
		if p.Members > 1 {
			for m := range column {
				column[m] = p.At(m, c.Head)
			}
			spreads[i] = stat.StdDev(column, nil)
			s.Stddev = &spreads[i]
		}
		if greatest > least {
			s.NormalizedCost = (c.Cost - least) / (greatest - least)
		}
		s.Utility = s.Probability
		if w, ok := t.QualityWeight(); ok {
			s.Utility = utility(w, s.Probability, s.NormalizedCost)
		}
	}
	return scores
}

// utility is w*p - (1-w)*c with c in [0,1], after the format's own policy. The
// conversions keep a compiler with fused multiply-add from rounding two equal
// utilities differently, which would break a tie.
func utility(w, p, normalizedCost float64) float64 {
	return float64(w*p) - float64((1-w)*normalizedCost)
}

// contest is the comparison in which a choice is closest to tipping, found from
// the ensemble's mean and then put to every member: it is linear, so that the
// mean of the members' margins is the ensemble's.
type contest struct {
	ahead, behind int     // candidates
	weight        float64 // of their probabilities' difference
	lead          float64 // what ahead has besides, in the unit of the margin
}

// margin is by how much the one ahead is, given the probabilities of both.
func (c contest) margin(ahead, behind float64) float64 {
	return c.weight*(ahead-behind) + c.lead
}

// chooseByUtility returns the candidate of the greatest utility and its contest
// with the best of the others; the later of equals.
func chooseByUtility(scores []CandidateScore, w float64) (chosen int, closest contest) {
	best, other := 0, -1
	for i := 1; i < len(scores); i++ {
		switch {
		case scores[i].Utility >= scores[best].Utility:
			best, other = i, best
		case other < 0 || scores[i].Utility >= scores[other].Utility:
			other = i
		}
	}
	return best, contest{
		ahead: best, behind: other, weight: w,
		lead: (1 - w) * (scores[other].NormalizedCost - scores[best].NormalizedCost),
	}
}

// chooseWithin returns the cheapest candidate whose probability is within the
// tolerance of the greatest, the later of equally cheap ones, and its closest
// contest: with a candidate that is not cheaper, which wins once the chosen one
// falls out of its tolerance; or that of the most probable candidate with a
// cheaper one, which wins once it comes within the tolerance.
func chooseWithin(scores []CandidateScore, candidates []Candidate, tolerance float64) (chosen int, closest contest) {
	top := 0
	for i, s := range scores {
		if s.Probability >= scores[top].Probability {
			top = i
		}
	}
	chosen = top
	for i, s := range scores {
		if s.Probability < scores[top].Probability-tolerance {
			continue
		}
		cheaper := candidates[i].Cost < candidates[chosen].Cost
		if cheaper || candidates[i].Cost == candidates[chosen].Cost && i > chosen {
			chosen = i
		}
	}

	least := math.Inf(1)
	for o := range scores {
		if o == chosen {
			continue
		}
		c := contest{ahead: chosen, behind: o, weight: 1, lead: tolerance}
		if candidates[o].Cost < candidates[chosen].Cost {
			c = contest{ahead: top, behind: o, weight: 1, lead: -tolerance}
		}
		if margin := c.margin(scores[c.ahead].Probability, scores[c.behind].Probability); margin <= least {
			least, closest = margin, c
		}
	}
	return chosen, closest
}
