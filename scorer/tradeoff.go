package scorer

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrNoTradeOff reports the zero TradeOff.
var ErrNoTradeOff = errors.New("no trade-off: set a quality weight or a tolerance")

// TradeOff says how predicted quality is weighed against cost. It is made by
// [QualityWeight] or [Tolerance]; the zero value is not valid.
type TradeOff struct {
	rule  rule
	value float64
}

type rule uint8

const (
	ruleQualityWeight rule = iota + 1
	ruleTolerance
)

// QualityWeight chooses the greatest utility w*p - (1-w)*c, with c the cost
// min-max normalised over the candidates and w from 0 (only cost counts) to 1
// (only quality counts). The literature calls w lambda.
func QualityWeight(w float64) TradeOff { return TradeOff{ruleQualityWeight, w} }

// Tolerance chooses the cheapest candidate whose probability is within t, from 0
// to 1, of the greatest.
func Tolerance(t float64) TradeOff { return TradeOff{ruleTolerance, t} }

// QualityWeight returns w, and whether t is a quality weight.
func (t TradeOff) QualityWeight() (w float64, ok bool) {
	if t.rule != ruleQualityWeight {
		return 0, false
	}
	return t.value, true
}

// Tolerance returns the tolerance, and whether t is one.
func (t TradeOff) Tolerance() (tolerance float64, ok bool) {
	if t.rule != ruleTolerance {
		return 0, false
	}
	return t.value, true
}

// Validate checks that t is set and its value a number from 0 to 1. The message
// names the field.
func (t TradeOff) Validate() error {
	name := t.rule.String()
	if name == "" {
		return ErrNoTradeOff
	}
	return checkUnit(name, t.value)
}

func (t TradeOff) String() string {
	if name := t.rule.String(); name != "" {
		return name + " " + strconv.FormatFloat(t.value, 'g', -1, 64)
	}
	return "no trade-off"
}

// String returns the name used in configuration and requests, or nothing.
func (r rule) String() string {
	switch r {
	case ruleQualityWeight:
		return "quality_weight"
	case ruleTolerance:
		return "tolerance"
	default:
		return ""
	}
}

// NeverChoosesDearer reports whether the dearest of candidates with these
// costs can never be chosen, whatever is predicted, although costs differ.
//
// The dearest has utility w*p - (1-w) <= 2w-1, the cheapest w*p >= 0. So with
// w < 1/2 the cheapest is always ahead; with w = 1/2 they can only be equal, and
// equal utilities go to the later in the list. A tolerance of 1 lets every
// candidate pass and the cheapest win; there is no other such tolerance.
func (t TradeOff) NeverChoosesDearer(costs []float64) bool {
	cheapest, dearest := lastExtremes(costs)
	if len(costs) == 0 || costs[cheapest] == costs[dearest] {
		return false
	}
	if tolerance, ok := t.Tolerance(); ok {
		return tolerance == 1
	}
	w, ok := t.QualityWeight()
	return ok && (w < 0.5 || w == 0.5 && dearest < cheapest)
}

// lastExtremes returns the last positions of the least and of the greatest cost.
func lastExtremes(costs []float64) (least, greatest int) {
	for i, c := range costs {
		if c <= costs[least] {
			least = i
		}
		if c >= costs[greatest] {
			greatest = i
		}
	}
	return least, greatest
}

// checkCost checks that a candidate's cost is a finite number from 0 up.
func checkCost(candidate int, cost float64) error {
	if !(cost >= 0 && cost-cost == 0) { // written so that NaN fails; inf-inf is NaN
		return fmt.Errorf("%w: cost of candidate %d is %v, want a finite number from 0 up", ErrRange, candidate, cost)
	}
	return nil
}
