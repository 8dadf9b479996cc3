package server

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// The trailers of a Decide that was answered. [requestIDHeader] is one more.
const (
	trailerBasis          = "pointsman-basis"
	trailerFallbackReason = "pointsman-fallback-reason"
	trailerDecisionID     = "pointsman-decision-id"
)

// service is the gRPC door to a Decider: it validates, asks and translates.
type service struct {
	pointsmanv1.UnimplementedDecisionServiceServer

	decider *Decider
}

// Decide implements [pointsmanv1.DecisionServiceServer].
func (s *service) Decide(ctx context.Context, in *pointsmanv1.DecideRequest) (*pointsmanv1.DecideResponse, error) {
	c := callOf(ctx)
	if err := checkOverrides(in, s.decider.snapshot.Load().overrides&callerOf(ctx).may); err != nil {
		return nil, err
	}
	req, err := requestFromProto(in, c)
	if err != nil {
		return nil, err
	}
	dec, err := s.decider.Decide(ctx, req)
	if err != nil {
		return nil, asCallError(err)
	}
	c.decision = dec
	trail(ctx, dec)
	if dec.Basis == pointsmanv1.Basis_BASIS_FALLBACK && in.GetFallbackPolicy() == pointsmanv1.FallbackPolicy_FALLBACK_POLICY_FAIL {
		return nil, refusedFallback(dec)
	}
	return decisionToProto(dec), nil
}

// ListRoutes implements [pointsmanv1.DecisionServiceServer].
func (s *service) ListRoutes(context.Context, *pointsmanv1.ListRoutesRequest) (*pointsmanv1.ListRoutesResponse, error) {
	snapshot := s.decider.snapshot.Load()
	out := &pointsmanv1.ListRoutesResponse{DefaultRoute: snapshot.defaultRoute}
	for _, name := range slices.Sorted(maps.Keys(snapshot.routes)) {
		out.Routes = append(out.Routes, routeToProto(snapshot.routes[name]))
	}
	return out, nil
}

// trail puts what meshes and logs want to know into the trailers.
func trail(ctx context.Context, dec *Decision) {
	md := metadata.MD{
		trailerBasis:      {enumName(dec.Basis)},
		trailerDecisionID: {dec.ID},
	}
	if dec.Reason != reasonNone {
		md[trailerFallbackReason] = []string{enumName(dec.Reason)}
	}
	// It fails only where there is no stream to answer on, as in a test.
	_ = grpc.SetTrailer(ctx, md)
}

// refusedFallback is the answer to a caller that has a fallback of its own.
func refusedFallback(dec *Decision) error {
	reason := enumName(dec.Reason)
	return &callError{
		reason:  pointsmanv1.ErrorReason_ERROR_REASON_FALLBACK_REFUSED,
		message: "nothing learned to answer: " + reason,
		metadata: map[string]string{
			"fallback_reason": reason,
			"decision_id":     dec.ID,
			"route":           dec.Route.Name,
		},
	}
}
