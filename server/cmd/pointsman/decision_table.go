package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// printDecision writes a decision for people: what was chosen and why, every
// target's score with a star at the chosen one, and where the time went.
func printDecision(w io.Writer, d *pointsmanv1.DecideResponse) error {
	var b strings.Builder
	facts := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fact := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(facts, "%s\t%s\n", name, printable(value)) // a Builder cannot fail
		}
	}
	fact("target", d.GetTarget())
	fact("model", d.GetModel())
	fact("tier", word(d.GetTier().String(), "TIER_"))
	fact("basis", word(d.GetBasis().String(), "BASIS_"))
	fact("reason", word(d.GetFallbackReason().String(), "FALLBACK_REASON_"))
	fact("shadow target", d.GetShadowTarget())
	if d.Confidence != nil {
		fact("confidence", decimal(d.GetConfidence()))
	}
	if d.Margin != nil {
		fact("margin", decimal(d.GetMargin()))
	}
	fact("trade-off", tradeOff(d))
	fact("origin", word(d.GetOrigin().String(), "ORIGIN_"))
	if t := d.GetScoreTime(); t != nil {
		fact("scored at", t.AsTime().Format(time.RFC3339))
	}
	if n := d.GetTaskTokens(); n > 0 {
		fact("tokens", strconv.Itoa(int(n)))
	}
	fact("checkpoint", d.GetCheckpointDigest())
	fact("route", d.GetRoute())
	fact("decision", d.GetDecisionId())
	fact("timing", timing(d.GetTiming()))
	_ = facts.Flush()

	if len(d.GetScores()) > 0 {
		b.WriteString("\n")
		writeScores(&b, d)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeScores(w io.Writer, d *pointsmanv1.DecideResponse) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "\tTARGET\tTIER\tHEAD\tPROBABILITY\tSTDDEV\tCOST\tNORMALISED\tUTILITY")
	for _, s := range d.GetScores() {
		mark := " "
		if s.GetTarget() == d.GetTarget() {
			mark = "*"
		}
		stddev := "-"
		if s.ProbabilityStddev != nil {
			stddev = decimal(s.GetProbabilityStddev())
		}
		tier := word(s.GetTier().String(), "TIER_")
		if tier == "" {
			tier = "-"
		}
		_, _ = fmt.Fprintln(table, strings.Join([]string{
			mark, printable(s.GetTarget()), tier, printable(s.GetHead()), decimal(s.GetProbability()), stddev,
			strconv.FormatFloat(s.GetCost(), 'g', -1, 64), decimal(s.GetNormalizedCost()), decimal(s.GetUtility()),
		}, "\t"))
	}
	_ = table.Flush()
}

// word takes the prefix from an enum value's name; UNSPECIFIED is no word.
func word(name, prefix string) string {
	if w := strings.TrimPrefix(name, prefix); w != "UNSPECIFIED" {
		return w
	}
	return ""
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', 4, 64) }

func tradeOff(d *pointsmanv1.DecideResponse) string {
	switch t := d.GetTradeOffUsed().(type) {
	case *pointsmanv1.DecideResponse_QualityWeight:
		return "quality weight " + strconv.FormatFloat(t.QualityWeight, 'g', -1, 64)
	case *pointsmanv1.DecideResponse_Tolerance:
		return "tolerance " + strconv.FormatFloat(t.Tolerance, 'g', -1, 64)
	default:
		return ""
	}
}

// timing lists the stages that happened in this call.
func timing(t *pointsmanv1.Timing) string {
	var stages []string
	add := func(name string, d *durationpb.Duration) {
		if d != nil {
			stages = append(stages, name+" "+d.AsDuration().Round(time.Microsecond).String())
		}
	}
	add("total", t.GetTotal())
	add("queue", t.GetQueue())
	add("wait", t.GetWait())
	add("probe", t.GetProbe())
	add("artifact", t.GetArtifact())
	add("score", t.GetScore())
	return strings.Join(stages, ", ")
}
