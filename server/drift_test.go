package server

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/scorer/drift"
	"github.com/pointsman-dev/pointsman/scorer/train"
)

// halves has as many scores below a half as above.
var halves = drift.Distribution{Edges: []float64{0.5}, Shares: []float64{0.5, 0.5}, Count: 999}

// saveRecord writes a train.json for a checkpoint with the scores of its heads.
func saveRecord(t *testing.T, digest string, heads ...train.HeadRecord) (dir string) {
	t.Helper()
	dir = t.TempDir()
	data, err := json.Marshal(train.Record{Format: "pointsman-train-1", Checkpoint: digest, Heads: heads})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, train.RecordFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func headRecord(name string, scores drift.Distribution) train.HeadRecord {
	return train.HeadRecord{Calibration: train.Calibration{Head: name}, Scores: scores}
}

func TestWhatIsWatched(t *testing.T) {
	_, route := newDecider(t, &fakeProber{})
	digest := route.Checkpoint.Digest()
	few := halves
	few.Count = drift.Least - 1
	for _, c := range []struct {
		name, dir string
		heads     int
		problem   string
	}{
		{"heads of the route's targets", saveRecord(t, digest, headRecord("strong", halves), headRecord("weak", halves), headRecord("other", halves)), 2, ""},
		{"a head without a record", saveRecord(t, digest, headRecord("weak", halves)), 1, ""},
		{"another checkpoint's record", saveRecord(t, "sha256:00", headRecord("weak", halves)), 0, "of another checkpoint, sha256:00"},
		{"too few scores", saveRecord(t, digest, headRecord("weak", few)), 0, "199 scores of \"weak\", too few"},
		{"no valid distribution", saveRecord(t, digest, headRecord("weak", drift.Distribution{})), 0, "score distribution of \"weak\""},
		{"no record", t.TempDir(), 0, "train.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			live, err := watchScores(route, c.dir, nil)
			if len(live) != c.heads || (err == nil) != (c.problem == "") {
				t.Fatalf("%d heads, %v", len(live), err)
			}
			if err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%v, want %q", err, c.problem)
			}
			if missing := c.name == "no record"; errors.Is(err, os.ErrNotExist) != missing {
				t.Errorf("%v: is it missing?", err)
			}
		})
	}
}

func TestAReloadGoesOnCountingTheSameCheckpoint(t *testing.T) {
	_, before := newDecider(t, &fakeProber{})
	dir := saveRecord(t, before.Checkpoint.Digest(), headRecord("strong", halves))
	var err error
	if before.live, err = watchScores(before, dir, nil); err != nil {
		t.Fatal(err)
	}
	after := *before
	if after.live, err = watchScores(&after, dir, before); err != nil || after.live["strong"] != before.live["strong"] {
		t.Errorf("the same checkpoint began anew: %v", err)
	}
	other := halves
	other.Count++
	dir = saveRecord(t, before.Checkpoint.Digest(), headRecord("strong", other))
	if after.live, err = watchScores(&after, dir, before); err != nil || after.live["strong"] == before.live["strong"] {
		t.Errorf("another distribution did not begin anew: %v", err)
	}

	replaced := filepath.Join(t.TempDir(), "router")
	saveOtherCheckpoint(t, replaced)
	if after.Checkpoint, err = scorer.Load(replaced); err != nil {
		t.Fatal(err)
	}
	dir = saveRecord(t, after.Checkpoint.Digest(), headRecord("strong", halves))
	if after.live, err = watchScores(&after, dir, before); err != nil || after.live["strong"] == before.live["strong"] {
		t.Errorf("another checkpoint did not begin anew: %v", err)
	}
}

// saveOtherCheckpoint writes a checkpoint that is not newDecider's.
func saveOtherCheckpoint(t *testing.T, dir string) {
	t.Helper()
	if err := os.CopyFS(dir, os.DirFS(demoLearned)); err != nil {
		t.Fatal(err)
	}
}

// TestDecisionsAreCountedAsAsked holds that cached answers and shadow's count, and a
// backup's, a fallback's and a rule's do not.
func TestDecisionsAreCountedAsAsked(t *testing.T) {
	scores := func() *Learned {
		return &Learned{
			Targets: []*Target{{Name: "strong", Head: "strong"}, {Name: "weak", Head: "weak"}},
			Choice:  scorer.Choice{Scores: []scorer.CandidateScore{{Probability: 0.9}, {Probability: 0.2}}},
		}
	}
	for _, c := range []struct {
		basis   pointsmanv1.Basis
		learned *Learned
		counted bool
	}{
		{pointsmanv1.Basis_BASIS_LEARNED, scores(), true},
		{pointsmanv1.Basis_BASIS_SHADOW, scores(), true},
		{pointsmanv1.Basis_BASIS_BACKUP, scores(), false},
		{pointsmanv1.Basis_BASIS_FALLBACK, nil, false},
		{pointsmanv1.Basis_BASIS_RULE, nil, false},
	} {
		t.Run(enumName(c.basis), func(t *testing.T) {
			d := cachedDecider(t, 1)
			route := &Route{Name: "main", live: liveScores{"weak": drift.NewLive(halves, time.Now())}}
			for range drift.Least - 1 {
				route.live.add(scores())
			}
			if shifts := route.live.shifts(); len(shifts) != 0 {
				t.Fatalf("%d scores are not enough: %v", drift.Least-1, shifts)
			}
			d.observer.Decided(t.Context(), &Decision{Route: route, Target: &Target{}, Basis: c.basis, Learned: c.learned}, "")
			if got := len(route.live.shifts()) == 1; got != c.counted {
				t.Errorf("counted: %v, want %v", got, c.counted)
			}
		})
	}
}

// By hand: 200 scores on one side and none on the other, with the half that is added to
// each, are shares of 200.5/201 and 0.5/201; expected are 1/2 each, from which both
// differ by 100/201. The index is (100/201) (ln(401/201) - ln(1/201)) = 2.9821.
func TestShiftsOfACachedTask(t *testing.T) {
	d := cachedDecider(t, 1) // which has asked once
	for range drift.Least - 1 {
		if _, err := d.Decide(t.Context(), ask(cachedTask)); err != nil {
			t.Fatal(err)
		}
	}
	route := d.snapshot.Load().routes["main"]
	got := route.live.shifts()
	if len(got) != 2 || got[0].Head != "strong" || got[1].Head != "weak" {
		t.Fatalf("shifts %v", got)
	}
	if want := 100.0 / 201 * math.Log(401); math.Abs(got[0].PSI-want) > 1e-12 || math.Abs(want-2.9821) > 1e-4 {
		t.Errorf("PSI %v, want %v", got[0].PSI, want)
	}
	none := liveScores(nil).shifts()
	if none != nil {
		t.Errorf("nothing watched, yet %v", none)
	}
}
