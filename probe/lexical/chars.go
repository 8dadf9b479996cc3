package lexical

// The lengths of the sequences that are counted, in code points.
const (
	shortest = 3
	longest  = 5
)

// chars counts the short sequences of code points within chunks.
type chars struct {
	into []int64
	// last[k] is the hash of the last k code points, of which there are seen, at
	// most longest.
	last [longest + 1]uint64
	seen int
}

// begin begins a chunk, with the space that stands before it.
func (s *chars) begin() {
	s.last[0], s.seen = charSeed, 0
	s.read(' ')
}

// read takes the next code point, and counts the sequences that end with it.
func (s *chars) read(folded rune) {
	s.seen = min(s.seen+1, longest)
	for k := s.seen; k > 0; k-- {
		s.last[k] = extend(s.last[k-1], folded)
		if k >= shortest {
			count(s.into, s.last[k])
		}
	}
}

// end ends the chunk, if there is one, with the space that stands after it.
func (s *chars) end() {
	if s.seen == 1 {
		return
	}
	s.read(' ')
	s.begin()
}
