package telemetry

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/server/internal/memo"
)

// probeStages is how many stages an extraction has.
const probeStages = int(probe.StagePool) + 1

// ProbeInfo is what is shown of a probe.
type ProbeInfo struct {
	Name string
	// Model is the name vLLM serves the encoder under.
	Model   string
	BaseURL string
}

// probeObserver shows what happens inside one probe.
type probeObserver struct {
	t         *Telemetry
	probe     string
	name      labels
	stages    [probeStages][outcomeCount]labels
	spanNames [probeStages]string
	spans     [probeStages][]trace.SpanStartOption
	shed      [outcomeCount]labels
	artifacts memo.Memo[artifactKey, labels]
	breaker   memo.Memo[probe.State, labels]
	sweptGood labels
	sweptBad  labels
	held      labels
	foreign   labels
}

type artifactKey struct {
	dtype        string
	locked, left bool
}

// ProbeObserver returns the observer of a probe.
func (t *Telemetry) ProbeObserver(info ProbeInfo) probe.Observer {
	o := &probeObserver{
		t:         t,
		probe:     info.Name,
		name:      newLabels(labelProbe, info.Name),
		sweptGood: newLabels(labelProbe, info.Name, labelOutcome, outcomeOK.String()),
		sweptBad:  newLabels(labelProbe, info.Name, labelOutcome, outcomeFailed.String()),
		held:      newLabels(labelProbe, info.Name, labelWhy, "held"),
		foreign:   newLabels(labelProbe, info.Name, labelWhy, "foreign"),
		spanNames: [probeStages]string{
			probe.StageQueue: spanQueue, probe.StageHTTP: spanChat + info.Model,
			probe.StageArtifact: spanArtifact, probe.StagePool: spanPool,
		},
	}
	for stage := range probeStages {
		for how := range outcomeCount {
			o.stages[stage][how] = newLabels(labelProbe, info.Name, labelStage, probe.Stage(stage).String(), labelOutcome, how.String())
		}
		o.spans[stage] = spanOptions(trace.SpanKindInternal, attrProbe.String(info.Name))
	}
	for how := range outcomeCount {
		o.shed[how] = newLabels(labelProbe, info.Name, labelReason, how.String())
	}
	o.spans[probe.StageHTTP] = spanOptions(trace.SpanKindClient, chatAttributes(info)...)
	return o
}

// chatAttributes are those that OpenTelemetry's conventions for generative AI give a
// client's span.
func chatAttributes(info ProbeInfo) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attrProbe.String(info.Name),
		attrGenAIOperation.String("chat"),
		attrGenAIProvider.String("vllm"),
		attrGenAIModel.String(info.Model),
		attrGenAIMaxTokens.Int(1),
	}
	if u, err := url.Parse(info.BaseURL); err == nil {
		attrs = append(attrs, attrServerAddress.String(u.Hostname()))
		if port, err := strconv.Atoi(u.Port()); err == nil {
			attrs = append(attrs, attrServerPort.Int(port))
		}
	}
	return attrs
}

// Stage implements [probe.Observer].
func (o *probeObserver) Stage(ctx context.Context, stage probe.Stage) (context.Context, func(error)) {
	began := time.Now()
	ctx, span := o.t.start(ctx, o.spanNames[stage], o.spans[stage])
	return ctx, func(err error) {
		how := outcomeOf(err)
		o.t.in.probeTime.Record(ctx, time.Since(began).Seconds(), o.stages[stage][how].record...)
		if stage == probe.StageQueue && (how == outcomeOverloaded || how == outcomeCircuitOpen) {
			o.t.in.probeShed.Add(ctx, 1, o.shed[how].add...)
		}
		end(span, err, how)
	}
}

// Inject implements [probe.Observer]: vLLM's own spans join the trace. Baggage stays
// here, since it is a message to us and may hold what a model server need not know.
func (o *probeObserver) Inject(ctx context.Context, header http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
}

// Artifact implements [probe.Observer].
func (o *probeObserver) Artifact(ctx context.Context, r probe.ArtifactReport) {
	key := artifactKey{dtype: dtypeLabel(r.DType), locked: r.Locked, left: r.Left}
	o.t.in.artifacts.Add(ctx, 1, o.artifacts.Get(key, o.artifactLabels).add...)
	if r.Bytes > 0 {
		o.t.in.artifactSize.Record(ctx, r.Bytes, o.name.record...)
	}
	if r.Tokens > 0 {
		o.t.in.tokens.Record(ctx, int64(r.Tokens), o.name.record...)
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(
			attrArtifactBytes.Int64(r.Bytes),
			attrArtifactDType.String(key.dtype),
			attrGenAIInput.Int(r.Tokens),
		)
	}
}

func (o *probeObserver) artifactLabels(k artifactKey) labels {
	return newLabels(
		labelProbe, o.probe, labelDType, k.dtype,
		labelLocked, strconv.FormatBool(k.locked), labelLeft, strconv.FormatBool(k.left))
}

// dtypeLabel keeps a number format that vLLM wrote within a closed set.
func dtypeLabel(dtype string) string {
	switch dtype {
	case "BF16", "F16", "F32":
		return dtype
	case "":
		return "none"
	default:
		return "other"
	}
}

// Breaker implements [probe.Observer].
func (o *probeObserver) Breaker(state probe.State) {
	o.t.in.breaker.Add(context.Background(), 1, o.breaker.Get(state, func(s probe.State) labels {
		return newLabels(labelProbe, o.probe, labelState, s.String())
	}).add...)
	switch state {
	case probe.StateDown:
		o.t.log.Warn("a probe's circuit breaker opened", "probe", o.probe)
	case probe.StateReady:
		o.t.log.Info("a probe's circuit breaker closed", "probe", o.probe)
	case probe.StateDegraded: // it will open or close in a moment
	}
}

// Swept implements [probe.Observer].
func (o *probeObserver) Swept(r probe.SweepReport) {
	ctx := context.Background() // a sweep belongs to no call
	outcome := o.sweptGood
	if r.Errors > 0 {
		outcome = o.sweptBad
	}
	o.t.in.sweeps.Add(ctx, 1, outcome.add...)
	o.t.in.sweepTime.Record(ctx, r.Took.Seconds(), o.name.record...)
	o.t.in.swept.Add(ctx, int64(r.Removed), o.name.add...)
	o.t.in.sweepLeft.Record(ctx, int64(r.Held), o.held.record...)
	o.t.in.sweepLeft.Record(ctx, int64(r.Foreign), o.foreign.record...)
}
