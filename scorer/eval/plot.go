package eval

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// plot is a line chart over the unit square, or a part of it, as one inline SVG.
type plot struct {
	title, x, y string
	low, high   float64 // of the y axis
	lines       []line
	marks       []mark
	bars        []float64 // heights over equal widths of x, in units of y
}

type line struct {
	name   string
	class  string // a stroke of the style sheet
	points [][2]float64
	band   [][3]float64 // x, low, high
}

// mark is a point with a vertical interval.
type mark struct {
	class        string
	x, y, radius float64
}

const (
	plotWidth, plotHeight    = 480.0, 320.0
	leftMargin, bottomMargin = 60.0, 48.0
	topMargin, rightMargin   = 12.0, 12.0
	legendRow                = 18.0
	innerWidth, innerHeight  = plotWidth - leftMargin - rightMargin, plotHeight - topMargin - bottomMargin
	yTicks                   = 5
)

func (p plot) at(x, y float64) (left, top float64) {
	share := (y - p.low) / (p.high - p.low)
	return leftMargin + x*innerWidth, topMargin + (1-min(1.02, max(-0.02, share)))*innerHeight
}

// svg draws the plot. It scales to the width it is given; its text stays legible
// down to 320 pixels.
func (p plot) svg() string {
	var b strings.Builder
	height := plotHeight + legendRow*float64((len(p.lines)+1)/2)
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, plotWidth, height, html.EscapeString(p.title))
	for i := range yTicks {
		y := p.low + (p.high-p.low)*float64(i)/(yTicks-1)
		_, top := p.at(0, y)
		fmt.Fprintf(&b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, leftMargin, plotWidth-rightMargin, top, top)
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end">%s</text>`, leftMargin-6, top+4, tick(y, p.high-p.low))
	}
	for i := range 5 {
		x := float64(i) / 4
		left, _ := p.at(x, p.low)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, left, left, topMargin, plotHeight-bottomMargin)
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle">%.2g</text>`, left, plotHeight-bottomMargin+16, x)
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">%s</text>`, leftMargin+innerWidth/2, plotHeight-6, html.EscapeString(p.x))
	fmt.Fprintf(&b, `<text transform="translate(12 %g) rotate(-90)" text-anchor="middle">%s</text>`, topMargin+innerHeight/2, html.EscapeString(p.y))
	p.drawBars(&b)
	for i, l := range p.lines {
		p.drawLine(&b, l)
		x, y := leftMargin+float64(i%2)*innerWidth/2, plotHeight+legendRow*float64(i/2)+6
		fmt.Fprintf(&b, `<line class="%s" x1="%g" x2="%g" y1="%g" y2="%g"/><text x="%g" y="%g">%s</text>`,
			l.class, x, x+22, y, y, x+28, y+4, html.EscapeString(clipName(l.name)))
	}
	for _, m := range p.marks {
		left, top := p.at(m.x, m.y)
		fmt.Fprintf(&b, `<circle class="%s" cx="%.1f" cy="%.1f" r="%.1f"/>`, m.class, left, top, m.radius)
	}
	b.WriteString(`</svg>`)
	return b.String()
}

func (p plot) drawBars(b *strings.Builder) {
	for i, h := range p.bars {
		width := 1 / float64(len(p.bars))
		left, top := p.at(float64(i)*width, h)
		_, bottom := p.at(0, p.low)
		fmt.Fprintf(b, `<rect class="bar" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, left+0.5, top, width*innerWidth-1, bottom-top)
	}
}

func (p plot) drawLine(b *strings.Builder, l line) {
	if len(l.band) > 0 {
		b.WriteString(`<polygon class="band ` + l.class + `" points="`)
		for _, v := range l.band {
			left, top := p.at(v[0], v[1])
			fmt.Fprintf(b, "%.1f,%.1f ", left, top)
		}
		for _, v := range slices.Backward(l.band) {
			left, top := p.at(v[0], v[2])
			fmt.Fprintf(b, "%.1f,%.1f ", left, top)
		}
		b.WriteString(`"/>`)
	}
	b.WriteString(`<polyline class="` + l.class + `" points="`)
	for _, v := range l.points {
		left, top := p.at(v[0], v[1])
		fmt.Fprintf(b, "%.1f,%.1f ", left, top)
	}
	b.WriteString(`"/>`)
}

func tick(v, span float64) string {
	digits := 2
	if span < 0.1 {
		digits = 3
	}
	if span > 4 {
		digits = 0
	}
	return fmt.Sprintf("%.*f", digits, v)
}

func clipName(s string) string {
	const most = 26
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// bounds widens the range of values to a little more than they need.
func bounds(values ...float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	room := max(0.01, (high-low)*0.08)
	return max(0, low-room), high + room
}
