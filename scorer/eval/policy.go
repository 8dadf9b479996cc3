package eval

import (
	"math"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// policy is a trade-off applied to every row of a sample.
type policy struct {
	key                  string // of its figures in a sheet
	tradeOff             scorer.TradeOff
	strong               []float64 // 1 where it sends the row to the strong model
	quality              []float64 // the label of the target chosen, or its predicted probability
	always               []float64 // the same for always-strong
	judged               float64
	weakCost, strongCost float64
}

func (m *meter) newPolicy(key string, t scorer.TradeOff) policy {
	s := m.s
	rows := s.Rows()
	p := policy{
		key: key, tradeOff: t, strong: make([]float64, rows), quality: make([]float64, rows), always: make([]float64, rows),
		weakCost: s.WeakCost, strongCost: s.StrongCost,
	}
	for i := range rows {
		head := s.Weak
		if ChoosesStrong(t, s.Probabilities[s.Strong][i], s.Probabilities[s.Weak][i]) {
			head, p.strong[i] = s.Strong, 1
		}
		p.quality[i] = s.outcome(head, i)
		p.always[i] = s.outcome(s.Strong, i)
		if s.Labels[head][i] != labels.Missing {
			p.judged += 1 / float64(rows)
		}
	}
	return p
}

// outcome returns a head's label in a row, or what was predicted if there is none.
func (s *Sample) outcome(head, row int) float64 {
	if l := s.Labels[head][row]; l != labels.Missing {
		return right(l)
	}
	return s.Probabilities[head][row]
}

// ChoosesStrong reports whether a trade-off between a cheaper weak target, which
// stands last, and a strong one takes the strong: what [scorer.Choose] does with
// these means.
func ChoosesStrong(t scorer.TradeOff, strong, weak float64) bool {
	if w, ok := t.QualityWeight(); ok {
		return float64(w*strong)-(1-w) > float64(w*weak)
	}
	tolerance, _ := t.Tolerance()
	return weak < strong && weak < strong-tolerance
}

func (p *policy) measure(out *sheet, weights []float64) {
	total, share, quality, always := 0.0, 0.0, 0.0, 0.0
	for i, w := range weights {
		total += w
		share += w * p.strong[i]
		quality += w * p.quality[i]
		always += w * p.always[i]
	}
	if total == 0 {
		total = math.NaN()
	}
	share /= total
	cost := p.weakCost + share*(p.strongCost-p.weakCost)
	out.put(p.key, "share", share)
	out.put(p.key, "quality", quality/total)
	out.put(p.key, "cost", cost)
	out.put(p.key, "saving", 1-cost/p.strongCost)
	out.put(p.key, "loss", (always-quality)/total)
}
