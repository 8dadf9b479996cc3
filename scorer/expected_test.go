package scorer

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"
)

// expected is testdata/expected.json: values computed from the format's
// description by another program.
type expected struct {
	Tolerance struct {
		Probability float64 `json:"probability_abs"`
		Margin      float64 `json:"margin_abs"`
		Confidence  float64 `json:"confidence_abs"`
	} `json:"tolerance"`
	Cases []expectedCase `json:"cases"`
}

type expectedCase struct {
	Checkpoint    string             `json:"checkpoint"`
	Artifact      string             `json:"artifact"`
	WeakHead      string             `json:"weak_head"`
	StrongHead    string             `json:"strong_head"`
	Pooled        []float32          `json:"pooled"`
	Projected     []float64          `json:"projected"`
	Members       [][]float64        `json:"members"`
	Probabilities []float64          `json:"probabilities"`
	Decisions     []expectedDecision `json:"decisions"`
	Tolerances    []expectedDecision `json:"tolerance_decisions"`
}

type expectedDecision struct {
	QualityWeight *float64 `json:"quality_weight"`
	Tolerance     *float64 `json:"tolerance"`
	WeakCost      float64  `json:"weak_cost"`
	StrongCost    float64  `json:"strong_cost"`
	UtilityWeak   float64  `json:"utility_weak"`
	UtilityStrong float64  `json:"utility_strong"`
	Tier          string   `json:"tier"`
	Margin        float64  `json:"margin"`
	Confidence    *float64 `json:"confidence"`
	NearTie       bool     `json:"near_tie"`
}

func readExpected(t *testing.T) expected {
	t.Helper()
	data, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var e expected
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	if len(e.Cases) == 0 {
		t.Fatal("no cases")
	}
	return e
}

func TestScoringMatchesReference(t *testing.T) {
	e := readExpected(t)
	for _, want := range e.Cases {
		t.Run(want.Artifact, func(t *testing.T) {
			c := mustLoad(t, want.Checkpoint)
			checkProjection(t, c, want)

			p, err := c.Score(want.Pooled)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			if p.Members != len(want.Members) || p.Heads != len(want.Probabilities) {
				t.Fatalf("%d members x %d heads, want %d x %d", p.Members, p.Heads, len(want.Members), len(want.Probabilities))
			}
			for m, row := range want.Members {
				for h, probability := range row {
					checkNear(t, "member probability", p.At(m, h), probability, e.Tolerance.Probability)
				}
			}
			for h, probability := range want.Probabilities {
				checkNear(t, "probability", p.Mean(h), probability, e.Tolerance.Probability)
			}
		})
	}
}

func checkProjection(t *testing.T, c *Checkpoint, want expectedCase) {
	t.Helper()
	centred := make([]float64, len(want.Pooled))
	if err := c.tensors.standardise(centred, want.Pooled); err != nil {
		t.Fatal(err)
	}
	projected := make([]float32, c.manifest.PCADim)
	matVec(projected, c.tensors.PCAComponents, centred)
	largest := 0.0
	for _, v := range want.Projected {
		largest = max(largest, math.Abs(v))
	}
	const relative = 2e-6 // float32 steps in standardising, as for pooled features
	for i, v := range want.Projected {
		checkNear(t, "principal component", float64(projected[i]), v, relative*largest)
	}
}

func TestChoicesMatchReference(t *testing.T) {
	e := readExpected(t)
	checked := 0
	for _, want := range e.Cases {
		t.Run(want.Artifact, func(t *testing.T) {
			c := mustLoad(t, want.Checkpoint)
			p, err := c.Score(want.Pooled)
			if err != nil {
				t.Fatal(err)
			}
			strong, weak := slices.Index(c.Heads(), want.StrongHead), slices.Index(c.Heads(), want.WeakHead)
			for _, d := range slices.Concat(want.Decisions, want.Tolerances) {
				choice, err := Choose(p, []Candidate{{strong, d.StrongCost}, {weak, d.WeakCost}}, d.tradeOff())
				if err != nil {
					t.Fatal(err)
				}
				if d.QualityWeight != nil {
					checkNear(t, "utility of strong", choice.Scores[0].Utility, d.UtilityStrong, e.Tolerance.Margin)
					checkNear(t, "utility of weak", choice.Scores[1].Utility, d.UtilityWeak, e.Tolerance.Margin)
				}
				tier := []string{"strong", "weak"}[choice.Index]
				if d.NearTie && tier != d.Tier {
					continue // rounding tipped it: margin and confidence are the other tier's
				}
				checked++
				if tier != d.Tier {
					t.Errorf("%v, costs %v and %v: %s, want %s", d.tradeOff(), d.StrongCost, d.WeakCost, tier, d.Tier)
					continue
				}
				checkNear(t, d.tradeOff().String()+": margin", choice.Margin, d.Margin, e.Tolerance.Margin)
				switch {
				case (choice.Confidence == nil) != (d.Confidence == nil):
					t.Errorf("%v: confidence %v, want %v", d.tradeOff(), choice.Confidence, d.Confidence)
				case d.Confidence != nil:
					checkNear(t, d.tradeOff().String()+": confidence", *choice.Confidence, *d.Confidence, e.Tolerance.Confidence)
				}
			}
		})
	}
	if checked < 500 {
		t.Errorf("%d decisions compared, want nearly all of 540", checked)
	}
}

func (d expectedDecision) tradeOff() TradeOff {
	if d.QualityWeight != nil {
		return QualityWeight(*d.QualityWeight)
	}
	return Tolerance(*d.Tolerance)
}

func checkNear(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) { // written so that NaN fails
		t.Errorf("%s %v, want %v within %v", what, got, want, within)
	}
}
