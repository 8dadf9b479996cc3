package eval

// Report is what was measured of one router. Figures are nil where the data does
// not define them.
type Report struct {
	Name       string  `json:"name"`
	Digest     string  `json:"checkpoint_digest,omitempty"`
	Rows       int     `json:"rows"`
	Paired     int     `json:"paired_rows"` // with a label for both models: what routing is judged on
	Strong     string  `json:"strong_head"`
	Weak       string  `json:"weak_head"`
	StrongCost float64 `json:"strong_cost"`
	WeakCost   float64 `json:"weak_cost"`
	Resamples  int     `json:"bootstrap_resamples"`

	Heads    []HeadReport   `json:"heads"`
	Routers  []RouterReport `json:"routers"` // this one, then the baselines
	Sweep    []PolicyReport `json:"tolerances"`
	Policies []PolicyReport `json:"policies,omitempty"` // those that were asked about
	Groups   []GroupReport  `json:"groups,omitempty"`
	Notes    []string       `json:"notes,omitempty"`
}

// HeadReport is how good the probabilities of one head are.
type HeadReport struct {
	Name        string    `json:"name"`
	Labels      int       `json:"labels"`
	Rate        *Interval `json:"rate"` // share of right answers
	AUC         *Interval `json:"auc"`
	PriorAUC    *Interval `json:"group_prior_auc,omitempty"`
	ECE         *Interval `json:"ece"`
	PerfectECE  float64   `json:"ece_if_perfect"`
	ExcessECE   *Interval `json:"ece_excess"`
	Reliability []Bin     `json:"reliability"`
	Histogram   []int     `json:"histogram"` // rows by probability, in 20 bins of equal width
}

// Bin is a bin of the reliability diagram; empty bins are left out.
type Bin struct {
	Low         float64 `json:"low"`
	High        float64 `json:"high"`
	Count       int     `json:"count"`
	Probability float64 `json:"mean_probability"`
	Rate        float64 `json:"share_right"`
}

// RouterReport is what one way to order the tasks is worth.
type RouterReport struct {
	Name      string    `json:"name"`
	Quality   *Interval `json:"quality,omitempty"` // mean correctness where it takes the better head, whatever the cost
	Share     *Interval `json:"strong_share,omitempty"`
	APGR      *Interval `json:"apgr"`
	CPT50     *Interval `json:"cpt50"`
	CPT80     *Interval `json:"cpt80"`
	OracleGap *Interval `json:"oracle_gap_closed,omitempty"`
	Saving    *Interval `json:"saving_at_equal_quality"`
	PAUCCC    *Interval `json:"p_auccc"`
	Curve     []Point   `json:"curve,omitempty"`
}

// Point is a point of a cost–quality curve.
type Point struct {
	Share   float64 `json:"strong_share"`
	Quality float64 `json:"quality"`
}

// PolicyReport is what one trade-off would have done.
type PolicyReport struct {
	TradeOff string    `json:"trade_off"`
	Value    float64   `json:"value"`
	Share    *Interval `json:"strong_share"`
	Quality  *Interval `json:"quality"`
	Cost     *Interval `json:"cost"`
	Saving   *Interval `json:"saving"`        // of the cost of always-strong
	Loss     *Interval `json:"quality_given"` // quality of always-strong less this one's
	// Judged is the share of rows whose quality is a label; the rest count with the
	// probability that was predicted for the target chosen.
	Judged float64 `json:"judged_share"`
}

// GroupReport is the figures of one group.
type GroupReport struct {
	Name       string    `json:"name"`
	Rows       int       `json:"rows"`
	WeakRate   *Interval `json:"weak_rate"`
	StrongRate *Interval `json:"strong_rate"`
	WeakAUC    *Interval `json:"weak_auc,omitempty"`
	StrongAUC  *Interval `json:"strong_auc,omitempty"`
	APGR       *Interval `json:"apgr,omitempty"`
}
