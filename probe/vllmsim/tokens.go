package vllmsim

import (
	"hash/fnv"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tokens that are not made of text. They are below firstWord, so that no piece
// of text can have one of their ids.
const (
	tokenStart    int64 = iota + 1 // <|im_start|>
	tokenEnd                       // <|im_end|>
	tokenThink                     // <think>
	tokenThinkEnd                  // </think>
	firstWord     int64 = 16
)

// The id of a piece of text is firstWord + 8*word + spelling. The word is the
// hash of the lower-case piece; the spelling says how it was written. So
// "Prove", "prove" and " prove" are different tokens that share a word, and
// [HiddenStates] can give them vectors that are close, as a trained embedding
// would.
const (
	words           = 1 << 17 // about the vocabulary of a current model
	spellings       = 8
	spellingSpace   = 1 // a space stands in front of it
	spellingCapital = 2 // only its first letter is a capital
	spellingOther   = 4 // any other mixture of capitals
)

// maxPiece is the most bytes of a word that make one token. With it English
// prose comes to a token for each four to five bytes, like a trained
// vocabulary.
const maxPiece = 8

// Tokens returns the token ids of a chat prompt with text as its only message,
// with the tokens of the chat template (in the manner of Qwen's) around it.
func Tokens(text string) []int64 {
	return render([]message{{role: "user", text: text}}, true)
}

// message is one message of a chat, its text parts already joined.
type message struct{ role, text string }

// render turns messages into the prompt's tokens, the opening of the
// assistant's turn included. With thinking off an empty thought is added, as
// Qwen3's template does.
func render(messages []message, thinking bool) []int64 {
	var ids []int64
	for _, m := range messages {
		ids = append(ids, tokenStart)
		ids = appendPieces(ids, m.role+"\n")
		ids = appendPieces(ids, m.text)
		ids = append(ids, tokenEnd)
		ids = appendPieces(ids, "\n")
	}
	ids = append(ids, tokenStart)
	ids = appendPieces(ids, "assistant\n")
	if !thinking {
		ids = append(ids, tokenThink)
		ids = appendPieces(ids, "\n\n")
		ids = append(ids, tokenThinkEnd)
		ids = appendPieces(ids, "\n\n")
	}
	return ids
}

// appendPieces cuts text into pieces and appends their ids. Runs of letters
// are cut after maxPiece bytes, runs of one white-space character too; every
// other character is a piece of its own. One space before a piece that is not
// white space belongs to that piece.
func appendPieces(ids []int64, text string) []int64 {
	for text != "" {
		spelling := int64(0)
		if text[0] == ' ' && len(text) > 1 {
			if next, _ := utf8.DecodeRuneInString(text[1:]); !unicode.IsSpace(next) {
				spelling = spellingSpace
				text = text[1:]
			}
		}
		n := pieceLen(text)
		ids = append(ids, pieceID(text[:n], spelling))
		text = text[n:]
	}
	return ids
}

// pieceLen is the length in bytes of the piece text begins with.
func pieceLen(text string) int {
	first, n := utf8.DecodeRuneInString(text)
	letters := unicode.IsLetter(first)
	if !letters && !unicode.IsSpace(first) {
		return n
	}
	for n < len(text) {
		next, size := utf8.DecodeRuneInString(text[n:])
		same := next == first
		if letters {
			same = unicode.IsLetter(next)
		}
		if !same || n+size > maxPiece {
			break
		}
		n += size
	}
	return n
}

// pieceID is the token id of one piece.
func pieceID(piece string, spelling int64) int64 {
	lower := strings.ToLower(piece)
	if lower != piece {
		_, n := utf8.DecodeRuneInString(piece)
		if strings.ToLower(piece[n:]) == piece[n:] {
			spelling |= spellingCapital
		} else {
			spelling |= spellingOther
		}
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, lower) // a hash never fails to take bytes
	// The low bits of FNV-1a of short strings are weak; fold the high ones in.
	sum := h.Sum64()
	return firstWord + spellings*int64((sum^sum>>32)%words) + spelling
}

// wordOf is the part of a token's id that does not depend on its spelling.
func wordOf(id int64) int64 {
	if id < firstWord {
		return -id
	}
	return (id - firstWord) / spellings
}
