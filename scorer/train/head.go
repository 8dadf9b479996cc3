package train

import (
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/pointsman-dev/pointsman/scorer/drift"
	"github.com/pointsman-dev/pointsman/scorer/eval"
	"github.com/pointsman-dev/pointsman/scorer/labels"
)

// calibrateHead fits the correction of one head to the validation rows and says
// what is known of it. outputs holds the logits of every member, [rows, heads].
func (d *Data) calibrateHead(head int, outputs []blas32.General, f *fitted) HeadRecord {
	rows := f.rows[1]
	logits := make([][]float64, len(outputs))
	for m, out := range outputs {
		logits[m] = make([]float64, len(rows))
		for i := range rows {
			logits[m][i] = float64(out.Data[i*out.Stride+head])
		}
	}
	want := make([]labels.Label, len(rows))
	for i, row := range rows {
		want[i] = d.label(row, head)
	}
	scale, bias := calibrate(logits, want)
	before := make([]float64, len(rows))
	after := make([]float64, len(rows))
	for i := range rows {
		before[i], _, _ = mean(logits, i, 1, 0)
		after[i], _, _ = mean(logits, i, scale, bias)
	}
	record := HeadRecord{
		Calibration: Calibration{
			Head: d.heads[head], Temperature: 1 / scale, Bias: bias,
			Before: eval.ECE(before, want), After: eval.ECE(after, want),
		},
		AUC:    eval.AUC(after, want),
		Loss:   ensembleLoss(logits, want, scale, bias),
		Scores: drift.New(after, drift.Bins),
	}
	record.Labels, record.Rate = d.rate(head)
	return record
}

// rate counts a head's labels over all rows, and the share that is right.
func (d *Data) rate(head int) (count int, rate float64) {
	right := 0
	for i := range d.Len() {
		switch d.label(i, head) {
		case labels.Right:
			right++
			count++
		case labels.Wrong:
			count++
		case labels.Missing:
		}
	}
	return count, float64(right) / float64(max(1, count))
}

// groupRates returns the share of right answers by group and head.
func (d *Data) groupRates() map[string]map[string]float64 {
	type tally struct{ right, count float64 }
	counts := map[string]map[string]*tally{}
	for i, group := range d.groups {
		if group == "" {
			continue
		}
		if counts[group] == nil {
			counts[group] = map[string]*tally{}
		}
		for h, name := range d.heads {
			l := d.label(i, h)
			if l == labels.Missing {
				continue
			}
			if counts[group][name] == nil {
				counts[group][name] = &tally{}
			}
			counts[group][name].count++
			if l == labels.Right {
				counts[group][name].right++
			}
		}
	}
	rates := map[string]map[string]float64{}
	for group, heads := range counts {
		rates[group] = map[string]float64{}
		for name, t := range heads {
			rates[group][name] = t.right / t.count
		}
	}
	return rates
}
