package server

import (
	"context"
	"maps"
	"slices"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// service is the gRPC door to a Decider: it validates, asks and translates.
type service struct {
	pointsmanv1.UnimplementedDecisionServiceServer

	decider *Decider
}

// Decide implements [pointsmanv1.DecisionServiceServer].
func (s *service) Decide(ctx context.Context, in *pointsmanv1.DecideRequest) (*pointsmanv1.DecideResponse, error) {
	c := callOf(ctx)
	req, err := requestFromProto(in, c)
	if err != nil {
		return nil, err
	}
	req.May = callerOf(ctx).may
	dec, err := s.decider.Decide(ctx, req)
	if err != nil {
		return nil, asCallError(err)
	}
	c.decision = dec
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
