package train

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/pointsman-dev/pointsman/scorer/drift"
)

// RecordFile is the name of the record in a checkpoint's folder.
const RecordFile = "train.json"

const recordFormat = "pointsman-train-1"

// Record says how a checkpoint came about. It stands beside it as train.json, and
// holds counts and rates, never the text of a task.
type Record struct {
	Format      string    `json:"format"`
	Created     time.Time `json:"created"`
	Checkpoint  string    `json:"checkpoint_digest"`
	Interrupted bool      `json:"interrupted"` // stopped early: fewer members or epochs than the recipe asks
	Versions    Versions  `json:"versions"`
	Recipe      Recipe    `json:"recipe"` // as used: what cross-validation chose is filled in

	Data     DataRecord    `json:"data"`
	Split    SplitRecord   `json:"split"`
	Choices  []ChoiceScore `json:"cross_validation,omitempty"`
	Members  []Member      `json:"members"`
	Variance float64       `json:"pca_variance_share"` // of the training rows, in the components

	Heads []HeadRecord `json:"heads"`
	// GroupRates is the share of right answers of each head by group, over the
	// training and validation rows: the prior that a router must beat. A head
	// without labels in a group is missing.
	GroupRates map[string]map[string]float64 `json:"group_rates,omitempty"`
	Warnings   []string                      `json:"warnings,omitempty"`
}

// Versions says with what a checkpoint was made.
type Versions struct {
	Pointsman string `json:"pointsman"`
	Go        string `json:"go"`
	Platform  string `json:"platform"` // sums may be fused on some, which moves the last bits
}

// DataRecord identifies what a checkpoint was made from.
type DataRecord struct {
	Digest        string `json:"digest"` // of the judged data's bytes
	Encoder       string `json:"encoder"`
	ProbeRevision string `json:"probe_revision"`
	Layers        int    `json:"layers"`
	HiddenSize    int    `json:"hidden_size"`
}

// SplitRecord counts the rows of each part.
type SplitRecord struct {
	Train      int `json:"train"`
	Validation int `json:"validation"`
	HeldOut    int `json:"held_out"`
}

// HeadRecord is what is known of one head. Its figures are of the validation
// rows, which also stopped the training and fitted the calibration: the held-out
// rows judge a checkpoint, not these.
type HeadRecord struct {
	Calibration

	Labels int     `json:"labels"` // training and validation rows with a label
	Rate   float64 `json:"rate"`   // share of right answers among them
	AUC    float64 `json:"validation_auc"`
	Loss   float64 `json:"validation_loss"` // of the calibrated ensemble
	// Scores is the distribution of the calibrated probabilities over the validation
	// rows. Those of the training rows would be too extreme to compare live scores
	// with.
	Scores drift.Distribution `json:"score_distribution"`
}

// ReadRecord reads the record of a checkpoint's folder. A folder without one is
// an error matching [os.ErrNotExist].
func ReadRecord(dir string) (*Record, error) {
	path := filepath.Join(dir, RecordFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("training record: %w", err)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("training record %s: %w", path, err)
	}
	if r.Format != recordFormat {
		return nil, fmt.Errorf("training record %s: format is %q, want %q", path, r.Format, recordFormat)
	}
	for _, h := range r.Heads {
		if err := h.Scores.Validate(); err != nil {
			return nil, fmt.Errorf("training record %s: score distribution of %q: %w", path, h.Head, err)
		}
	}
	return &r, nil
}

func versions() Versions {
	v := Versions{Pointsman: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v.Pointsman = info.Main.Version
	}
	return v
}
