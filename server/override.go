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
	for _, o := range []struct {
		sent  bool
		needs permission
		field string
		what  string
	}{
		{in.GetTradeOff() != nil, mayTradeOff, tradeOffField(in), "a trade-off"},
		{in.GetCachePolicy() == pointsmanv1.CachePolicy_CACHE_POLICY_REFRESH, mayRefresh, "cache_policy", "REFRESH"},
		{in.GetMaxAge() != nil, mayRefresh, "max_age", "a max_age"},
		{in.GetCachePolicy() == pointsmanv1.CachePolicy_CACHE_POLICY_BYPASS, mayBypass, "cache_policy", "BYPASS"},
	} {
		if o.sent && may&o.needs == 0 {
			return &callError{
				reason: pointsmanv1.ErrorReason_ERROR_REASON_OVERRIDE_FORBIDDEN, field: o.field,
				message: "this caller may not send " + o.what,
			}
		}
	}
	return nil
}

func tradeOffField(in *pointsmanv1.DecideRequest) string {
	if _, ok := in.GetTradeOff().(*pointsmanv1.DecideRequest_Tolerance); ok {
		return "tolerance"
	}
	return "quality_weight"
}
