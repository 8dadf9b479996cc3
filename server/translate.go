package server

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pointsman-dev/pointsman/cache"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe"
	"github.com/pointsman-dev/pointsman/scorer"
	"github.com/pointsman-dev/pointsman/server/telemetry"
)

// maxNamespaceBytes is the longest cache_namespace: vLLM takes a cache_salt of at
// most 1024 characters.
const maxNamespaceBytes = 1024

// requestFromProto validates a request and takes it over. Only route and target
// names are left to the Decider, which knows them.
func requestFromProto(in *pointsmanv1.DecideRequest, c *call) (*Request, error) {
	req := &Request{
		ID:             c.id,
		Route:          in.GetRoute(),
		Namespace:      in.GetCacheNamespace(),
		AllowedTargets: in.GetAllowedTargets(),
		Arrived:        c.arrived,
		AnswerBy:       c.answerBy,
	}
	switch input := in.GetInput().(type) {
	case *pointsmanv1.DecideRequest_Task:
		req.Input.Task = input.Task
	case *pointsmanv1.DecideRequest_Conversation:
		req.Input.IsConversation = true
		req.Input.Conversation = conversationFromProto(input.Conversation)
	default:
		return nil, &callError{
			reason: pointsmanv1.ErrorReason_ERROR_REASON_INPUT_MISSING, field: "input",
			message: "set task or conversation",
		}
	}
	var err error
	if req.TradeOff, err = tradeOffFromProto(in); err != nil {
		return nil, err
	}
	if req.CachePolicy, err = cachePolicyFromProto(in.GetCachePolicy()); err != nil {
		return nil, err
	}
	switch in.GetFallbackPolicy() {
	case pointsmanv1.FallbackPolicy_FALLBACK_POLICY_UNSPECIFIED, pointsmanv1.FallbackPolicy_FALLBACK_POLICY_FAIL:
	default:
		return nil, unknownEnum("fallback_policy", in.GetFallbackPolicy())
	}
	if len(req.Namespace) > maxNamespaceBytes {
		return nil, &callError{
			reason: pointsmanv1.ErrorReason_ERROR_REASON_CACHE_NAMESPACE_TOO_LONG, field: "cache_namespace",
			message: fmt.Sprintf("has %d bytes; at most %d are allowed", len(req.Namespace), maxNamespaceBytes),
		}
	}
	if in.GetMaxAge() != nil {
		if err := in.GetMaxAge().CheckValid(); err != nil || in.GetMaxAge().AsDuration() < 0 {
			return nil, &callError{
				reason: pointsmanv1.ErrorReason_ERROR_REASON_MAX_AGE_INVALID, field: "max_age",
				message: "must be a valid duration of zero or more",
			}
		}
		req.MaxAge = new(in.GetMaxAge().AsDuration())
	}
	return req, nil
}

// tradeOffFromProto returns the request's trade-off, nil if it has none.
func tradeOffFromProto(in *pointsmanv1.DecideRequest) (*scorer.TradeOff, error) {
	var (
		field    string
		value    float64
		tradeOff *scorer.TradeOff
	)
	switch t := in.GetTradeOff().(type) {
	case nil:
		return nil, nil
	case *pointsmanv1.DecideRequest_QualityWeight:
		field, value, tradeOff = "quality_weight", t.QualityWeight, new(scorer.QualityWeight(t.QualityWeight))
	case *pointsmanv1.DecideRequest_Tolerance:
		field, value, tradeOff = "tolerance", t.Tolerance, new(scorer.Tolerance(t.Tolerance))
	}
	if math.IsNaN(value) || value < 0 || value > 1 {
		return nil, &callError{
			reason: pointsmanv1.ErrorReason_ERROR_REASON_TRADE_OFF_OUT_OF_RANGE, field: field,
			message: fmt.Sprintf("is %v; it must be a number from 0 to 1", value),
		}
	}
	return tradeOff, nil
}

func cachePolicyFromProto(p pointsmanv1.CachePolicy) (cache.Policy, error) {
	switch p {
	case pointsmanv1.CachePolicy_CACHE_POLICY_UNSPECIFIED:
		return cache.Default, nil
	case pointsmanv1.CachePolicy_CACHE_POLICY_BYPASS:
		return cache.Bypass, nil
	case pointsmanv1.CachePolicy_CACHE_POLICY_REFRESH:
		return cache.Refresh, nil
	case pointsmanv1.CachePolicy_CACHE_POLICY_ONLY_IF_CACHED:
		return cache.OnlyIfCached, nil
	default:
		return 0, unknownEnum("cache_policy", p)
	}
}

// unknownEnum refuses an enum value of a newer contract: guessing what its sender
// meant would be worse.
func unknownEnum(field string, value protoreflect.Enum) error {
	return &callError{
		reason: pointsmanv1.ErrorReason_ERROR_REASON_ENUM_UNKNOWN, field: field,
		message: fmt.Sprintf("%d is no value of %s that this server knows", value.Number(), value.Descriptor().FullName()),
	}
}

func conversationFromProto(in *pointsmanv1.Conversation) []Message {
	messages := make([]Message, len(in.GetMessages()))
	for i, m := range in.GetMessages() {
		switch m.GetRole() {
		case pointsmanv1.Role_ROLE_USER:
			messages[i].Role = SpeakerUser
		case pointsmanv1.Role_ROLE_ASSISTANT:
			messages[i].Role = SpeakerAssistant
		default: // the task is never found there, known or not
			continue
		}
		for _, part := range m.GetParts() {
			if text, ok := part.GetKind().(*pointsmanv1.ContentPart_Text); ok {
				messages[i].Texts = append(messages[i].Texts, text.Text)
			}
		}
	}
	return messages
}

// answer is the memory of a whole answer: a cached one should cost few allocations.
type answer struct {
	response  pointsmanv1.DecideResponse
	timing    pointsmanv1.Timing
	total     durationpb.Duration
	scoreTime timestamppb.Timestamp
	scores    [usualTargets]pointsmanv1.TargetScore
	refs      [usualTargets]*pointsmanv1.TargetScore
}

// usualTargets is for how many targets an answer has room.
const usualTargets = 2

// decisionToProto translates a decision.
func decisionToProto(dec *Decision) *pointsmanv1.DecideResponse {
	a := &answer{}
	out := &a.response
	out.DecisionId = dec.ID
	out.Route = dec.Route.Name
	out.Target = dec.Target.Name
	out.Model = dec.Target.Model
	out.Tier = dec.Target.Tier
	out.Basis = dec.Basis
	out.FallbackReason = dec.Reason
	setDuration(&a.total, dec.Timing.Total)
	a.timing.Total = &a.total
	a.timing.Queue = durationToProto(dec.Timing.Queue)
	a.timing.Wait = durationToProto(dec.Timing.Wait)
	a.timing.Probe = durationToProto(dec.Timing.Probe)
	a.timing.Artifact = durationToProto(dec.Timing.Artifact)
	a.timing.Score = durationToProto(dec.Timing.Score)
	out.Timing = &a.timing
	if dec.Shadow != nil {
		out.ShadowTarget = dec.Shadow.Name
	}
	learned := dec.Learned
	if learned == nil {
		return out
	}
	out.Origin = originToProto(learned.Origin)
	out.Confidence = learned.Choice.Confidence
	out.Margin = &learned.Choice.Margin
	out.CheckpointDigest = learned.Scores.Digest
	a.scoreTime.Seconds, a.scoreTime.Nanos = learned.Computed.Unix(), int32(learned.Computed.Nanosecond())
	out.ScoreTime = &a.scoreTime
	out.TaskTokens = int32(min(learned.Scores.Tokens, math.MaxInt32))
	if w, ok := dec.TradeOff.QualityWeight(); ok {
		out.TradeOffUsed = &pointsmanv1.DecideResponse_QualityWeight{QualityWeight: w}
	} else if t, ok := dec.TradeOff.Tolerance(); ok {
		out.TradeOffUsed = &pointsmanv1.DecideResponse_Tolerance{Tolerance: t}
	}
	scores, refs := a.scores[:], a.refs[:]
	if len(learned.Targets) > usualTargets {
		scores = make([]pointsmanv1.TargetScore, len(learned.Targets))
		refs = make([]*pointsmanv1.TargetScore, len(learned.Targets))
	}
	out.Scores = refs[:len(learned.Targets)]
	for i, target := range learned.Targets {
		s := &learned.Choice.Scores[i]
		scores[i].Target = target.Name
		scores[i].Model = target.Model
		scores[i].Tier = target.Tier
		scores[i].Head = target.Head
		scores[i].Probability = s.Probability
		scores[i].ProbabilityStddev = s.Stddev
		scores[i].Cost = target.Cost
		scores[i].NormalizedCost = s.NormalizedCost
		scores[i].Utility = s.Utility
		out.Scores[i] = &scores[i]
	}
	return out
}

func durationToProto(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

// setDuration is durationpb.New into memory that is there already.
func setDuration(out *durationpb.Duration, d time.Duration) {
	out.Seconds, out.Nanos = int64(d/time.Second), int32(d%time.Second)
}

// routeToProto translates a route for ListRoutes.
func routeToProto(r *Route) *pointsmanv1.Route {
	manifest := r.Checkpoint.Manifest()
	out := &pointsmanv1.Route{
		Name:             r.Name,
		FallbackTarget:   r.Fallback.Name,
		Mode:             r.Mode,
		Encoder:          manifest.Encoder,
		CheckpointDigest: r.Checkpoint.Digest(),
		EnsembleSize:     int32(manifest.EnsembleSize),
		Heads:            r.Checkpoint.Heads(),
		ProbeState:       probeStateToProto(r.Probe.Status().State),
	}
	if w, ok := r.TradeOff.QualityWeight(); ok {
		out.TradeOff = &pointsmanv1.Route_QualityWeight{QualityWeight: w}
	} else if t, ok := r.TradeOff.Tolerance(); ok {
		out.TradeOff = &pointsmanv1.Route_Tolerance{Tolerance: t}
	}
	if b := r.Backup; b != nil {
		out.Backup = &pointsmanv1.Backup{
			Encoder:          b.Checkpoint.Manifest().Encoder,
			CheckpointDigest: b.Checkpoint.Digest(),
			ProbeState:       probeStateToProto(b.Probe.Status().State),
		}
	}
	for _, t := range r.Targets {
		out.Targets = append(out.Targets, &pointsmanv1.Target{
			Name: t.Name, Model: t.Model, Tier: t.Tier, Head: t.Head, Cost: t.Cost,
		})
	}
	return out
}

func originToProto(o cache.Origin) pointsmanv1.Origin {
	switch o {
	case cache.Computed:
		return pointsmanv1.Origin_ORIGIN_COMPUTED
	case cache.Local:
		return pointsmanv1.Origin_ORIGIN_LOCAL_CACHE
	case cache.Shared:
		return pointsmanv1.Origin_ORIGIN_SHARED_CACHE
	case cache.JoinedLocal:
		return pointsmanv1.Origin_ORIGIN_JOINED_LOCAL
	case cache.JoinedShared:
		return pointsmanv1.Origin_ORIGIN_JOINED_SHARED
	default:
		return pointsmanv1.Origin_ORIGIN_UNSPECIFIED
	}
}

func probeStateToProto(s probe.State) pointsmanv1.ProbeState {
	switch s {
	case probe.StateReady:
		return pointsmanv1.ProbeState_PROBE_STATE_READY
	case probe.StateDegraded:
		return pointsmanv1.ProbeState_PROBE_STATE_DEGRADED
	case probe.StateDown:
		return pointsmanv1.ProbeState_PROBE_STATE_DOWN
	default:
		return pointsmanv1.ProbeState_PROBE_STATE_UNSPECIFIED
	}
}

// enumName is an enum value's name without the enum's: LEARNED, not BASIS_LEARNED.
// Every value is written so in logs, trailers, metrics and spans.
func enumName(value interface {
	protoreflect.Enum
	String() string
},
) string {
	return telemetry.EnumName(value)
}
