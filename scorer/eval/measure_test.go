package eval

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

const (
	r = labels.Right
	w = labels.Wrong
	o = labels.Missing
)

// tiny is four tasks, small enough to measure by hand. By p_s - p_w they are
// ordered 0.5, 0.3, 0.1, -0.2:
//
//	task  p_s  p_w  strong  weak
//	0     0.9  0.4  right   wrong
//	1     0.8  0.5  right   right
//	2     0.7  0.6  right   wrong
//	3     0.5  0.7  wrong   right
//
// Q(0) = 2/4, then 3/4, 3/4, 4/4, and Q(1) = 3/4: the gap is 1/4.
//
// Every task stands there several times, since a sample needs 20 rows; that
// changes no figure.
func tiny(times int) *Sample {
	s := &Sample{
		Name: "tiny", Heads: []string{"large", "small"}, Strong: 0, Weak: 1, StrongCost: 1, WeakCost: 0.25,
		Probabilities: make([][]float64, 2), Labels: make([][]labels.Label, 2),
	}
	for i := range 4 * times {
		s.Probabilities[0] = append(s.Probabilities[0], []float64{0.9, 0.8, 0.7, 0.5}[i%4])
		s.Probabilities[1] = append(s.Probabilities[1], []float64{0.4, 0.5, 0.6, 0.7}[i%4])
		s.Labels[0] = append(s.Labels[0], []labels.Label{r, r, r, w}[i%4])
		s.Labels[1] = append(s.Labels[1], []labels.Label{w, r, w, r}[i%4])
		s.Tasks = append(s.Tasks, i%4)
	}
	return s
}

func near(t *testing.T, name string, got *Interval, want float64) {
	t.Helper()
	if got == nil || math.Abs(got.Value-want) > 1e-12 {
		t.Errorf("%s is %+v, want %v", name, got, want)
		return
	}
	if got.Low > got.Value+1e-12 || got.High < got.Value-1e-12 {
		t.Errorf("%s: %v lies outside its interval %v to %v", name, got.Value, got.Low, got.High)
	}
}

func TestMeasureEqualsFiguresByHand(t *testing.T) {
	report, err := Measure(tiny(5), Options{Resamples: 200, Policies: []scorer.TradeOff{scorer.Tolerance(0.2)}})
	if err != nil {
		t.Fatal(err)
	}
	large, small := report.Heads[0], report.Heads[1]
	near(t, "rate of large", large.Rate, 3.0/4)
	near(t, "AUC of large", large.AUC, 1)     // 0.9, 0.8, 0.7 above 0.5
	near(t, "AUC of small", small.AUC, 3.0/4) // 0.5, 0.7 against 0.4, 0.6: one pair of four is the wrong way
	near(t, "ECE of large", large.ECE, 1.1/4) // a bin each: 0.1 + 0.2 + 0.3 + 0.5
	near(t, "ECE of small", small.ECE, 1.8/4) // 0.4 + 0.5 + 0.6 + 0.3
	near(t, "rate of small", small.Rate, 2.0/4)

	router := report.Routers[0]
	// PGR is 0, 1, 1, 2, 1: trapezoids of width 1/4 make (0.5 + 1 + 1.5 + 1.5)/4.
	near(t, "APGR", router.APGR, 1.125)
	near(t, "CPT50", router.CPT50, 0.125)
	near(t, "CPT80", router.CPT80, 0.2)
	// Q(q) = Q(1) first at q = 1/4, which costs 0.25 + 0.25*0.75.
	near(t, "saving", router.Saving, 1-0.4375)
	// Taking the greater probability is always right, as the oracle is.
	near(t, "quality", router.Quality, 1)
	near(t, "oracle gap", router.OracleGap, 1)
	near(t, "share", router.Share, 3.0/4)
	// The running maximum: 0.5 to 0.75, 0.75, 0.75 to 1, 1.
	near(t, "P-AUCCC", router.PAUCCC, (0.625+0.75+0.875+1)/4)

	policy := report.Policies[0] // tasks 0 and 1 go to large
	near(t, "strong share", policy.Share, 0.5)
	near(t, "quality at 0.2", policy.Quality, 0.75)
	near(t, "cost at 0.2", policy.Cost, 0.625)
	near(t, "saving at 0.2", policy.Saving, 0.375)
	near(t, "loss at 0.2", policy.Loss, 0)
	if policy.Judged < 1-1e-12 {
		t.Errorf("judged share %v", policy.Judged)
	}
	for _, x := range report.Routers {
		switch x.Name {
		case "random":
			near(t, "APGR of random", x.APGR, 0.5)
			near(t, "saving of random", x.Saving, 0)
		case "oracle":
			// Gains 1, 1, 0, -1: PGR 0, 1, 2, 2, 1.
			near(t, "APGR of oracle", x.APGR, (0.5+1.5+2+1.5)/4)
		case "always-strong":
			near(t, "quality of always-strong", x.Quality, 0.75)
		case "always-weak":
			near(t, "quality of always-weak", x.Quality, 0.5)
		}
	}
}

func TestTiesCountAsTheMeanOverOrders(t *testing.T) {
	if got := AUC([]float64{0.5, 0.5, 0.5}, []labels.Label{r, w, w}); got != 0.5 {
		t.Errorf("AUC of ties %v", got)
	}
	// Two tasks of one score, one of which gains: linear over both, not a step.
	points := rank([]float64{1, 1}).curve(nil, ones(2), []float64{0, 0}, []float64{1, 0})
	if len(points) != 2 || points[1] != (point{1, 0.5}) {
		t.Errorf("curve %v", points)
	}
}

func TestMissingLabels(t *testing.T) {
	if got := AUC([]float64{0.1, 0.9, 0.5}, []labels.Label{w, r, o}); got != 1 {
		t.Errorf("AUC %v", got)
	}
	if got := AUC([]float64{0.1, 0.9}, []labels.Label{r, o}); !math.IsNaN(got) {
		t.Errorf("AUC of one class %v", got)
	}
	if got := ECE([]float64{0.25, 0.9}, []labels.Label{w, o}); got != 0.25 {
		t.Errorf("ECE %v", got)
	}
}

func TestParetoAreaCrossesWithinASegment(t *testing.T) {
	// Down from 1/2 to 0, then up to 1: the maximum stays 1/2 for a quarter more.
	got := paretoArea([]point{{0, 0.5}, {0.5, 0}, {1, 1}})
	if want := 0.75*0.5 + 0.25*0.75; math.Abs(got-want) > 1e-15 {
		t.Errorf("area %v, want %v", got, want)
	}
}

func TestFirstShareSkipsNothing(t *testing.T) {
	points := []point{{0, 0.5}, {0.5, 0.5}, {1, 0.75}}
	for quality, want := range map[float64]float64{0.4: 0, 0.5: 0, 0.625: 0.75, 0.75: 1, 0.9: 1} {
		if got := firstShare(points, quality); math.Abs(got-want) > 1e-15 {
			t.Errorf("quality %v is reached at %v, want %v", quality, got, want)
		}
	}
}

// Perfect predictions have an ECE, and no excess of it; shifted ones have.
func TestExcessECE(t *testing.T) {
	if raceEnabled {
		t.Skip("takes a minute under the race detector, and starts no goroutine")
	}
	for _, c := range []struct {
		name    string
		shift   float64
		without bool // the interval contains 0
	}{{"perfect", 0, true}, {"shifted", 0.08, false}} {
		t.Run(c.name, func(t *testing.T) {
			s := synthetic(1500, 7)
			for h := range s.Probabilities {
				for i, p := range s.Probabilities[h] {
					s.Probabilities[h][i] = max(0, p-c.shift)
				}
			}
			report, err := Measure(s, Options{Resamples: 200})
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range report.Heads {
				if contains := h.ExcessECE.Low <= 0 && 0 <= h.ExcessECE.High; contains != c.without {
					t.Errorf("%s: ECE %.4f, perfect %.4f, excess %.4f to %.4f", h.Name, h.ECE.Value, h.PerfectECE, h.ExcessECE.Low, h.ExcessECE.High)
				}
			}
		})
	}
}

// synthetic draws tasks whose labels follow their probabilities.
func synthetic(n int, seed uint64) *Sample {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := &Sample{
		Name: "synthetic", Heads: []string{"strong", "weak"}, Strong: 0, Weak: 1, StrongCost: 1, WeakCost: 0.2,
		Probabilities: make([][]float64, 2), Labels: make([][]labels.Label, 2),
	}
	for range n {
		p := [2]float64{0.5 + 0.5*rng.Float64(), 0}
		p[1] = p[0] * rng.Float64()
		for h := range p {
			label := w
			if rng.Float64() < p[h] {
				label = r
			}
			s.Probabilities[h] = append(s.Probabilities[h], p[h])
			s.Labels[h] = append(s.Labels[h], label)
		}
		s.Groups = append(s.Groups, []string{"a", "b", ""}[rng.IntN(3)])
	}
	return s
}

// A 95 % interval must hold the truth about 95 times in 100.
func TestIntervalsCover(t *testing.T) {
	if raceEnabled {
		t.Skip("takes minutes under the race detector, and starts no goroutine")
	}
	truth, err := Measure(synthetic(50_000, 1), Options{Resamples: 2, Policies: []scorer.TradeOff{scorer.Tolerance(0.3)}})
	if err != nil {
		t.Fatal(err)
	}
	const trials = 60
	hits := map[string]int{}
	for trial := range trials {
		report, err := Measure(synthetic(150, uint64(trial)+10), Options{Resamples: 100, Seed: uint64(trial), Policies: []scorer.TradeOff{scorer.Tolerance(0.3)}})
		if err != nil {
			t.Fatal(err)
		}
		for name, pair := range map[string][2]*Interval{
			"rate":   {truth.Heads[1].Rate, report.Heads[1].Rate},
			"AUC":    {truth.Heads[1].AUC, report.Heads[1].AUC},
			"APGR":   {truth.Routers[0].APGR, report.Routers[0].APGR},
			"saving": {truth.Policies[0].Saving, report.Policies[0].Saving},
			"loss":   {truth.Policies[0].Loss, report.Policies[0].Loss},
		} {
			if pair[1].Low <= pair[0].Value && pair[0].Value <= pair[1].High {
				hits[name]++
			}
		}
	}
	for name, n := range hits {
		if share := float64(n) / trials; share < 0.83 { // 95 % less four standard errors, and what few resamples cost
			t.Errorf("%s: the interval holds the truth in %.0f %% of the samples", name, 100*share)
		}
	}
	if len(hits) != 5 {
		t.Errorf("figures %v", hits)
	}
}

func TestMeasureIsDeterministicAndKeepsTasksTogether(t *testing.T) {
	first, err := Measure(tiny(10), Options{Resamples: 100, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Measure(tiny(10), Options{Resamples: 100, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	if *first.Routers[0].APGR != *again.Routers[0].APGR {
		t.Error("the same seed gives other intervals")
	}
	alone := tiny(10)
	alone.Tasks = nil // pretend that 40 rows are 40 tasks
	apart, err := Measure(alone, Options{Resamples: 100, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	width := func(i *Interval) float64 { return i.High - i.Low }
	if width(first.Heads[1].Rate) < 2*width(apart.Heads[1].Rate) {
		t.Errorf("4 tasks give an interval of %v, 40 tasks one of %v", width(first.Heads[1].Rate), width(apart.Heads[1].Rate))
	}
}

func TestMeasureRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Sample)
		want   string
	}{
		"costs":        {func(s *Sample) { s.WeakCost = 1 }, "want 0 <= weak < strong"},
		"one head":     {func(s *Sample) { s.Weak = 0 }, "two different ones"},
		"NaN":          {func(s *Sample) { s.Probabilities[1][3] = math.NaN() }, "row 3"},
		"few labels":   {func(s *Sample) { clear(s.Labels[0]) }, "0 of 20 rows are judged for both"},
		"short labels": {func(s *Sample) { s.Labels[0] = s.Labels[0][1:] }, "19 labels, want 20"},
		"no heads":     {func(s *Sample) { s.Heads = nil }, "0 heads"},
		"short groups": {func(s *Sample) { s.Groups = []string{"a"} }, "1 groups"},
	} {
		s := tiny(5)
		c.change(s)
		_, err := Measure(s, Options{Resamples: 2})
		if !errors.Is(err, ErrSample) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The prior must not know the row that it is judged on.
func TestGroupPriorLeavesTheRowOut(t *testing.T) {
	s := tiny(5)
	s.Groups = make([]string, 20)
	for i := range s.Groups {
		s.Groups[i] = string(rune('a' + i)) // a group each: the group says nothing
	}
	prior := s.priorOf(0)
	for i := range prior {
		if math.Abs(prior[i]-0.75) > 1e-12 {
			t.Errorf("prior of row %d is %v, want the overall rate", i, prior[i])
		}
	}
	s.GroupRates = map[string]map[string]float64{"a": {"large": 0.1}}
	if prior := s.priorOf(0); prior[0] != 0.1 || prior[1] != 0.75 {
		t.Errorf("with known rates: %v", prior[:2])
	}
}

// What is replayed must be what the service would choose.
func TestPolicyChoosesAsTheServiceDoes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	candidates := []scorer.Candidate{{Head: 0, Cost: 1}, {Head: 1, Cost: 0.25}}
	for range 5000 {
		p := scorer.Probabilities{Members: 1, Heads: 2, Values: []float32{float32(rng.IntN(9)) / 8, float32(rng.IntN(9)) / 8}}
		x := float64(rng.IntN(9)) / 8
		for _, tradeOff := range []scorer.TradeOff{scorer.Tolerance(x), scorer.QualityWeight(x)} {
			choice, err := scorer.Choose(p, candidates, tradeOff)
			if err != nil {
				t.Fatal(err)
			}
			if got := ChoosesStrong(tradeOff, p.Mean(0), p.Mean(1)); got != (choice.Index == 0) {
				t.Fatalf("%v on %v: strong %v, the service chooses candidate %d", tradeOff, p.Values, got, choice.Index)
			}
		}
	}
}
