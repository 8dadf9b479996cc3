package server

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/probe/lexical"
	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/server/config"
)

// backupHeads are the heads of the backup's checkpoint and what it always predicts:
// the other way round than the demo's, so that a head taken by its place is found.
var backupHeads = []struct {
	name        string
	probability float64
}{{"weak", 0.75}, {"strong", 0.8}}

// giveBackup gives the route a backup on a real lexical probe.
func giveBackup(t testing.TB, route *Route) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "backup")
	raw := lexical.Dim
	ones := slices.Repeat([]float32{1}, raw)
	layer := scorer.Dense{Weight: make([]float32, 2), Bias: make([]float32, 2)}
	names := make([]string, 2)
	for i, h := range backupHeads {
		names[i] = h.name
		layer.Bias[i] = float32(math.Log(h.probability / (1 - h.probability)))
	}
	member := scorer.Member{{Weight: make([]float32, 1), Bias: make([]float32, 1)}, layer}
	err := scorer.Save(dir, scorer.Manifest{
		Encoder: lexical.Encoder, Layers: 1, HiddenSize: raw, PCADim: 1, TrunkHidden: []int{1}, EnsembleSize: 1, OutputNames: names,
	}, scorer.Tensors{
		ScalerMean: make([]float32, raw), ScalerScale: ones, PCAMean: make([]float32, raw), PCAComponents: make([]float32, raw),
		Members: []scorer.Member{member},
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := lexical.New(4)
	if err != nil {
		t.Fatal(err)
	}
	b := builder{
		cfg: &config.Config{Probes: map[string]config.Probe{
			"words": {Kind: config.ProbeKindLexical, Encoder: lexical.Encoder},
		}},
		probes:      map[string]*heldProbe{"words": {Prober: p}},
		checkpoints: map[string]*scorer.Checkpoint{},
	}
	if route.Backup, err = b.source("words", dir, route.Targets); err != nil {
		t.Fatal(err)
	}
}

func failWith(err error) *fakeProber {
	return &fakeProber{extract: func(context.Context, probe.Request) (probe.Extraction, error) {
		return probe.Extraction{HTTP: 7 * time.Second}, err
	}}
}

func TestABackupAnswersWhenTheProbeFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		prober *fakeProber
		reason pointsmanv1.FallbackReason
	}{
		{"unavailable", failWith(probe.ErrUnavailable), reasonProbeUnavailable},
		{"circuit open", failWith(probe.ErrCircuitOpen), reasonCircuitOpen},
		{"overloaded", failWith(probe.ErrOverloaded), reasonOverloaded},
		{"timed out", failWith(probe.ErrTimeout), reasonProbeTimeout},
		{"rejected", failWith(probe.ErrRejected), reasonProbeRejected},
		{"features that do not fit", failWith(nil), reasonScoringFailed},
		{"panic", &fakeProber{extract: func(context.Context, probe.Request) (probe.Extraction, error) { panic("x") }}, reasonScoringFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, route := newDecider(t, c.prober)
			giveBackup(t, route)
			dec, err := d.Decide(t.Context(), ask("What is 2+2?"))
			if err != nil {
				t.Fatal(err)
			}
			if dec.Basis != pointsmanv1.Basis_BASIS_BACKUP || dec.Reason != c.reason {
				t.Fatalf("basis %v, reason %v", dec.Basis, dec.Reason)
			}
			if dec.Target.Name != "weak" { // within the tolerance of 0.2, and cheapest
				t.Errorf("target %s", dec.Target.Name)
			}
			if got := dec.Learned.Scores.Digest; got != route.Backup.Checkpoint.Digest() {
				t.Errorf("scored by %s", got)
			}
			for i, want := range []float64{0.8, 0.8, 0.75} {
				if got := dec.Learned.Choice.Scores[i].Probability; math.Abs(got-want) > 1e-6 {
					t.Errorf("target %d has the probability %v, want %v", i, got, want)
				}
			}
			out := decisionToProto(dec)
			if len(out.GetScores()) != 3 || out.Margin == nil || out.GetTaskTokens() != 6 || out.GetFallbackReason() != c.reason {
				t.Errorf("answer %v", out)
			}
		})
	}
}

func TestTimesOfBothSourcesAddUp(t *testing.T) {
	d, route := newDecider(t, failWith(probe.ErrUnavailable))
	giveBackup(t, route)
	dec, err := d.Decide(t.Context(), ask("x"))
	if err != nil || dec.Timing.Probe == nil || *dec.Timing.Probe <= 7*time.Second || dec.Timing.Score == nil {
		t.Errorf("%+v %v", dec.Timing, err)
	}
}

func TestABackupIsNotAsked(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Route, *Request)
		basis  pointsmanv1.Basis
		reason pointsmanv1.FallbackReason
	}{
		{"without a task", func(_ *Route, r *Request) { r.Input.Task = "" }, pointsmanv1.Basis_BASIS_FALLBACK, reasonNoTaskText},
		{"for too long a task", func(r *Route, _ *Request) { r.Task.MaxBytes = 1 }, pointsmanv1.Basis_BASIS_FALLBACK, reasonTaskTooLarge},
		{"when only caches may be asked", func(_ *Route, r *Request) { r.CachePolicy = cache.OnlyIfCached }, pointsmanv1.Basis_BASIS_FALLBACK, reasonNotCached},
		{"in shadow mode", func(r *Route, _ *Request) { r.Mode = pointsmanv1.RouteMode_ROUTE_MODE_SHADOW }, pointsmanv1.Basis_BASIS_FALLBACK, reasonProbeUnavailable},
		{"for one target", func(_ *Route, r *Request) { r.AllowedTargets = []string{"weak"} }, pointsmanv1.Basis_BASIS_RULE, reasonNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, route := newDecider(t, failWith(probe.ErrUnavailable))
			giveBackup(t, route)
			req := ask("What is 2+2?")
			c.change(route, req)
			dec, err := d.Decide(t.Context(), req)
			if err != nil || dec.Basis != c.basis || dec.Reason != c.reason {
				t.Errorf("%+v %v", dec, err)
			}
			if !route.Backup.Probe.Status().LastSuccess.IsZero() {
				t.Error("the backup was asked")
			}
		})
	}
}

func TestWhenTheBackupFailsTooTheFirstReasonIsTold(t *testing.T) {
	d, route := newDecider(t, failWith(probe.ErrUnavailable))
	giveBackup(t, route)
	route.Backup.Probe = failWith(probe.ErrOverloaded)
	dec, err := d.Decide(t.Context(), ask("x"))
	if err != nil || dec.Basis != pointsmanv1.Basis_BASIS_FALLBACK || dec.Reason != reasonProbeUnavailable || dec.Target != route.Fallback || dec.Learned != nil {
		t.Errorf("%+v %v", dec, err)
	}
}

func TestABackupsScoresAreCachedApart(t *testing.T) {
	prober := failWith(probe.ErrUnavailable)
	d, route := newDecider(t, prober)
	giveBackup(t, route)
	decide := func() *Decision {
		t.Helper()
		dec, err := d.Decide(t.Context(), ask("What is 2+2?"))
		if err != nil {
			t.Fatal(err)
		}
		return dec
	}
	decide()
	if dec := decide(); dec.Basis != pointsmanv1.Basis_BASIS_BACKUP || dec.Learned.Origin != cache.Local {
		t.Errorf("while it fails: basis %v, origin %v", dec.Basis, dec.Learned.Origin)
	}
	prober.extract = nil // it is well again
	if dec := decide(); dec.Basis != pointsmanv1.Basis_BASIS_LEARNED || dec.Learned.Origin != cache.Computed || dec.Reason != reasonNone ||
		dec.Learned.Scores.Digest != route.Checkpoint.Digest() {
		t.Errorf("afterwards: basis %v, origin %v", dec.Basis, dec.Learned.Origin)
	}
}

func TestABackupAnswersBeforeTheDeadline(t *testing.T) {
	for _, c := range []struct {
		name  string
		left  time.Duration
		basis pointsmanv1.Basis
		after time.Duration // when the answer leaves
	}{
		{"time for the backup is kept", 500 * time.Millisecond, pointsmanv1.Basis_BASIS_BACKUP, 495 * time.Millisecond},
		{"at most a quarter of it", 12 * time.Millisecond, pointsmanv1.Basis_BASIS_BACKUP, 9 * time.Millisecond},
		{"none to keep", 4 * time.Millisecond, pointsmanv1.Basis_BASIS_FALLBACK, 3 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, route := newDecider(t, &fakeProber{extract: func(context.Context, probe.Request) (probe.Extraction, error) {
					time.Sleep(time.Second)
					return probe.Extraction{}, probe.ErrUnavailable
				}})
				giveBackup(t, route)
				req := ask("What is 2+2?")
				req.AnswerBy = req.Arrived.Add(c.left)
				dec, err := d.Decide(t.Context(), req)
				if err != nil || dec.Basis != c.basis || dec.Reason != reasonDeadline || dec.Timing.Total != c.after {
					t.Errorf("basis %v, reason %v, after %v, %v", dec.Basis, dec.Reason, dec.Timing.Total, err)
				}
				time.Sleep(2 * time.Second) // the probe that was sent comes to its end
			})
		})
	}
}

func TestABackupChoosesAmongTheAllowedTargets(t *testing.T) {
	d, route := newDecider(t, failWith(probe.ErrUnavailable))
	giveBackup(t, route)
	req := ask("x")
	req.AllowedTargets = []string{"weak", "middle"}
	dec, err := d.Decide(t.Context(), req)
	if err != nil || len(dec.Learned.Choice.Scores) != 2 || dec.Learned.Choice.Scores[1].Probability > 0.76 {
		t.Errorf("%+v %v", dec.Learned, err)
	}
}

func TestListRoutesNamesTheBackup(t *testing.T) {
	_, route := newDecider(t, &fakeProber{})
	if got := routeToProto(route).GetBackup(); got != nil {
		t.Errorf("without one: %v", got)
	}
	giveBackup(t, route)
	got := routeToProto(route).GetBackup()
	if got.GetEncoder() != lexical.Encoder || got.GetCheckpointDigest() != route.Backup.Checkpoint.Digest() ||
		got.GetProbeState() != pointsmanv1.ProbeState_PROBE_STATE_READY {
		t.Errorf("got %v", got)
	}
}

// config names the encoder itself, since it imports nothing of ours.
func TestTheLexicalEncoderHasOneName(t *testing.T) {
	if config.LexicalEncoder != lexical.Encoder {
		t.Errorf("%q and %q", config.LexicalEncoder, lexical.Encoder)
	}
}

// TestAFailingBackupIsSeen has both sources fail: the answer says why the first did,
// and the observer hears of both. A caller that leaves meanwhile is not answered.
func TestAFailingBackupIsSeen(t *testing.T) {
	unavailable := &fakeProber{extract: func(context.Context, probe.Request) (probe.Extraction, error) {
		return probe.Extraction{}, probe.ErrUnavailable
	}}
	d, route := newDecider(t, unavailable)
	giveBackup(t, route)
	route.Backup.Probe = &fakeProber{extract: func(context.Context, probe.Request) (probe.Extraction, error) {
		return probe.Extraction{}, probe.ErrOverloaded
	}}
	heard := &fellBackObserver{panicObserver: &panicObserver{}}
	d.observer = heard
	dec, err := d.Decide(t.Context(), ask("x"))
	if err != nil || dec.Basis != pointsmanv1.Basis_BASIS_FALLBACK || dec.Reason != reasonProbeUnavailable {
		t.Errorf("%+v %v", dec, err)
	}
	if want := []pointsmanv1.FallbackReason{reasonProbeUnavailable, reasonOverloaded}; !slices.Equal(heard.reasons, want) {
		t.Errorf("the observer heard of %v, want %v", heard.reasons, want)
	}

	ctx, leave := context.WithCancel(t.Context())
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	route.Backup.Probe = &fakeProber{extract: func(context.Context, probe.Request) (probe.Extraction, error) {
		leave()
		<-release
		return probe.Extraction{}, probe.ErrUnavailable
	}}
	if dec, err := d.Decide(ctx, ask("y")); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v %v", dec, err)
	}
}

// fellBackObserver notes the reasons it is told of.
type fellBackObserver struct {
	*panicObserver

	reasons []pointsmanv1.FallbackReason
}

func (o *fellBackObserver) FellBack(_ context.Context, _ string, reason pointsmanv1.FallbackReason, _ error) {
	o.reasons = append(o.reasons, reason)
}
