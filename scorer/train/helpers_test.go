package train

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pointsman-dev/pointsman/scorer/features"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryRows is features in memory.
type memoryRows struct {
	header  features.Header
	digests []features.Digest
	rows    [][]float32
}

func (m *memoryRows) Header() features.Header    { return m.header }
func (m *memoryRows) Len() int                   { return len(m.rows) }
func (m *memoryRows) Digests() []features.Digest { return m.digests }

func (m *memoryRows) ReadRow(i int, dst []float32) error {
	for j, v := range m.rows[i] {
		if math.IsNaN(float64(v)) {
			return fmt.Errorf("%w: features row %d, column %d", features.ErrNonFinite, i, j)
		}
	}
	copy(dst, m.rows[i])
	return nil
}

// world draws n tasks with dim features, of which the first ones decide how likely
// each of two models is right. A tenth of the labels are missing.
func world(n, dim int, seed uint64) (*memoryRows, *labels.Set) {
	rng := rand.New(rand.NewPCG(seed, 9))
	rows := &memoryRows{header: features.Header{Encoder: "test/encoder", Layers: 2, HiddenSize: dim / 2, ProbeRevision: "r", VLLMLayerIDs: []int{3, 7}}}
	set := &labels.Set{Models: []string{"large", "small"}, Digest: "sha256:data"}
	for i := range n {
		row := make([]float32, dim)
		for j := range row {
			row[j] = float32(rng.NormFloat64()*(1+float64(j%5)) + float64(j))
		}
		signal := 2*float64(row[0]) + float64(row[1]-1)/2 // each standard normal times its own scale
		task := fmt.Sprint("task ", i)
		e := labels.Example{Task: task, Digest: features.DigestOf(task), Group: []string{"x", "y", "z"}[i%3], Line: i + 1}
		for h, offset := range []float64{1, 0} {
			label := labels.Wrong
			if rng.Float64() < sigmoid(signal+offset) {
				label = labels.Right
			}
			if (i+h)%10 == 0 {
				label = labels.Missing
			}
			e.Labels = append(e.Labels, label)
		}
		rows.rows = append(rows.rows, row)
		rows.digests = append(rows.digests, e.Digest)
		set.Examples = append(set.Examples, e)
	}
	return rows, set
}

// quick is a recipe that takes a fraction of a second.
func quick() Recipe {
	r := DefaultRecipe()
	r.PCADim, r.Trunk, r.Dropout = 12, []int{16}, []float64{0.1}
	r.Members, r.Keep, r.Epochs, r.Patience, r.BatchSize, r.Folds = 3, 2, 12, 4, 64, 2
	r.LearningRate = 5e-3
	r.HoldOut = 51
	return r
}

func clock() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func join(t *testing.T, rows Rows, set *labels.Set, r Recipe) *Data {
	t.Helper()
	data, err := Join(rows, set, r, JoinOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func trainQuick(ctx context.Context, t *testing.T, r Recipe, o Options) *Result {
	t.Helper()
	rows, set := world(700, 20, 1)
	o.Clock = clock
	result, err := Train(ctx, join(t, rows, set, r), r, o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func newDir(t *testing.T) string { return filepath.Join(t.TempDir(), "router") }
