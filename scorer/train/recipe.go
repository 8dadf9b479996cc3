package train

import (
	"errors"
	"fmt"
)

// Recipe says how a checkpoint is made. [DefaultRecipe] is the field's.
type Recipe struct {
	// Heads are the models to predict, in the order of the checkpoint's outputs;
	// empty: every model of the data, by name.
	Heads []string `json:"heads"`
	// HoldOut sets the tasks aside whose SHA-256 begins with a byte below it; they
	// are for evaluation and take no part in training. 51 sets a fifth aside.
	HoldOut int `json:"hold_out"`
	// TrainShare is the share of the other rows that weights are fitted on; the
	// rest stops the training, picks the members and calibrates.
	TrainShare float64 `json:"train_share"`
	// Scaling is how features are standardised.
	Scaling Scaling `json:"scaling"`
	// PCADim is the number of principal components; 0: chosen by cross-validation.
	PCADim int `json:"pca_dim"`
	// Trunk is the width of each hidden layer; none makes a logistic regression.
	Trunk []int `json:"trunk_hidden"`
	// Dropout is the share of each hidden layer's outputs that is dropped while
	// training.
	Dropout      []float64 `json:"dropout"`
	LearningRate float64   `json:"learning_rate"`
	// WeightDecay is the L2 penalty, added to the gradient as Adam of PyTorch does;
	// below 0: chosen by cross-validation.
	WeightDecay float64 `json:"weight_decay"`
	BatchSize   int     `json:"batch_size"`
	Epochs      int     `json:"epochs"`
	// Patience is how many epochs may pass without an improvement of the
	// validation loss by more than MinImprovement.
	Patience       int     `json:"patience"`
	MinImprovement float64 `json:"min_improvement"`
	// Members are trained, each from its own seed; the Keep with the least
	// validation loss make the ensemble.
	Members int `json:"members"`
	Keep    int `json:"keep"`
	// Folds is the number of folds of a cross-validation.
	Folds int `json:"folds"`
	// Seed is the first member's; the others count up from it. The split and the
	// components are drawn from it too.
	Seed uint64 `json:"seed"`
}

// Scaling is how features are scaled once their means are taken off.
type Scaling string

const (
	// ScaleEach divides every feature by its own standard deviation, as the field's
	// recipe does.
	ScaleEach Scaling = "each"
	// ScaleCommon divides all features by one number, the root mean of their
	// variances, and so keeps their proportions. It suits features that are on one
	// scale by construction, such as hashed counts, of which the rarest would
	// otherwise weigh the most.
	ScaleCommon Scaling = "common"
)

// DefaultRecipe returns the field's recipe.
func DefaultRecipe() Recipe {
	return Recipe{
		TrainShare:     0.85,
		Scaling:        ScaleEach,
		PCADim:         200,
		Trunk:          []int{256, 128},
		Dropout:        []float64{0.3, 0.2},
		LearningRate:   1e-3,
		WeightDecay:    1e-4,
		BatchSize:      512,
		Epochs:         150,
		Patience:       15,
		MinImprovement: 1e-4,
		Members:        10,
		Keep:           5,
		Folds:          4,
		Seed:           42,
	}
}

// Validate reports everything that is wrong with the recipe.
func (r Recipe) Validate() error {
	var faults []error
	need := func(ok bool, name string, value any, want string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s is %v, want %s", name, value, want))
		}
	}
	need(r.HoldOut >= 0 && r.HoldOut < 256, "hold_out", r.HoldOut, "0 to 255")
	need(r.TrainShare > 0 && r.TrainShare < 1, "train_share", r.TrainShare, "between 0 and 1")
	need(r.Scaling == ScaleEach || r.Scaling == ScaleCommon, "scaling", r.Scaling, `"each" or "common"`)
	need(r.PCADim >= 0, "pca_dim", r.PCADim, "from 1 up, or 0 for a cross-validation")
	for _, width := range r.Trunk {
		need(width > 0, "trunk_hidden", r.Trunk, "widths above 0")
	}
	need(len(r.Dropout) == len(r.Trunk), "dropout", r.Dropout, fmt.Sprintf("%d shares, one a hidden layer", len(r.Trunk)))
	for _, share := range r.Dropout {
		need(share >= 0 && share < 1, "dropout", r.Dropout, "shares from 0 up, below 1")
	}
	need(r.LearningRate > 0 && r.LearningRate < 1, "learning_rate", r.LearningRate, "between 0 and 1")
	need(r.WeightDecay < 1, "weight_decay", r.WeightDecay, "below 1")
	need(r.BatchSize > 0, "batch_size", r.BatchSize, "above 0")
	need(r.Epochs > 0, "epochs", r.Epochs, "above 0")
	need(r.Patience > 0, "patience", r.Patience, "above 0")
	need(r.MinImprovement >= 0, "min_improvement", r.MinImprovement, "from 0 up")
	need(r.Members > 0, "members", r.Members, "above 0")
	need(r.Keep > 0 && r.Keep <= r.Members, "keep", r.Keep, fmt.Sprintf("1 to %d, the members", r.Members))
	need(r.Folds >= 2, "folds", r.Folds, "from 2 up")
	return errors.Join(faults...)
}

// crossValidated reports whether a size is left to cross-validation.
func (r Recipe) crossValidated() bool { return r.PCADim == 0 || r.WeightDecay < 0 }
