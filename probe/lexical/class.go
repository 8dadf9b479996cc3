package lexical

// class is what kind of code point one is. The classes are fixed ranges, not
// Unicode's tables, which change from one release to the next.
type class uint8

const (
	letter class = iota
	digit
	space
	mark // punctuation and symbols
)

func classOf(r rune) class {
	switch {
	case '0' <= r && r <= '9':
		return digit
	case 'A' <= r && r <= 'Z', 'a' <= r && r <= 'z':
		return letter
	case r <= ' ', 0x7f <= r && r <= 0xa0, 0x2000 <= r && r <= 0x200b, r == 0x2028, r == 0x2029, r == 0x3000:
		return space
	case r < 0xc0, r == 0xd7, r == 0xf7, 0x200c <= r && r <= 0x2bff, 0x3001 <= r && r <= 0x303f, r == 0xfffd:
		return mark
	default:
		return letter
	}
}

// fold makes A-Z lower case and all digits alike.
func fold(r rune, c class) rune {
	switch {
	case c == digit:
		return '0'
	case 'A' <= r && r <= 'Z':
		return r + ('a' - 'A')
	default:
		return r
	}
}
