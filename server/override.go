package server

import (
	"github.com/pointsman-dev/pointsman/cache"
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
func (r *Request) checkOverrides(may permission) error {
	switch {
	case may == mayAll:
		return nil
	case may&mayTradeOff == 0 && r.TradeOff != nil:
		field := "quality_weight"
		if _, ok := r.TradeOff.Tolerance(); ok {
			field = "tolerance"
		}
		return &OverrideError{Field: field, What: "a trade-off"}
	case may&mayRefresh == 0 && r.CachePolicy == cache.Refresh:
		return &OverrideError{Field: "cache_policy", What: "REFRESH"}
	case may&mayRefresh == 0 && r.MaxAge != nil:
		return &OverrideError{Field: "max_age", What: "a max_age"}
	case may&mayBypass == 0 && r.CachePolicy == cache.Bypass:
		return &OverrideError{Field: "cache_policy", What: "BYPASS"}
	}
	return nil
}

// OverrideError is the error of a request that asks for more than its caller may.
type OverrideError struct {
	Field string // of the DecideRequest
	What  string // in words
}

// Error implements error.
func (e *OverrideError) Error() string { return "this caller may not send " + e.What }
