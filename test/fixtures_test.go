package test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/server"
)

// The reference data was made by an independent program. It stands where the
// packages that use it most have it.
const (
	artifactsDir      = "../probe/testdata/artifacts"
	badArtifactsDir   = "../probe/testdata/bad_artifacts"
	checkpointsDir    = "../scorer/testdata/checkpoints"
	badCheckpointsDir = "../scorer/testdata/bad_checkpoints"
	expectedFile      = "../scorer/testdata/expected.json"
)

// replay plays a vLLM that leaves a file from disk as the artifact of each
// request. The task is the file's path.
type replay struct {
	mu  sync.Mutex
	dir string
}

func (r *replay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body struct {
		Messages []struct{ Content string }
	}
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil || len(body.Messages) != 1 {
		http.Error(w, "unexpected request", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	data, err := os.ReadFile(body.Messages[0].Content)
	if err != nil {
		http.Error(w, "no such file", http.StatusInternalServerError)
		return
	}
	path := filepath.Join(r.dir, "chatcmpl-"+req.Header.Get("X-Request-Id")+".safetensors")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		http.Error(w, "cannot write", http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kv_transfer_params": map[string]any{"hidden_states_path": path}})
}

// expected is the part of expected.json that is seen through the server.
type expected struct {
	Tolerance struct {
		Probability float64 `json:"probability_abs"`
		Margin      float64 `json:"margin_abs"`
		Confidence  float64 `json:"confidence_abs"`
	}
	Cases []struct {
		Checkpoint    string
		Artifact      string
		Tokens        int32
		WeakHead      string      `json:"weak_head"`
		StrongHead    string      `json:"strong_head"`
		Members       [][]float64 // [member][head]
		Probabilities []float64
		Decisions     []expectedDecision
		Tolerances    []expectedDecision `json:"tolerance_decisions"`
	}
}

type expectedDecision struct {
	QualityWeight *float64 `json:"quality_weight"`
	Tolerance     *float64
	WeakCost      float64  `json:"weak_cost"`
	StrongCost    float64  `json:"strong_cost"`
	UtilityWeak   *float64 `json:"utility_weak"`
	UtilityStrong *float64 `json:"utility_strong"`
	Tier          string
	Margin        float64
	Confidence    *float64
	NearTie       bool `json:"near_tie"`
}

// TestReferenceDecisionsThroughTheServer sends every reference artifact through a
// running service and compares the answers with the independent program's.
func TestReferenceDecisionsThroughTheServer(t *testing.T) {
	data, err := os.ReadFile(expectedFile)
	if err != nil {
		t.Fatal(err)
	}
	var want expected
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, c := range want.Cases {
		t.Run(c.Artifact, func(t *testing.T) {
			heads := headsOf(t, filepath.Join(checkpointsDir, c.Checkpoint))
			strong, weak := slices.Index(heads, c.StrongHead), slices.Index(heads, c.WeakHead)
			all := append(slices.Clone(c.Decisions), c.Tolerances...)
			for _, costs := range costPairs(all) {
				w := startReplay(t, c.Checkpoint, [2]string{c.StrongHead, c.WeakHead}, costs)
				for _, d := range all {
					if (costPair{d.StrongCost, d.WeakCost}) != costs {
						continue
					}
					compared++
					req := task(filepath.Join(artifactsDir, c.Artifact))
					if d.QualityWeight != nil {
						req.TradeOff = &pointsmanv1.DecideRequest_QualityWeight{QualityWeight: *d.QualityWeight}
					} else {
						req.TradeOff = &pointsmanv1.DecideRequest_Tolerance{Tolerance: *d.Tolerance}
					}
					resp := w.decide(t, req)
					if resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED || resp.GetTaskTokens() != c.Tokens || len(resp.GetScores()) != 2 {
						t.Fatalf("%v", resp)
					}
					s, k := resp.GetScores()[0], resp.GetScores()[1]
					near(t, "strong probability", s.GetProbability(), c.Probabilities[strong], want.Tolerance.Probability)
					near(t, "weak probability", k.GetProbability(), c.Probabilities[weak], want.Tolerance.Probability)
					nearOptional(t, "strong standard deviation", s.ProbabilityStddev, stddev(c.Members, strong), want.Tolerance.Probability)
					nearOptional(t, "weak standard deviation", k.ProbabilityStddev, stddev(c.Members, weak), want.Tolerance.Probability)
					if d.UtilityStrong != nil {
						near(t, "strong utility", s.GetUtility(), *d.UtilityStrong, want.Tolerance.Margin)
						near(t, "weak utility", k.GetUtility(), *d.UtilityWeak, want.Tolerance.Margin)
					}
					if d.NearTie {
						continue // rounding may tip it
					}
					if got := resp.GetTarget(); got != d.Tier {
						t.Errorf("%+v: chose %s", d, got)
					}
					near(t, "margin", resp.GetMargin(), d.Margin, want.Tolerance.Margin)
					nearOptional(t, "confidence", resp.Confidence, d.Confidence, want.Tolerance.Confidence)
				}
				w.stop()
			}
		})
	}
	if compared < 400 {
		t.Errorf("only %d decisions were compared", compared)
	}
}

type costPair struct{ strong, weak float64 }

func costPairs(decisions []expectedDecision) []costPair {
	var pairs []costPair
	for _, d := range decisions {
		if p := (costPair{d.StrongCost, d.WeakCost}); !slices.Contains(pairs, p) {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// startReplay runs a service on a reference checkpoint.
func startReplay(t *testing.T, checkpoint string, heads [2]string, costs costPair) *world {
	t.Helper()
	r := &replay{}
	r.mu.Lock() // until the folder is known
	w := start(t, setup{
		vllm: r, checkpoint: filepath.Join(checkpointsDir, checkpoint), encoder: encoderOf(t, filepath.Join(checkpointsDir, checkpoint)),
		heads: heads, costs: [2]float64{costs.strong, costs.weak}, probeYAML: impatient, routeYAML: "decide_timeout: 1m",
	})
	r.dir = w.dir
	r.mu.Unlock()
	return w
}

// stddev is the sample standard deviation of a head over the members, nil for one.
func stddev(members [][]float64, head int) *float64 {
	if len(members) < 2 {
		return nil
	}
	var sum, squares float64
	for _, m := range members {
		sum += m[head]
	}
	mean := sum / float64(len(members))
	for _, m := range members {
		squares += (m[head] - mean) * (m[head] - mean)
	}
	return new(math.Sqrt(squares / float64(len(members)-1)))
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func nearOptional(t *testing.T, what string, got, want *float64, within float64) {
	t.Helper()
	if (got == nil) != (want == nil) {
		t.Errorf("%s: there is %v, want %v", what, got != nil, want != nil)
		return
	}
	if got != nil {
		near(t, what, *got, *want, within)
	}
}

// manifestOf reads what the tests need of a router.json.
func manifestOf(t *testing.T, dir string) (manifest struct {
	Encoder     string
	OutputNames []string `json:"output_names"`
},
) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "router.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		t.Fatal(err)
	}
	return manifest
}

func headsOf(t *testing.T, dir string) []string {
	t.Helper()
	return manifestOf(t, dir).OutputNames
}

func encoderOf(t *testing.T, dir string) string {
	t.Helper()
	return manifestOf(t, dir).Encoder
}

func TestEveryBadArtifactIsRefusedThroughTheServer(t *testing.T) {
	w := startReplay(t, "bad-base", [2]string{"strong", "weak"}, costPair{1, 0.25})
	if got := reasonName(w.decide(t, task(filepath.Join(artifactsDir, "bad-base-f32-5.safetensors")))); got != "" {
		t.Fatalf("the good artifact was refused: %s", got)
	}
	entries, err := os.ReadDir(badArtifactsDir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) < 30 {
		t.Fatalf("only %d bad artifacts", len(entries))
	}
	for _, e := range entries {
		t.Run(e.Name(), func(t *testing.T) {
			req := task(filepath.Join(badArtifactsDir, e.Name()))
			if got := reasonName(w.decide(t, req)); got != "PROBE_ARTIFACT" {
				t.Errorf("reason %q, want PROBE_ARTIFACT", got)
			}
			if left := w.files(t); len(left) != 0 {
				t.Errorf("left behind: %q", left)
			}
			req.CachePolicy = pointsmanv1.CachePolicy_CACHE_POLICY_ONLY_IF_CACHED
			if got := reasonName(w.decide(t, req)); got != "NOT_CACHED" {
				t.Errorf("asked again, the reason is %q", got)
			}
		})
	}
}

func TestEveryBadCheckpointIsRefused(t *testing.T) {
	entries, err := os.ReadDir(badCheckpointsDir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) < 30 {
		t.Fatalf("only %d bad checkpoints", len(entries))
	}
	for _, e := range entries {
		t.Run(e.Name(), func(t *testing.T) {
			dir, err := filepath.Abs(filepath.Join(badCheckpointsDir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "pointsman.yaml")
			text := fmt.Sprintf(`
routes:
  main:
    probe: p
    checkpoint: %q
    targets:
      - { name: strong, model: s, head: strong, cost: 1 }
      - { name: weak, model: w, head: weak, cost: 0 }
probes:
  p: { encoder: probe/bad, endpoints: [ { base_url: "http://127.0.0.1:1/v1", hidden_states_dir: . } ] }
`, dir)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			code, err := server.Check(t.Context(), server.CheckOptions{ConfigPath: path, Offline: true}, &out)
			if err != nil || code != server.ExitBroken {
				t.Errorf("check: code %d, error %v, output:\n%s", code, err, out.String())
			}
			if !strings.Contains(out.String(), "router.json") && !strings.Contains(out.String(), "router.safetensors") {
				t.Errorf("the message names no file:\n%s", out.String())
			}
			if err := server.Serve(t.Context(), path, &out); err == nil {
				t.Error("serve started")
			}
		})
	}
}
