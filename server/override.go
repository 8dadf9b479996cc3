package server

import (
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/server/config"
)

// overridesAllowed are the overrides that anybody at all may send.
func overridesAllowed(c config.Overrides) permission {
	var p permission
	if c.TradeOff {
		p |= mayTradeOff
	}
	if c.Refresh {
		p |= mayRefresh
	}
	if c.Bypass {
		p |= mayBypass
	}
	return p
}

// checkOverrides refuses what the request asks for beyond may. A REFRESH, a BYPASS
// and a max_age can each force a probe, which is time on a GPU; a trade-off is money.
func checkOverrides(in *pointsmanv1.DecideRequest, may permission) error {
	policy := in.GetCachePolicy()
	switch {
	case may == mayAll:
		return nil
	case may&mayTradeOff == 0 && in.GetTradeOff() != nil:
		return forbidden(tradeOffField(in), "a trade-off")
	case may&mayRefresh == 0 && policy == pointsmanv1.CachePolicy_CACHE_POLICY_REFRESH:
		return forbidden("cache_policy", "REFRESH")
	case may&mayRefresh == 0 && in.GetMaxAge() != nil:
		return forbidden("max_age", "a max_age")
	case may&mayBypass == 0 && policy == pointsmanv1.CachePolicy_CACHE_POLICY_BYPASS:
		return forbidden("cache_policy", "BYPASS")
	}
	return nil
}

func forbidden(field, what string) error {
	return &callError{
		reason: pointsmanv1.ErrorReason_ERROR_REASON_OVERRIDE_FORBIDDEN, field: field,
		message: "this caller may not send " + what,
	}
}

func tradeOffField(in *pointsmanv1.DecideRequest) string {
	if _, ok := in.GetTradeOff().(*pointsmanv1.DecideRequest_Tolerance); ok {
		return "tolerance"
	}
	return "quality_weight"
}
