package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report is all that a run found. Durations are in nanoseconds in JSON.
type report struct {
	Machine    machine       `json:"machine"`
	Note       string        `json:"note,omitempty"`
	Began      time.Time     `json:"began"`
	Took       time.Duration `json:"took"`
	Bandwidth  bandwidth     `json:"bandwidth"`
	Reading    []readingRow  `json:"reading,omitempty"`
	Scoring    []scoringRow  `json:"scoring,omitempty"`
	Serving    []servingRow  `json:"serving,omitempty"`
	Callers    []callersRow  `json:"callers,omitempty"`
	Computed   []computedRow `json:"computed,omitempty"`
	Benchmarks []benchmark   `json:"benchmarks,omitempty"`
}

// bandwidth is how many bytes a second can be read from memory.
type bandwidth struct {
	OneCore  float64 `json:"one_core"`
	AllCores float64 `json:"all_cores"`
}

// callersRow is the throughput of a number of callers.
type callersRow struct {
	Callers  int     `json:"callers"`
	Echo     float64 `json:"echo"`
	LocalHit float64 `json:"local_hit"`
}

func (r *report) json(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// table writes the report as Markdown, for people and for a README.
func (r *report) table(w io.Writer) error {
	t := &tables{}
	t.linef("%s, %d cores, %s, %s. %s, %v.", r.Machine.CPU, r.Machine.Cores, r.Machine.OS, r.Machine.Go,
		r.Began.Format("2006-01-02 15:04 MST"), r.Took)
	if r.Note != "" {
		t.linef("%s", r.Note)
	}
	r.readingTable(t)
	r.scoringTable(t)
	r.servingTable(t)
	r.computedTable(t)
	r.benchmarksTable(t)
	_, err := io.WriteString(w, t.text.String())
	return err
}

func (r *report) readingTable(t *tables) {
	if len(r.Reading) == 0 {
		return
	}
	t.linef("\nMemory is read at %.1f GB/s by one core, %.1f GB/s by all.", r.Bandwidth.OneCore/1e9, r.Bandwidth.AllCores/1e9)
	rows := [][]string{{"artifact", "size", "plain reading", "lock free to features", "GB/s", "of plain", "memory"}}
	for _, row := range r.Reading {
		rows = append(rows, []string{
			fmt.Sprintf("%d tokens x %s %s", row.Tokens, row.Shape, row.DType), megabytes(uint64(row.Bytes)),
			brief(row.Plain), brief(row.Features), fmt.Sprintf("%.1f", gbPerSecond(row.Bytes, row.Features)),
			percent(row.ofPlain()), megabytes(row.Memory),
		})
	}
	t.table(rows)
}

func (r *report) scoringTable(t *tables) {
	if len(r.Scoring) == 0 {
		return
	}
	rows := [][]string{{"scoring", "members", "heads", "weights", "one", "GB/s", "one core", "8 at once", "of one core", "choosing"}}
	for _, row := range r.Scoring {
		rows = append(rows, []string{
			row.Shape, strconv.Itoa(row.Members), strconv.Itoa(row.Heads), megabytes(uint64(row.Weights)), brief(row.One),
			fmt.Sprintf("%.1f", gbPerSecond(row.Weights, row.One)), brief(row.OneCore), brief(row.Eight),
			fmt.Sprintf("%.1fx", row.Eight.Seconds()/row.OneCore.Seconds()), brief(row.Choosing),
		})
	}
	t.table(rows)
}

func (r *report) servingTable(t *tables) {
	if len(r.Serving) == 0 {
		return
	}
	echo := r.Serving[0]
	rows := [][]string{{"serving", "a second", "of echo", "open loop at", "p50", "p99", "p99.9", "p99 of echo", "CPU", "allocations", "memory"}}
	for _, row := range r.Serving {
		ofEcho := "–"
		if row.Rate == echo.Rate {
			ofEcho = fmt.Sprintf("%.2fx", row.P99.Seconds()/echo.P99.Seconds())
		}
		rows = append(rows, []string{
			row.Name, fmt.Sprintf("%.0f", row.PerSecond), percent(row.PerSecond / echo.PerSecond), fmt.Sprintf("%.0f/s", row.Rate),
			brief(row.P50), brief(row.P99), brief(row.P999), ofEcho, brief(row.CPU), fmt.Sprintf("%.0f", row.Allocs), megabytes(row.Heap),
		})
	}
	t.table(rows)
	if len(r.Callers) == 0 {
		return
	}
	rows = [][]string{{"callers", "echo", "local hit", "of echo"}}
	for _, row := range r.Callers {
		rows = append(rows, []string{
			strconv.Itoa(row.Callers), fmt.Sprintf("%.0f/s", row.Echo), fmt.Sprintf("%.0f/s", row.LocalHit), percent(row.LocalHit / row.Echo),
		})
	}
	t.table(rows)
}

func (r *report) computedTable(t *tables) {
	if len(r.Computed) == 0 {
		return
	}
	rows := [][]string{{"computed", "stand-in alone", "Decide", "added", "small probes", "p50", "p99", "joined", "p50", "p99"}}
	for _, row := range r.Computed {
		rows = append(rows, []string{
			fmt.Sprintf("%d tokens x %s, + %v", row.Tokens, row.Shape, row.Latency), brief(row.Sim), brief(row.Decide),
			fmt.Sprintf("%s (%s)", brief(row.Decide-row.Sim), percent(row.Decide.Seconds()/row.Sim.Seconds()-1)),
			fmt.Sprintf("%.0f/s", row.PerSecond), brief(row.P50), brief(row.P99),
			fmt.Sprintf("%.0f/s", row.Join.PerSecond), brief(row.Join.P50), brief(row.Join.P99),
		})
	}
	t.table(rows)
}

func (r *report) benchmarksTable(t *tables) {
	if len(r.Benchmarks) == 0 {
		return
	}
	rows := [][]string{{"benchmark", "time", "GB/s", "allocations", "other"}}
	for _, b := range r.Benchmarks {
		speed := "–"
		if v, ok := b.Metrics["MB/s"]; ok {
			speed = fmt.Sprintf("%.1f", v/1000)
		}
		var other []string
		for unit, v := range b.Metrics {
			switch unit {
			case "ns/op", "MB/s", "B/op", "allocs/op":
			default:
				other = append(other, fmt.Sprintf("%.4g %s", v, unit))
			}
		}
		slices.Sort(other)
		rows = append(rows, []string{
			b.Package[strings.LastIndex(b.Package, "/")+1:] + " " + b.Name, brief(time.Duration(b.Metrics["ns/op"])), speed,
			fmt.Sprintf("%.0f", b.Metrics["allocs/op"]), strings.Join(other, ", "),
		})
	}
	t.table(rows)
}

// tables lays out Markdown tables.
type tables struct{ text strings.Builder }

func (t *tables) linef(format string, args ...any) { fmt.Fprintf(&t.text, format+"\n", args...) }

// table writes rows, the first of which is the head. Columns are as wide as they need.
func (t *tables) table(rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	t.linef("")
	for n, row := range rows {
		for i, cell := range row {
			fmt.Fprintf(&t.text, "| %s%s ", cell, strings.Repeat(" ", widths[i]-len([]rune(cell))))
		}
		t.linef("|")
		if n == 0 {
			for _, width := range widths {
				fmt.Fprintf(&t.text, "| %s ", strings.Repeat("-", width))
			}
			t.linef("|")
		}
	}
}

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

func megabytes(n uint64) string { return fmt.Sprintf("%.3g MB", float64(n)/1e6) }
