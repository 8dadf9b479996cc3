package telemetry

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// scope names the instrumentation.
const scope = "github.com/pointsman-dev/pointsman"

// The metrics. In /metrics dots are underscores, and unit and _total are appended.
const (
	metricRPCDuration = "rpc.server.call.duration"
	metricRefused     = "pointsman.refused.calls"
	metricReloads     = "pointsman.reloads"

	metricDecisions   = "pointsman.decisions"
	metricDecideTime  = "pointsman.decision.duration"
	metricConfidence  = "pointsman.decision.confidence"
	metricMargin      = "pointsman.decision.margin"
	metricProbability = "pointsman.head.probability"
	metricPSI         = "pointsman.head.psi"
	metricShadow      = "pointsman.shadow.decisions"
	metricScoreTime   = "pointsman.score.duration"
	metricPanics      = "pointsman.panics"

	metricCacheLookups = "pointsman.cache.lookups"
	metricCacheTime    = "pointsman.cache.duration"
	metricCacheEvents  = "pointsman.cache.events"
	metricRedisTime    = "pointsman.redis.duration"
	metricRedisUp      = "pointsman.redis.up"

	metricProbeTime     = "pointsman.probe.duration"
	metricProbeShed     = "pointsman.probe.shed"
	metricProbeInFlight = "pointsman.probe.in_flight"
	metricProbeQueued   = "pointsman.probe.queued"
	metricProbeCapacity = "pointsman.probe.capacity"
	metricProbeState    = "pointsman.probe.state"
	metricBreaker       = "pointsman.probe.breaker.changes"
	metricArtifacts     = "pointsman.probe.artifacts"
	metricArtifactSize  = "pointsman.probe.artifact.size"
	metricTokens        = "pointsman.probe.tokens"
	metricSweeps        = "pointsman.probe.sweeps"
	metricSweepTime     = "pointsman.probe.sweep.duration"
	metricSwept         = "pointsman.probe.sweep.removed"
	metricSweepLeft     = "pointsman.probe.sweep.left"

	metricRecord     = "pointsman.record.decisions"
	metricBuild      = "pointsman.build.info"
	metricCheckpoint = "pointsman.checkpoint.info"
)

// The units, in UCUM. One in braces only annotates, and is not in the name.
const (
	unitSeconds = "s"
	unitBytes   = "By"
	unitOne     = "1"
)

// The labels of metrics.
const (
	labelRoute      = "route"
	labelTarget     = "target"
	labelTier       = "tier"
	labelBasis      = "basis"
	labelOrigin     = "origin"
	labelReason     = "reason"
	labelShadow     = "shadow_target"
	labelAgrees     = "agrees"
	labelHead       = "head"
	labelProbe      = "probe"
	labelStage      = "stage"
	labelOutcome    = "outcome"
	labelLayer      = "layer"
	labelEvent      = "event"
	labelOperation  = "operation"
	labelState      = "state"
	labelDType      = "dtype"
	labelLocked     = "locked"
	labelLeft       = "left"
	labelWhy        = "why"
	labelWhere      = "where"
	labelDigest     = "digest"
	labelEncoder    = "encoder"
	labelVersion    = "version"
	labelCommit     = "commit"
	labelGoVersion  = "go_version"
	labelRPCMethod  = "rpc.method"
	labelStatusCode = "rpc.response.status_code"
)

// none stands for an enumeration's value that is not set.
const none = "NONE"

// The spans. The root of a decision is the server span, named after the RPC.
const (
	spanPolicy       = "policy"
	spanProbe        = "probe"
	spanScore        = "score"
	spanCacheWait    = "cache wait"
	spanCacheLease   = "cache lease"
	spanCacheCompute = "cache compute"
	spanRedisRead    = "redis read"
	spanRedisClaim   = "redis claim"
	spanQueue        = "probe queue"
	spanChat         = "chat " // and the model
	spanArtifact     = "probe artifact"
	spanPool         = "probe pool"
)

// eventLookup is the event of one look into a cache.
const eventLookup = "cache lookup"

// The attributes of spans.
const (
	attrDecisionID = attribute.Key("pointsman.decision.id")
	attrRequestID  = attribute.Key("pointsman.request.id")
	attrRoute      = attribute.Key("pointsman.route")
	attrTarget     = attribute.Key("pointsman.target")
	attrTier       = attribute.Key("pointsman.tier")
	attrBasis      = attribute.Key("pointsman.basis")
	attrOrigin     = attribute.Key("pointsman.origin")
	attrReason     = attribute.Key("pointsman.fallback_reason")
	attrShadow     = attribute.Key("pointsman.shadow_target")
	attrConfidence = attribute.Key("pointsman.confidence")
	attrMargin     = attribute.Key("pointsman.margin")
	attrWeight     = attribute.Key("pointsman.quality_weight")
	attrTolerance  = attribute.Key("pointsman.tolerance")
	attrDigest     = attribute.Key("pointsman.checkpoint.digest")
	attrTokens     = attribute.Key("pointsman.task.tokens")

	attrProbe         = attribute.Key("pointsman.probe")
	attrArtifactBytes = attribute.Key("pointsman.artifact.bytes")
	attrArtifactDType = attribute.Key("pointsman.artifact.dtype")
	attrCacheLayer    = attribute.Key("pointsman.cache.layer")
	attrCacheOutcome  = attribute.Key("pointsman.cache.outcome")

	attrErrorType      = attribute.Key("error.type")
	attrGenAIOperation = attribute.Key("gen_ai.operation.name")
	attrGenAIProvider  = attribute.Key("gen_ai.provider.name")
	attrGenAIModel     = attribute.Key("gen_ai.request.model")
	attrGenAIMaxTokens = attribute.Key("gen_ai.request.max_tokens")
	attrGenAIInput     = attribute.Key("gen_ai.usage.input_tokens")
	attrDBSystem       = attribute.Key("db.system.name")
	attrServerAddress  = attribute.Key("server.address")
	attrServerPort     = attribute.Key("server.port")
)

// EnumName is an enum value's name without the enum's: LEARNED, not BASIS_LEARNED.
// Every value is written so in logs, trailers, metrics and spans.
func EnumName(value interface {
	protoreflect.Enum
	String() string
},
) string {
	return strings.TrimPrefix(value.String(), enumPrefixes[value.Descriptor().Name()])
}

// enumPrefixes holds the prefix of each enum's values.
var enumPrefixes = map[protoreflect.Name]string{
	"Basis":          "BASIS_",
	"Origin":         "ORIGIN_",
	"FallbackReason": "FALLBACK_REASON_",
	"ProbeState":     "PROBE_STATE_",
	"RouteMode":      "ROUTE_MODE_",
	"Tier":           "TIER_",
}

// labelOf is an enum value as a label: its name, or NONE if it is not set.
func labelOf(value interface {
	protoreflect.Enum
	String() string
},
) string {
	if value.Number() == 0 {
		return none
	}
	return EnumName(value)
}
