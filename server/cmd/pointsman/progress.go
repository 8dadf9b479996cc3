package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progressBar draws how far a long command is, on one line of a terminal. Where
// there is none it prints a line now and then, so that a log stays short.
type progressBar struct {
	w        io.Writer
	terminal bool
	now      func() time.Time

	stage   string
	started time.Time // of the stage
	drawn   time.Time
	width   int // of what stands on the line
}

const (
	barWidth      = 24
	redrawEvery   = 100 * time.Millisecond
	logEvery      = 10 * time.Second
	minForTheRest = 3 * time.Second // before that, a time left is a guess
)

func newProgressBar(w io.Writer) *progressBar {
	bar := &progressBar{w: w, now: time.Now}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		bar.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return bar
}

// show draws a stage with done of total steps and a note.
func (b *progressBar) show(stage string, done, total int, note string) {
	now := b.now()
	if stage != b.stage {
		b.end()
		b.stage, b.started, b.drawn = stage, now, time.Time{}
	}
	every := logEvery
	if b.terminal {
		every = redrawEvery
	}
	if done < total && now.Sub(b.drawn) < every {
		return
	}
	b.drawn = now
	share := float64(done) / float64(max(1, total))
	filled := int(share * barWidth)
	text := fmt.Sprintf("%-20s [%s%s] %d/%d %s", stage, strings.Repeat("=", filled), strings.Repeat(" ", barWidth-filled), done, total, b.left(now, share))
	if note != "" {
		text += "  " + note
	}
	if !b.terminal {
		_, _ = fmt.Fprintln(b.w, strings.TrimRight(text, " "))
		return
	}
	_, _ = fmt.Fprintf(b.w, "\r%-*s", b.width, text)
	b.width = len(text)
}

// left says how long the stage has taken or will still take.
func (b *progressBar) left(now time.Time, share float64) string {
	took := now.Sub(b.started)
	switch {
	case share >= 1:
		return took.Round(100 * time.Millisecond).String()
	case share == 0 || took < minForTheRest:
		return ""
	default:
		return "about " + time.Duration(float64(took)*(1-share)/share).Round(time.Second).String() + " left"
	}
}

// end moves on to the next line.
func (b *progressBar) end() {
	if b.terminal && b.width > 0 {
		_, _ = fmt.Fprintln(b.w)
	}
	b.width, b.stage = 0, ""
}
