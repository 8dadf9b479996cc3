package lexical

// shapeWeight is the value of a set bit. A usual prompt varies some hundred of
// them, so that the block carries a part of the variance beside the other two,
// whose norm is 1. A power of two is exact.
const shapeWeight = 1.0 / 16

// Numbers of steps, see the package comment.
const (
	countSteps   = 52
	percentSteps = 28
	firstQuarter = 8  // a mean word of two letters
	lastQuarter  = 39 // of nearly ten
)

// shape is what is counted of a text as a whole.
type shape struct {
	bytes, pieces                          int
	letters, runs, digits, marks, capitals int
	lineFeeds, line, longestLine           int // line: code points of this line so far
	inRun                                  bool
	has                                    [0x80]bool // ASCII marks
}

func (s *shape) read(r rune, c class) {
	switch c {
	case letter:
		s.letters++
		if !s.inRun {
			s.runs++
		}
		if 'A' <= r && r <= 'Z' {
			s.capitals++
		}
	case digit:
		s.digits++
	case mark:
		s.marks++
		if r < 0x80 {
			s.has[r] = true
		}
	case space:
	}
	s.inRun = c == letter
	s.line++
	if r == '\n' {
		s.lineFeeds++
		s.endLine()
	}
}

func (s *shape) endLine() {
	s.longestLine = max(s.longestLine, s.line)
	s.line = 0
}

func (s *shape) end(bytes, pieces int) {
	s.endLine()
	s.bytes, s.pieces = bytes, pieces
}

// fill sets the bits in out, shapeValues of them.
func (s *shape) fill(out []float32) {
	next := 0
	bit := func(set bool) {
		if set {
			out[next] = shapeWeight
		}
		next++
	}
	for _, n := range []int{s.bytes, s.pieces, s.digits, s.marks, s.capitals, s.lineFeeds, s.longestLine} {
		for i := range countSteps {
			bit(n >= countStep(i))
		}
	}
	for _, n := range []int{s.digits, s.marks, s.capitals} {
		for percent := 1; percent <= percentSteps; percent++ {
			bit(100*int64(n) >= int64(percent)*int64(s.bytes) && s.bytes > 0)
		}
	}
	for quarter := firstQuarter; quarter <= lastQuarter; quarter++ {
		bit(4*int64(s.letters) >= int64(quarter)*int64(s.runs) && s.runs > 0)
	}
	for r := '!'; r <= '~'; r++ {
		if classOf(r) == mark {
			bit(s.has[r])
		}
	}
}

// countStep is 1, 2, 3, then four steps in each doubling: 4, 5, 6, 7, 8, 10 and so on.
func countStep(i int) int {
	if i < 3 {
		return i + 1
	}
	return (4 + (i-3)%4) << ((i - 3) / 4)
}
