package lexical

// Parameters of FNV-1a with 64 bits (Fowler, Noll, Vo), here over code points.
const (
	fnvOffset uint64 = 14695981039346656037
	fnvPrime  uint64 = 1099511628211
)

// Seeds, so that a word and the same sequence of characters differ.
const (
	wordSeed = fnvOffset ^ 'w'
	charSeed = fnvOffset ^ 'c'
)

// extend takes one more code point into a hash.
func extend(h uint64, r rune) uint64 { return (h ^ uint64(r)) * fnvPrime }

// count counts a hashed sequence, up or down as its hash says.
func count(into []int64, h uint64) {
	// The finaliser of MurmurHash3: FNV's high bits are weak for short sequences.
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	into[(h>>32)*uint64(len(into))>>32] += 1 - 2*int64(h&1)
}
