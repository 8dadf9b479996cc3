package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/probe/lexical"
	"github.com/pointsman-dev/pointsman/server/config"
)

// The exit codes of [Check], by severity.
const (
	ExitGood    = 0 // the service would start, and its probes answer; there may be warnings
	ExitBroken  = 1 // the service would not start
	ExitFailing = 2 // the service would start, but a probe or Redis does not answer as it should
)

// canaryPrompt is what check asks each probe.
const canaryPrompt = "Which of these two railway lines leads to the harbour?"

// canaryGrace is how long check lets a canary that was sent come to an end.
const canaryGrace = 5 * time.Second

// CheckOptions are the flags of `pointsman check`.
type CheckOptions struct {
	ConfigPath string
	// Offline sends nothing.
	Offline bool
	// JSON prints the report for machines.
	JSON bool
}

// CheckReport is what [Check] found.
type CheckReport struct {
	Config   string   `json:"config"`
	ExitCode int      `json:"exit_code"`
	Errors   []string `json:"errors,omitempty"`
	// Problems are those errors that are mistakes in the file, in their parts.
	Problems []*config.Problem `json:"problems,omitempty"`
	Warnings []string          `json:"warnings,omitempty"`
	Routes   []RouteCheck      `json:"routes,omitempty"`
	Probes   []ProbeCheck      `json:"probes,omitempty"`
	// SharedCache is what asking Redis came to: "answered" or what failed. Empty
	// without one, or offline.
	SharedCache string `json:"shared_cache,omitempty"`
}

// RouteCheck is a route that could be built.
type RouteCheck struct {
	Name             string   `json:"name"`
	Probe            string   `json:"probe"`
	TradeOff         string   `json:"trade_off"`
	Fallback         string   `json:"fallback"`
	CheckpointDigest string   `json:"checkpoint_digest"`
	Encoder          string   `json:"encoder"`
	Layers           int      `json:"layers"`
	HiddenSize       int      `json:"hidden_size"`
	PCADim           int      `json:"pca_dim"`
	EnsembleSize     int      `json:"ensemble_size"`
	Heads            []string `json:"heads"`
	// LaunchFlag is how vLLM must be launched, if the checkpoint says so.
	LaunchFlag string `json:"launch_flag,omitempty"`
	// Backup is what is asked when the probe or the checkpoint fails.
	Backup *BackupCheck `json:"backup,omitempty"`
}

// BackupCheck is a route's backup.
type BackupCheck struct {
	Probe            string `json:"probe"`
	CheckpointDigest string `json:"checkpoint_digest"`
	Encoder          string `json:"encoder"`
	EnsembleSize     int    `json:"ensemble_size"`
}

// ProbeCheck is what the canary of one endpoint of a probe found.
type ProbeCheck struct {
	Name       string `json:"name"`
	Endpoint   string `json:"endpoint,omitempty"`
	Error      string `json:"error,omitempty"`
	Tokens     int    `json:"tokens,omitempty"`
	Layers     int    `json:"layers,omitempty"`
	HiddenSize int    `json:"hidden_size,omitempty"`
	DType      string `json:"dtype,omitempty"`
	Bytes      int64  `json:"artifact_bytes,omitempty"`
	// Locked and Foreign are absent where there is no folder shared with vLLM.
	Locked  *bool `json:"locked,omitempty"`
	Foreign *int  `json:"foreign_files,omitempty"`
	// Room is how many bytes of artifacts may be in the folder at a time.
	Room     int64  `json:"max_outstanding_bytes,omitempty"`
	HTTP     string `json:"http_time,omitempty"`
	Artifact string `json:"artifact_time,omitempty"`
	// Encoding is what a probe that asks no server took.
	Encoding string   `json:"encoding_time,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Check builds everything that `serve` would, without binding, sends one canary
// through each probe unless told not to, and prints what it found. It returns the
// exit code; its error is of the printing alone.
func Check(ctx context.Context, opts CheckOptions, out io.Writer) (int, error) {
	report := check(ctx, opts)
	if opts.JSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return report.ExitCode, encoder.Encode(report)
	}
	_, err := io.WriteString(out, report.text(opts.Offline))
	return report.ExitCode, err
}

func check(ctx context.Context, opts CheckOptions) *CheckReport {
	report := &CheckReport{Config: opts.ConfigPath}
	cfg, err := config.Load(opts.ConfigPath)
	if err != nil {
		return report.broken(err)
	}
	s, err := New(cfg, slog.New(slog.DiscardHandler), Offline())
	if err != nil {
		return report.broken(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), canaryGrace)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			report.Warnings = append(report.Warnings, err.Error())
		}
	}()
	report.Warnings = s.Warnings()
	routes := s.decider.snapshot.Load().routes
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		report.Routes = append(report.Routes, checkRoute(routes[name]))
		if err := routes[name].unwatched; errors.Is(err, os.ErrNotExist) { // other reasons are among the server's warnings
			report.Warnings = append(report.Warnings, warnUnwatched(routes[name])...)
		}
	}
	if opts.Offline {
		return report
	}
	probes := s.now.Load().probes
	for _, name := range slices.Sorted(maps.Keys(probes)) {
		all := checkProbe(ctx, name, probes[name], routes)
		for i, found := range all {
			if found.Error != "" {
				report.ExitCode = ExitFailing
			}
			found.Warnings = slices.DeleteFunc(found.Warnings, func(w string) bool { // the server's have it already
				return slices.Contains(report.Warnings, warnOfProbe(name, warnOfEndpoint(i, len(all), w)))
			})
			report.Probes = append(report.Probes, found)
		}
	}
	if s.redis != nil {
		report.SharedCache = "answered"
		if err := s.redis.Check(ctx); err != nil {
			report.SharedCache = err.Error()
			report.ExitCode = ExitFailing
		}
	}
	return report
}

// broken notes each error of a joined one in a line of its own.
func (r *CheckReport) broken(err error) *CheckReport {
	r.ExitCode = ExitBroken
	r.Problems = config.Problems(err)
	for line := range strings.Lines(err.Error()) {
		r.Errors = append(r.Errors, strings.TrimRight(line, "\n"))
	}
	return r
}

func checkRoute(r *Route) RouteCheck {
	m := r.Checkpoint.Manifest()
	found := RouteCheck{
		Name: r.Name, Probe: r.probeName, TradeOff: r.TradeOff.String(), Fallback: r.Fallback.Name,
		CheckpointDigest: r.Checkpoint.Digest(), Encoder: m.Encoder,
		Layers: m.Layers, HiddenSize: m.HiddenSize, PCADim: m.PCADim, EnsembleSize: m.EnsembleSize,
		Heads: r.Checkpoint.Heads(), LaunchFlag: launchFlag(m.VLLMLayerIDs),
	}
	if b := r.Backup; b != nil {
		found.Backup = &BackupCheck{
			Probe: b.probeName, CheckpointDigest: b.Checkpoint.Digest(),
			Encoder: b.Checkpoint.Manifest().Encoder, EnsembleSize: b.Checkpoint.Manifest().EnsembleSize,
		}
	}
	return found
}

// launchFlag is the vLLM argument that makes it write these layers.
func launchFlag(layers []int) string {
	if len(layers) == 0 {
		return ""
	}
	ids, err := json.Marshal(layers)
	if err != nil { // integers always marshal
		return ""
	}
	return fmt.Sprintf(`--speculative-config '{"method":"extract_hidden_states","num_speculative_tokens":1,`+
		`"draft_model_config":{"hf_config":{"eagle_aux_hidden_state_layer_ids":%s}}}'`, ids)
}

// checkProbe checks each endpoint of a probe, or the probe itself where it asks nobody.
func checkProbe(ctx context.Context, name string, p *heldProbe, routes map[string]*Route) []ProbeCheck {
	if p.cfg.Kind == config.ProbeKindLexical {
		return []ProbeCheck{checkLocalProbe(ctx, ProbeCheck{Name: name}, p)}
	}
	var all []ProbeCheck
	for i, endpoint := range endpointsOf(p) {
		all = append(all, checkEndpoint(ctx, ProbeCheck{Name: name, Endpoint: p.cfg.Endpoints[i].BaseURL}, endpoint, routes))
	}
	return all
}

// checkEndpoint sends a canary, and compares what comes back with the checkpoints of
// the probe's routes.
func checkEndpoint(ctx context.Context, found ProbeCheck, p *probe.VLLM, routes map[string]*Route) ProbeCheck {
	canary, err := p.Check(ctx, canaryPrompt, probe.Shape{})
	if err != nil {
		found.Error = err.Error()
		found.Warnings = canary.Warnings
		if errors.Is(err, probe.ErrArtifact) && canary.Artifact.Bytes == 0 {
			found.Error += "; vLLM answered, but its file is not in hidden_states_dir: do both see the same folder (one mount, " +
				"shared_storage_path), and is reported_dir the path under which vLLM sees it?"
		}
		return found
	}
	found.Tokens, found.Layers, found.HiddenSize = canary.Tokens, canary.Layers, canary.HiddenSize
	found.DType, found.Bytes, found.Locked, found.Foreign = canary.Artifact.DType, canary.Artifact.Bytes, &canary.Artifact.Locked, &canary.Foreign
	found.HTTP, found.Artifact = canary.HTTP.Round(time.Microsecond).String(), canary.Extraction.Artifact.Round(time.Microsecond).String()
	found.Warnings, found.Room = canary.Warnings, canary.Room
	var errs []error
	for _, routeName := range slices.Sorted(maps.Keys(routes)) {
		r := routes[routeName]
		for _, source := range []*Source{&r.Source, r.Backup} {
			if source != nil && source.probeName == found.Name && source.shape != canary.Shape {
				errs = append(errs, fmt.Errorf(
					"vLLM writes %d layers of %d values, but the checkpoint of route %q has %d of %d; check eagle_aux_hidden_state_layer_ids",
					canary.Layers, canary.HiddenSize, routeName, source.shape.Layers, source.shape.HiddenSize))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		found.Error = err.Error()
	}
	return found
}

// checkLocalProbe encodes the canary. That the checkpoints fit was found when they
// were loaded.
func checkLocalProbe(ctx context.Context, found ProbeCheck, p Prober) ProbeCheck {
	canary, err := p.Extract(ctx, probe.Request{Task: canaryPrompt})
	if err != nil {
		found.Error = err.Error()
		return found
	}
	found.Tokens, found.Layers, found.HiddenSize = canary.Tokens, canary.Layers, canary.HiddenSize
	found.Encoding = canary.HTTP.Round(time.Microsecond).String()
	return found
}

// where names the probe and, if it asks a server, which.
func (p ProbeCheck) where() string {
	if p.Endpoint == "" {
		return p.Name
	}
	return p.Name + " at " + p.Endpoint
}

// text is the report for people.
func (r *CheckReport) text(offline bool) string {
	var b strings.Builder
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "ERROR    %s\n", e)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "WARNING  %s\n", w)
	}
	for _, rt := range r.Routes {
		rt.write(&b)
	}
	for _, p := range r.Probes {
		if p.Error != "" {
			fmt.Fprintf(&b, "FAILING  probe %s: %s\n", p.where(), p.Error)
		} else {
			fmt.Fprintf(&b, "probe    %s: answered\n", p.where())
		}
		switch {
		case p.Encoding != "": // no artifact: encoded in this process
			fmt.Fprintf(&b, "         %d pieces, %d values, encoded in %s, without a server\n", p.Tokens, p.Layers*p.HiddenSize, p.Encoding)
		case p.Layers > 0:
			lock := "no lock file (vLLM before 0.22, or use_synchronization_lock=false)"
			if *p.Locked {
				lock = "lock file used"
			}
			fmt.Fprintf(&b, "         %d tokens, %d layers x %d, %s, %d bytes; %s\n", p.Tokens, p.Layers, p.HiddenSize, p.DType, p.Bytes, lock)
			fmt.Fprintf(&b, "         answer after %s, hidden states %s later; %d foreign files in the folder\n", p.HTTP, p.Artifact, *p.Foreign)
			fmt.Fprintf(&b, "         room for %d MiB of hidden states at a time\n", p.Room>>20)
		}
		for _, w := range p.Warnings {
			fmt.Fprintf(&b, "WARNING  probe %s: %s\n", p.where(), w)
		}
	}
	switch r.SharedCache {
	case "":
	case "answered":
		fmt.Fprintln(&b, "redis    answered")
	default:
		fmt.Fprintf(&b, "FAILING  redis: %s\n", r.SharedCache)
	}
	switch {
	case r.ExitCode == ExitBroken:
		fmt.Fprintf(&b, "%s: the service would not start\n", r.Config)
	case r.ExitCode == ExitFailing:
		fmt.Fprintf(&b, "%s: the service would start, and answer its fallback targets, or do without, where it says FAILING\n", r.Config)
	case offline:
		fmt.Fprintf(&b, "%s: good; no probe was asked (--offline)\n", r.Config)
	default:
		fmt.Fprintf(&b, "%s: good\n", r.Config)
	}
	return b.String()
}

// write is the route's part of the report for people.
func (rt *RouteCheck) write(b *strings.Builder) {
	fmt.Fprintf(b, "route    %s: probe %s, %s, fallback %s\n", rt.Name, rt.Probe, rt.TradeOff, rt.Fallback)
	fmt.Fprintf(b, "         checkpoint %s\n", rt.CheckpointDigest)
	fmt.Fprintf(b, "         encoder %s, %d layers x %d, PCA %d, %d members, heads %s\n",
		rt.Encoder, rt.Layers, rt.HiddenSize, rt.PCADim, rt.EnsembleSize, strings.Join(rt.Heads, ", "))
	if k := rt.Backup; k != nil {
		fmt.Fprintf(b, "         backup: probe %s, encoder %s, %d members, checkpoint %s\n", k.Probe, k.Encoder, k.EnsembleSize, k.CheckpointDigest)
	}
	switch {
	case rt.LaunchFlag != "":
		fmt.Fprintf(b, "         vLLM needs %s\n", rt.LaunchFlag)
	case rt.Encoder == lexical.Encoder: // asks no vLLM
	default:
		fmt.Fprintf(b, "         the checkpoint does not say which %d vLLM layers it wants (vllm_layer_ids)\n", rt.Layers)
	}
}
