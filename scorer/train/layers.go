package train

import (
	"context"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// LayerReport says how much one layer of the features has to offer.
type LayerReport struct {
	// Fisher is, for each head, the Fisher separability tr(S_B)/tr(S_W): the
	// variance between the means of right and wrong answers over the variance within
	// them, summed over the layer's features. Greater is easier to separate.
	Fisher []float64
	// EffectiveDimension is the participation ratio tr(C)²/tr(C²) of the covariance
	// C: how many directions the layer really uses.
	EffectiveDimension float64
}

// layerRows bounds the rows that layers are judged on; both figures settle well
// before.
const layerRows = 1000

// Layers judges every layer of the features on its own, on up to 1,000 rows. Layers
// are compared with one another; the figures mean little alone.
func Layers(ctx context.Context, d *Data, tell Progress) ([]LayerReport, error) {
	all := make([]int, d.Len())
	for i := range all {
		all[i] = i
	}
	rows := d.shuffled(all, 0)
	rows = rows[:min(layerRows, len(rows))]
	h := d.rows.Header()
	out := make([]LayerReport, h.Layers)
	table, err := newTable(ctx, d, rows, nil)
	if err != nil {
		return nil, err
	}
	values := newGeneral(len(rows), h.HiddenSize)
	for layer := range out {
		tell.tell(StageRead, layer, h.Layers, "layers")
		err := table.blocks(ctx, func(first int, block blas32.General) {
			for i := range block.Rows {
				copy(values.Data[(first+i)*h.HiddenSize:][:h.HiddenSize], block.Data[i*block.Stride+layer*h.HiddenSize:])
			}
		})
		if err != nil {
			return nil, err
		}
		centre(values)
		out[layer].EffectiveDimension = participation(values)
		for head := range d.heads {
			want := make([]labels.Label, len(rows))
			for i, row := range rows {
				want[i] = d.label(row, head)
			}
			out[layer].Fisher = append(out[layer].Fisher, fisher(values, want))
		}
	}
	tell.tell(StageRead, h.Layers, h.Layers, "layers")
	return out, nil
}

// centre takes the mean off every column.
func centre(m blas32.General) {
	for j := range m.Cols {
		column := blas32.Vector{N: m.Rows, Inc: m.Stride, Data: m.Data[j:]}
		sum := 0.0
		for i := range m.Rows {
			sum += float64(column.Data[i*column.Inc])
		}
		mean := float32(sum / float64(m.Rows))
		for i := range m.Rows {
			column.Data[i*column.Inc] -= mean
		}
	}
}

// participation returns tr(C)²/tr(C²) of centred rows, from their inner products:
// X Xᵀ and Xᵀ X have the same eigenvalues but for zeros.
func participation(x blas32.General) float64 {
	gram := newGeneral(x.Rows, x.Rows)
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, x, x, 0, gram)
	trace := 0.0
	for i := range gram.Rows {
		trace += float64(gram.Data[i*gram.Stride+i])
	}
	squares := blas32.DDot(vector(gram.Data), vector(gram.Data))
	if squares == 0 {
		return 0
	}
	return trace * trace / squares
}

// fisher returns tr(S_B)/tr(S_W) for right against wrong; NaN without both.
func fisher(x blas32.General, want []labels.Label) float64 {
	var means [2][]float64
	var counts [2]float64
	for c := range means {
		means[c] = make([]float64, x.Cols)
	}
	class := func(l labels.Label) int { return int(l - labels.Wrong) } // missing: -1
	for i, l := range want {
		if c := class(l); c >= 0 {
			counts[c]++
			for j, v := range x.Data[i*x.Stride:][:x.Cols] {
				means[c][j] += float64(v)
			}
		}
	}
	if counts[0] == 0 || counts[1] == 0 {
		return math.NaN()
	}
	between, within := 0.0, 0.0
	n := counts[0] + counts[1]
	for j := range x.Cols {
		for c := range means {
			means[c][j] /= counts[c]
		}
		d := means[0][j] - means[1][j]
		between += counts[0] * counts[1] / n * d * d
	}
	for i, l := range want {
		if c := class(l); c >= 0 {
			for j, v := range x.Data[i*x.Stride:][:x.Cols] {
				d := float64(v) - means[c][j]
				within += d * d
			}
		}
	}
	return between / within
}
