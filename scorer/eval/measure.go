package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// Options say how a sample is measured.
type Options struct {
	Resamples int    // of the bootstrap; 0: 1,000
	Seed      uint64 // of the bootstrap
	// Policies are trade-offs to report on besides the sweep.
	Policies []scorer.TradeOff
}

const (
	defaultResamples = 1000
	// perfectRuns is enough for the mean of an ECE to less than 1e-3.
	perfectRuns   = 400
	sweepSteps    = 20 // tolerances 0, 0.05, …, 1
	histogramBins = 20
	// curvePoints bounds the curve in a report; figures use every point.
	curvePoints = 200
	// minGroup is the least number of paired rows for the figures of a group.
	minGroup = 20
)

// meter holds what is the same for every resample.
type meter struct {
	s        *Sample
	heads    []ranking // by each head's probability
	headKeys []string  // of their figures in a sheet
	priors   []ranking
	routers  []router
	// weak and gain are the correctness of the weak model and what the strong one
	// adds, on paired rows; both 0 elsewhere, where paired is 0 too.
	weak, gain, paired []float64
	policies           []policy
	groups             []group
	buffer             []point
	masked             []float64
}

// router is one way to order the tasks.
type router struct {
	name    string
	key     string // of its figures in a sheet
	ranking ranking
	picks   []float64 // 1 where it takes the strong head, cost aside; nil: it has no opinion
}

// group is a group's rows, ranked among themselves.
type group struct {
	name   string
	key    string
	rows   []float64 // 1 for its paired rows
	count  int
	router ranking
	weak   ranking
	strong ranking
}

// Measure reports on a sample.
func Measure(s *Sample, o Options) (*Report, error) {
	if err := s.validate(true); err != nil {
		return nil, err
	}
	return measure(s, o, false)
}

// measure reports on a valid sample: on all of it, or on the trade-offs alone.
func measure(s *Sample, o Options, policiesOnly bool) (*Report, error) {
	for _, t := range o.Policies {
		if err := t.Validate(); err != nil {
			return nil, err
		}
	}
	if o.Resamples == 0 {
		o.Resamples = defaultResamples
	}
	m := newMeter(s, o)
	measure := m.measure
	if policiesOnly {
		measure = m.measurePolicies
	}
	rng := rand.New(rand.NewPCG(o.Seed, 2))
	resample := resampler(clusters(s.Tasks, s.Rows()), s.Rows(), rng)
	found := intervals(measure, s.Rows(), o.Resamples, resample)
	r := &Report{
		Name: s.Name, Digest: s.Digest, Rows: s.Rows(), Paired: len(s.paired()),
		Strong: s.Heads[s.Strong], Weak: s.Heads[s.Weak], StrongCost: s.StrongCost, WeakCost: s.WeakCost,
		Resamples: o.Resamples, Notes: s.Notes,
	}
	m.fillPolicies(r, found)
	if policiesOnly {
		return r, nil
	}
	for h := range s.Heads {
		r.Heads = append(r.Heads, m.head(h, found, rng, resample))
	}
	m.fillRouters(r, found)
	for _, g := range m.groups {
		key := g.key
		r.Groups = append(r.Groups, GroupReport{
			Name: g.name, Rows: g.count, WeakRate: found[key+"weak"], StrongRate: found[key+"strong"],
			WeakAUC: found[key+"weak_auc"], StrongAUC: found[key+"strong_auc"], APGR: found[key+"apgr"],
		})
	}
	return r, nil
}

func newMeter(s *Sample, o Options) *meter {
	rows := s.Rows()
	m := &meter{s: s, weak: make([]float64, rows), gain: make([]float64, rows), paired: make([]float64, rows), masked: make([]float64, rows)}
	priors := make([][]float64, len(s.Heads))
	for h := range s.Heads {
		m.heads = append(m.heads, rank(s.Probabilities[h]))
		m.headKeys = append(m.headKeys, "head/"+strconv.Itoa(h)+"/")
		if s.Groups != nil {
			priors[h] = s.priorOf(h)
			m.priors = append(m.priors, rank(priors[h]))
		}
	}
	for _, i := range s.paired() {
		m.paired[i] = 1
		m.weak[i] = right(s.Labels[s.Weak][i])
		m.gain[i] = right(s.Labels[s.Strong][i]) - m.weak[i]
	}
	m.addRouter("router", s.Probabilities[s.Strong], s.Probabilities[s.Weak])
	if s.Groups != nil {
		m.addRouter("group prior", priors[s.Strong], priors[s.Weak])
	}
	// The oracle's order: first where only the strong model is right, last where only
	// the weak one is.
	m.addRouter("oracle", m.gain, make([]float64, rows))
	m.routers = append(m.routers, router{name: "random", key: "router/random/", ranking: rank(make([]float64, rows))})
	for i := range sweepSteps + 1 {
		m.policies = append(m.policies, m.newPolicy(policyKey(i), scorer.Tolerance(float64(i)/sweepSteps)))
	}
	for _, t := range o.Policies {
		m.policies = append(m.policies, m.newPolicy(policyKey(len(m.policies)), t))
	}
	for _, name := range s.groupNames() {
		if g, ok := m.newGroup(name); ok {
			m.groups = append(m.groups, g)
		}
	}
	return m
}

func right(l labels.Label) float64 {
	if l == labels.Right {
		return 1
	}
	return 0
}

// addRouter adds a router that orders by strong - weak and, cost aside, takes the
// greater; of equal ones the weak.
func (m *meter) addRouter(name string, strong, weak []float64) {
	difference := make([]float64, len(strong))
	picks := make([]float64, len(strong))
	for i := range strong {
		difference[i] = strong[i] - weak[i]
		if difference[i] > 0 {
			picks[i] = 1
		}
	}
	m.routers = append(m.routers, router{name: name, key: "router/" + name + "/", ranking: rank(difference), picks: picks})
}

func (m *meter) newGroup(name string) (group, bool) {
	g := group{name: name, key: "group/" + name + "/", rows: make([]float64, m.s.Rows())}
	for i := range m.s.Rows() {
		if m.s.group(i) == name {
			g.rows[i] = m.paired[i]
			g.count += int(m.paired[i])
		}
	}
	if g.count < minGroup {
		return group{}, false
	}
	within := func(r ranking) ranking {
		var out ranking
		first := 0
		for _, end := range r.ends {
			for _, i := range r.order[first:end] {
				if g.rows[i] > 0 {
					out.order = append(out.order, i)
				}
			}
			first = end
			if n := len(out.order); n > 0 && (len(out.ends) == 0 || out.ends[len(out.ends)-1] != n) {
				out.ends = append(out.ends, n)
			}
		}
		return out
	}
	g.router = within(m.routers[0].ranking)
	g.weak, g.strong = within(m.heads[m.s.Weak]), within(m.heads[m.s.Strong])
	return g, true
}

// measure computes every figure of a resample.
func (m *meter) measure(out *sheet, weights []float64) {
	for h := range m.s.Heads {
		key := m.headKeys[h]
		out.put(key, "rate", rate(weights, m.s.Labels[h]))
		out.put(key, "auc", m.heads[h].auc(weights, m.s.Labels[h]))
		if m.priors != nil {
			out.put(key, "prior", m.priors[h].auc(weights, m.s.Labels[h]))
		}
		out.put(key, "ece", ece(fill(m.s.Probabilities[h], m.s.Labels[h], weights)))
	}
	m.measureRouters(out, m.mask(weights, m.paired))
	for i := range m.policies {
		m.policies[i].measure(out, weights)
	}
	for _, g := range m.groups {
		w := m.mask(weights, g.rows)
		m.buffer = g.router.curve(m.buffer[:0], w, m.weak, m.gain)
		weak, strong := math.NaN(), math.NaN()
		if len(m.buffer) > 0 {
			weak, strong = m.buffer[0].quality, m.buffer[len(m.buffer)-1].quality
		}
		out.put(g.key, "weak", weak)
		out.put(g.key, "strong", strong)
		out.put(g.key, "weak_auc", g.weak.auc(w, m.s.Labels[m.s.Weak]))
		out.put(g.key, "strong_auc", g.strong.auc(w, m.s.Labels[m.s.Strong]))
		out.put(g.key, "apgr", measureCurve(m.buffer, m.s.WeakCost, m.s.StrongCost).apgr)
	}
}

// measurePolicies computes the figures of the trade-offs alone.
func (m *meter) measurePolicies(out *sheet, weights []float64) {
	for i := range m.policies {
		m.policies[i].measure(out, weights)
	}
}

func policyKey(i int) string { return "policy/" + strconv.Itoa(i) + "/" }

func (m *meter) measureRouters(out *sheet, weights []float64) {
	total, weak, oracle := 0.0, 0.0, 0.0
	strong := 0.0
	for i, w := range weights {
		total += w
		weak += w * m.weak[i]
		strong += w * (m.weak[i] + m.gain[i])
		oracle += w * max(m.weak[i], m.weak[i]+m.gain[i])
	}
	best := max(weak, strong)
	out.put("", "always-weak", weak/total)
	out.put("", "always-strong", strong/total)
	for _, r := range m.routers {
		key := r.key
		m.buffer = r.ranking.curve(m.buffer[:0], weights, m.weak, m.gain)
		f := measureCurve(m.buffer, m.s.WeakCost, m.s.StrongCost)
		out.put(key, "apgr", f.apgr)
		out.put(key, "cpt50", f.cpt50)
		out.put(key, "cpt80", f.cpt80)
		out.put(key, "saving", f.saving)
		out.put(key, "pareto", f.pareto)
		if r.picks == nil {
			continue
		}
		quality, share := weak, 0.0
		for i, w := range weights {
			quality += w * r.picks[i] * m.gain[i]
			share += w * r.picks[i]
		}
		out.put(key, "quality", quality/total)
		out.put(key, "share", share/total)
		gap := math.NaN()
		if oracle > best {
			gap = (quality - best) / (oracle - best)
		}
		out.put(key, "gap", gap)
	}
}

// mask keeps the weights of some rows. The slice is used again.
func (m *meter) mask(weights, rows []float64) []float64 {
	for i, w := range weights {
		m.masked[i] = w * rows[i]
	}
	return m.masked
}

func rate(weights []float64, want []labels.Label) float64 {
	rights, total := 0.0, 0.0
	for i, l := range want {
		if l != labels.Missing {
			total += weights[i]
			rights += weights[i] * right(l)
		}
	}
	if total == 0 {
		return math.NaN()
	}
	return rights / total
}

// head reports on one head.
func (m *meter) head(h int, found map[string]*Interval, rng *rand.Rand, resample func() []float64) HeadReport {
	key := m.headKeys[h]
	p, want := m.s.Probabilities[h], m.s.Labels[h]
	out := HeadReport{
		Name: m.s.Heads[h], Rate: found[key+"rate"], AUC: found[key+"auc"], PriorAUC: found[key+"prior"], ECE: found[key+"ece"],
		Histogram: make([]int, histogramBins),
	}
	for i, l := range want {
		out.Histogram[min(int(p[i]*histogramBins), histogramBins-1)]++
		if l != labels.Missing {
			out.Labels++
		}
	}
	bins := fill(p, want, ones(len(p)))
	for i, b := range bins {
		if b.weight > 0 {
			out.Reliability = append(out.Reliability, Bin{
				Low: float64(i) / eceBins, High: float64(i+1) / eceBins, Count: int(b.weight),
				Probability: b.probability / b.weight, Rate: b.right / b.weight,
			})
		}
	}
	if out.ECE == nil {
		return out
	}
	out.PerfectECE = perfectECE(p, want, perfectRuns, rng, nil)
	// A resample is noisier than the sample, and an ECE grows with noise; so the
	// resamples are compared with resamples of perfect predictions.
	resampled := perfectECE(p, want, perfectRuns, rng, resample)
	out.ExcessECE = &Interval{
		Value: out.ECE.Value - out.PerfectECE,
		Low:   out.ECE.Low - resampled,
		High:  out.ECE.High - resampled,
	}
	return out
}

func (m *meter) fillRouters(r *Report, found map[string]*Interval) {
	weights := m.mask(ones(m.s.Rows()), m.paired)
	for _, router := range m.routers {
		key := router.key
		points := router.ranking.curve(nil, weights, m.weak, m.gain)
		out := RouterReport{
			Name: router.name, Quality: found[key+"quality"], Share: found[key+"share"], APGR: found[key+"apgr"], CPT50: found[key+"cpt50"],
			CPT80: found[key+"cpt80"], OracleGap: found[key+"gap"], Saving: found[key+"saving"], PAUCCC: found[key+"pareto"],
			Curve: thin(points),
		}
		r.Routers = append(r.Routers, out)
	}
	for _, fixed := range []struct {
		name  string
		share float64
	}{{"always-weak", 0}, {"always-strong", 1}} {
		r.Routers = append(r.Routers, RouterReport{
			Name: fixed.name, Quality: found[fixed.name], Share: &Interval{fixed.share, fixed.share, fixed.share},
		})
	}
}

// thin keeps at most curvePoints points, evenly, with both ends.
func thin(points []point) []Point {
	step := max(1, (len(points)-1+curvePoints-2)/(curvePoints-1))
	var out []Point
	for i := 0; i < len(points); i += step {
		out = append(out, Point{points[i].share, points[i].quality})
	}
	if last := points[len(points)-1]; out[len(out)-1].Share != last.share {
		out = append(out, Point{last.share, last.quality})
	}
	return out
}

func (m *meter) fillPolicies(r *Report, found map[string]*Interval) {
	for i, p := range m.policies {
		key := p.key
		name, value := "tolerance", 0.0
		if t, ok := p.tradeOff.Tolerance(); ok {
			value = t
		} else if w, ok := p.tradeOff.QualityWeight(); ok {
			name, value = "quality_weight", w
		}
		report := PolicyReport{
			TradeOff: name, Value: value, Share: found[key+"share"], Quality: found[key+"quality"], Cost: found[key+"cost"],
			Saving: found[key+"saving"], Loss: found[key+"loss"], Judged: p.judged,
		}
		if i <= sweepSteps {
			r.Sweep = append(r.Sweep, report)
		} else {
			r.Policies = append(r.Policies, report)
		}
	}
	for _, p := range r.Policies {
		if p.Judged < 1 {
			r.Notes = append(r.Notes, fmt.Sprintf("under %s %g, %.0f %% of the rows have no label for the target chosen and count with its predicted probability",
				p.TradeOff, p.Value, 100*(1-p.Judged)))
		}
	}
}
