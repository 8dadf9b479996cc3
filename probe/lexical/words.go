package lexical

// words counts pieces, alone and together with the one before.
type words struct {
	into   []int64
	pieces int

	open  bool  // within a piece
	class class // of that piece
	// Hashes of the piece so far, alone and after the piece before and a space.
	alone, after uint64
}

// read takes a code point that is not space.
func (w *words) read(folded rune, c class) {
	if w.open && (c != w.class || c == mark) {
		w.end()
	}
	if !w.open {
		w.open, w.class = true, c
		w.after = extend(w.alone, ' ')
		w.alone = wordSeed
	}
	w.alone = extend(w.alone, folded)
	w.after = extend(w.after, folded)
}

// end ends the piece, if there is one.
func (w *words) end() {
	if !w.open {
		return
	}
	w.open = false
	count(w.into, w.alone)
	if w.pieces > 0 {
		count(w.into, w.after)
	}
	w.pieces++
}
