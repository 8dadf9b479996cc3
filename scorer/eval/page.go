package eval

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
)

//go:embed page.html
var pageText string

// WriteHTML prints reports as one page that needs nothing else: no script, no
// font, no picture from anywhere. Reports of the same data are drawn together.
func WriteHTML(w io.Writer, reports []*Report) error {
	page, err := template.New("page").Funcs(template.FuncMap{
		"figure":  func(i *Interval) template.HTML { return cell(i, 3, 1, "") },
		"figure2": func(i *Interval) template.HTML { return cell(i, 2, 1, "") },
		"percent": func(i *Interval) template.HTML { return cell(i, 1, 100, " %") },
		"short":   func(digest string) string { return digest[:min(len(digest), 19)] },
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("report page: %w", err)
	}
	type headPlots struct {
		Name                   string
		Reliability, Histogram template.HTML
	}
	type section struct {
		*Report
		Plots []headPlots
		Sweep template.HTML
		Rows  []PolicyReport
	}
	var data struct {
		Curve    template.HTML
		Sections []section
	}
	data.Curve = svg(curvePlot(reports))
	for _, r := range reports {
		s := section{Report: r, Sweep: svg(sweepPlot(r)), Rows: slices.Concat(r.Sweep, r.Policies)}
		for _, h := range r.Heads {
			s.Plots = append(s.Plots, headPlots{
				Name: h.Name, Reliability: svg(reliabilityPlot(h)), Histogram: svg(histogramPlot(h)),
			})
		}
		data.Sections = append(data.Sections, s)
	}
	return page.Execute(w, data)
}

// svg marks a drawing as safe: every text in it was escaped where it was drawn.
func svg(p plot) template.HTML {
	return template.HTML(p.svg()) //nolint:gosec // see above
}

// cell is a figure above its interval.
func cell(i *Interval, digits int, factor float64, unit string) template.HTML {
	if i == nil {
		return "–"
	}
	out := fmt.Sprintf("%.*f%s", digits, factor*i.Value, unit)
	if !i.fixed() {
		out += fmt.Sprintf(" <small>%.*f – %.*f</small>", digits, factor*i.Low, digits, factor*i.High)
	}
	return template.HTML(out) //nolint:gosec // numbers, and the units named in WriteHTML
}

// curvePlot draws quality against the strong share, with the first report's
// baselines.
func curvePlot(reports []*Report) plot {
	p := plot{title: "Quality by share of strong calls", x: "share of calls to the strong model", y: "share of right answers"}
	var values []float64
	add := func(name, class string, points []Point) {
		l := line{name: name, class: class}
		for _, c := range points {
			l.points = append(l.points, [2]float64{c.Share, c.Quality})
			values = append(values, c.Quality)
		}
		if len(l.points) > 0 {
			p.lines = append(p.lines, l)
		}
	}
	for _, name := range []string{"oracle", "group prior", "random"} {
		for _, r := range reports[0].Routers {
			if r.Name == name {
				add(name, "base-"+name[:1], r.Curve)
			}
		}
	}
	for i, r := range reports {
		if len(r.Routers) > 0 {
			add(r.Name, fmt.Sprintf("s%d", i%4), r.Routers[0].Curve)
		}
	}
	p.high = 1
	if len(values) > 0 {
		p.low, p.high = bounds(values...)
	}
	return p
}

func reliabilityPlot(h HeadReport) plot {
	p := plot{title: "Reliability of " + h.Name, x: "predicted probability", y: "share of right answers", high: 1}
	p.lines = []line{{name: "perfect", class: "base-r", points: [][2]float64{{0, 0}, {1, 1}}}}
	measured := line{name: "measured (larger: more rows)", class: "s0"}
	most := 1
	for _, b := range h.Reliability {
		most = max(most, b.Count)
	}
	for _, b := range h.Reliability {
		measured.points = append(measured.points, [2]float64{b.Probability, b.Rate})
		p.marks = append(p.marks, mark{class: "dot", x: b.Probability, y: b.Rate, radius: 2 + 6*float64(b.Count)/float64(most)})
	}
	p.lines = append(p.lines, measured)
	return p
}

func histogramPlot(h HeadReport) plot {
	p := plot{title: "Predicted probabilities of " + h.Name, x: "predicted probability", y: "rows"}
	for _, n := range h.Histogram {
		p.bars = append(p.bars, float64(n))
		p.high = max(p.high, float64(n))
	}
	p.high = max(p.high, 1) * 1.05
	return p
}

func sweepPlot(r *Report) plot {
	p := plot{title: "What each tolerance does", x: "tolerance", y: "share", high: 1}
	for _, l := range []struct {
		name, class string
		of          func(PolicyReport) *Interval
	}{
		{"strong share", "s0", func(x PolicyReport) *Interval { return x.Share }},
		{"quality", "s1", func(x PolicyReport) *Interval { return x.Quality }},
		{"saving", "s2", func(x PolicyReport) *Interval { return x.Saving }},
	} {
		drawn := line{name: l.name, class: l.class}
		for _, x := range r.Sweep {
			if i := l.of(x); i != nil {
				drawn.points = append(drawn.points, [2]float64{x.Value, i.Value})
				drawn.band = append(drawn.band, [3]float64{x.Value, i.Low, i.High})
			}
		}
		p.lines = append(p.lines, drawn)
	}
	return p
}
