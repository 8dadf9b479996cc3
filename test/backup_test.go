package test

import (
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/lexical"
	"github.com/pointsman-dev/pointsman/scorer"
)

// TestADeadServerCostsQualityNotTheLearnedAnswer has a vLLM that answers nothing but
// 503, and a backup that reads words.
func TestADeadServerCostsQualityNotTheLearnedAnswer(t *testing.T) {
	backup := filepath.Join(t.TempDir(), "words")
	saveLexicalCheckpoint(t, backup)
	w := start(t, setup{
		vllm: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			http.Error(rw, "no", http.StatusServiceUnavailable)
		}),
		routeYAML: "backup: { probe: words, checkpoint: \"" + backup + "\" }",
		moreYAML:  "  words: { kind: lexical }",
	})
	var trailer metadata.MD
	for _, origin := range []pointsmanv1.Origin{pointsmanv1.Origin_ORIGIN_COMPUTED, pointsmanv1.Origin_ORIGIN_LOCAL_CACHE} {
		got, err := w.client.Decide(t.Context(), task("What is 2+2?"), grpc.Trailer(&trailer))
		if err != nil {
			t.Fatal(err)
		}
		if got.GetBasis() != pointsmanv1.Basis_BASIS_BACKUP || got.GetTarget() != "weak" || got.GetOrigin() != origin ||
			got.GetFallbackReason() != pointsmanv1.FallbackReason_FALLBACK_REASON_PROBE_UNAVAILABLE || len(got.GetScores()) != 2 {
			t.Errorf("got %v", got)
		}
		if basis := trailer.Get("pointsman-basis"); !slices.Equal(basis, []string{"BACKUP"}) {
			t.Errorf("trailer %v", basis)
		}
	}
	// A gateway with a fallback of its own still prefers a learned answer.
	request := task("Another.")
	request.FallbackPolicy = pointsmanv1.FallbackPolicy_FALLBACK_POLICY_FAIL
	if got := w.decide(t, request); got.GetBasis() != pointsmanv1.Basis_BASIS_BACKUP {
		t.Errorf("with FAIL: %v", got)
	}
}

// saveLexicalCheckpoint writes one that reads words and always predicts the same.
func saveLexicalCheckpoint(t testing.TB, dir string) {
	t.Helper()
	zeros := make([]float32, lexical.Dim)
	if err := scorer.Save(dir, scorer.Manifest{
		Encoder: lexical.Encoder, Layers: 1, HiddenSize: lexical.Dim, PCADim: 1, TrunkHidden: []int{1}, EnsembleSize: 1,
		OutputNames: []string{"weak", "strong"},
	}, scorer.Tensors{
		ScalerMean: zeros, ScalerScale: slices.Repeat([]float32{1}, lexical.Dim), PCAMean: zeros, PCAComponents: zeros,
		Members: []scorer.Member{{{Weight: []float32{0}, Bias: []float32{0}}, {Weight: []float32{0, 0}, Bias: []float32{1, 1.25}}}},
	}); err != nil {
		t.Fatal(err)
	}
}
