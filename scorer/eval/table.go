package eval

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// WriteJSON prints reports as JSON, one document.
func WriteJSON(w io.Writer, reports []*Report) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Format  string    `json:"format"`
		Reports []*Report `json:"reports"`
	}{"pointsman-evaluation-1", reports})
}

// WriteTable prints reports for people, on a terminal of 100 columns or more.
func WriteTable(w io.Writer, reports []*Report) error {
	var b strings.Builder
	for i, r := range reports {
		if i > 0 {
			b.WriteString("\n")
		}
		r.table(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) table(b *strings.Builder) {
	fmt.Fprintf(b, "%s\n", r.Name)
	if r.Digest != "" {
		fmt.Fprintf(b, "checkpoint %s\n", r.Digest)
	}
	fmt.Fprintf(b, "%d rows, %d judged for both %s (strong, cost %g) and %s (weak, cost %g); 95 %% intervals of %d resamples\n",
		r.Rows, r.Paired, r.Strong, r.StrongCost, r.Weak, r.WeakCost, r.Resamples)
	for _, note := range r.Notes {
		fmt.Fprintf(b, "note: %s\n", note)
	}
	if len(r.Heads) > 0 {
		t := newTable(b, "head", "right", "AUC", "AUC of group prior", "ECE", "if perfect", "excess")
		for _, h := range r.Heads {
			t.row(h.Name, h.Rate.text(3), h.AUC.text(3), h.PriorAUC.text(3), h.ECE.text(3), fmt.Sprintf("%.3f", h.PerfectECE), h.ExcessECE.text(3))
		}
		t.end()
	}
	if len(r.Routers) > 0 {
		t := newTable(b, "router", "APGR", "CPT50", "CPT80", "oracle gap", "saving at equal quality", "P-AUCCC", "quality, cost aside")
		for _, x := range r.Routers {
			t.row(x.Name, x.APGR.text(3), x.CPT50.percent(), x.CPT80.percent(), x.OracleGap.percent(), x.Saving.percent(), x.PAUCCC.text(3), x.Quality.text(3))
		}
		t.end()
	}
	t := newTable(b, "trade-off", "strong share", "quality", "cost", "saving", "quality given up")
	for _, p := range append(append([]PolicyReport{}, r.Sweep...), r.Policies...) {
		t.row(fmt.Sprintf("%s %.4g", p.TradeOff, p.Value), p.Share.percent(), p.Quality.text(3), p.Cost.text(3), p.Saving.percent(), p.Loss.text(3))
	}
	t.end()
	if len(r.Groups) > 0 {
		t := newTable(b, "group", "rows", "weak right", "strong right", "AUC weak", "AUC strong", "APGR")
		for _, g := range r.Groups {
			t.row(g.Name, strconv.Itoa(g.Rows), g.WeakRate.text(2), g.StrongRate.text(2), g.WeakAUC.text(2), g.StrongAUC.text(2), g.APGR.text(2))
		}
		t.end()
	}
}

type table struct{ w *tabwriter.Writer }

func newTable(b *strings.Builder, heading ...string) table {
	b.WriteString("\n")
	t := table{tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)}
	t.row(heading...)
	return t
}

func (t table) row(cells ...string) { _, _ = fmt.Fprintln(t.w, strings.Join(cells, "\t")) }
func (t table) end()                { _ = t.w.Flush() } // into memory: it cannot fail

// text is "0.671 (0.65 to 0.69)", or "-" for a figure there is not.
func (i *Interval) text(digits int) string {
	if i == nil {
		return "-"
	}
	if i.fixed() {
		return fmt.Sprintf("%.*f", digits, i.Value)
	}
	return fmt.Sprintf("%.*f (%.*f to %.*f)", digits, i.Value, digits, i.Low, digits, i.High)
}

func (i *Interval) percent() string {
	if i == nil {
		return "-"
	}
	if i.fixed() {
		return fmt.Sprintf("%.1f %%", 100*i.Value)
	}
	return fmt.Sprintf("%.1f %% (%.1f to %.1f)", 100*i.Value, 100*i.Low, 100*i.High)
}

// Describe says in a sentence what a trade-off of a report does.
func Describe(r *Report, p PolicyReport) string {
	return fmt.Sprintf("on %d rows: %s of the calls to %s, quality %s, saving %s against always-strong, which would be right %s more often",
		r.Rows, p.Share.percent(), r.Strong, p.Quality.text(3), p.Saving.percent(), p.Loss.text(3))
}
