package eval

import "math"

// routing is what a router's curve is worth. A figure that does not exist, such as
// the gap recovered where there is no gap, is NaN.
type routing struct {
	apgr, cpt50, cpt80, saving, pareto float64
}

// measureCurve computes the figures of a curve from share 0 to share 1.
func measureCurve(points []point, weakCost, strongCost float64) routing {
	if len(points) < 2 {
		nan := math.NaN()
		return routing{nan, nan, nan, nan, nan}
	}
	weak, strong := points[0].quality, points[len(points)-1].quality
	gap := strong - weak
	r := routing{
		saving: 1 - (weakCost+firstShare(points, strong)*(strongCost-weakCost))/strongCost,
		pareto: paretoArea(points),
	}
	if gap <= 0 {
		r.apgr, r.cpt50, r.cpt80 = math.NaN(), math.NaN(), math.NaN()
		return r
	}
	area := 0.0
	for i, b := range points[1:] {
		a := points[i]
		area += (b.share - a.share) * ((a.quality + b.quality) / 2)
	}
	r.apgr = (area - weak) / gap
	r.cpt50 = firstShare(points, weak+gap/2)
	r.cpt80 = firstShare(points, weak+0.8*gap)
	return r
}

// rounding is how far a quality may fall short of what is asked and still count:
// sums in another order differ in their last bits.
const rounding = 1e-12

// firstShare returns the least share at which the curve reaches a quality; 1 if it
// never does.
func firstShare(points []point, quality float64) float64 {
	before := points[0]
	if before.quality >= quality-rounding {
		return 0
	}
	for _, p := range points[1:] {
		if p.quality < quality-rounding {
			before = p
			continue
		}
		return before.share + (p.share-before.share)*min(1, max(0, (quality-before.quality)/(p.quality-before.quality)))
	}
	return 1
}

// paretoArea returns the area under the running maximum of the curve.
func paretoArea(points []point) float64 {
	area, best := 0.0, points[0].quality
	for i, b := range points[1:] {
		a := points[i]
		width := b.share - a.share
		switch {
		case b.quality <= best:
			area += width * best
		default:
			// Flat until the segment passes the best so far, then along it.
			rise := width
			if a.quality < best {
				rise = width * (b.quality - best) / (b.quality - a.quality)
			}
			area += (width-rise)*best + rise*(best+b.quality)/2
			best = b.quality
		}
	}
	return area
}
