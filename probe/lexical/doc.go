// Package lexical turns a task's text into one feature vector by counting what
// stands in it: no language model, no GPU, no server. [Probe] is its main type;
// it stands where probe.VLLM does. A usual prompt takes some tens of
// microseconds.
//
// What it sees is words, spelling, length and form; what it does not see is
// meaning. It is good at telling the subject of a question, and with it how well
// a model does there on average. It knows nothing of checkpoints and scores.
//
// # The encoder pointsman/lexical-1
//
// The same text gives the same bits on every platform, and will in every release:
// a change to anything below would be another encoder with another name. All
// counting is in integers; the only floating-point operations are one division
// and one square root a value, which IEEE 754 rounds in one way, and nothing is
// added to a product, so that no compiler can fuse anything.
//
// The text is read as UTF-8, code point by code point; a byte that is not UTF-8
// counts as U+FFFD. Each code point is, the first that fits,
//
//	digit   0-9
//	letter  A-Z, a-z
//	space   U+0000-0020, U+007F-00A0, U+2000-200B, U+2028, U+2029, U+3000
//	mark    any other below U+00C0; U+00D7, U+00F7, U+200C-2BFF, U+3001-303F, U+FFFD
//	letter  any other
//
// and is folded: A-Z to a-z, every digit to 0, any other to itself.
//
// A vector has 4096 values in three blocks, one layer as far as a checkpoint is
// concerned:
//
//	words   0-1535     what pieces stand in the text, alone and in pairs
//	chars   1536-3583  how they are spelt
//	shape   3584-4095  how long the text is and what it looks like
//
// Words. A piece is a run of letters, a run of digits, or one mark; space only
// separates. Every piece is counted, and every piece but the first once more
// together with the one before it, as the sequence piece, U+0020, piece, whatever
// stood between them.
//
// Chars. A chunk is a run without space, with U+0020 put before and after it.
// Every sequence of 3, 4 or 5 code points within a chunk is counted.
//
// Counting. A sequence of folded code points is hashed, modulo 2^64, as
//
//	h = 14695981039346656037 xor seed;  for each code point c: h = (h xor c)*1099511628211
//	h ^= h>>33; h *= 0xff51afd7ed558ccd; h ^= h>>33; h *= 0xc4ceb9fe1a85ec53; h ^= h>>33
//
// with the seed 0x77 for words and 0x63 for chars (FNV-1a over code points, then
// the finaliser of MurmurHash3). In a block of n values it belongs to value
// (h>>32)*n >> 32, and counts +1 there if h is even, -1 if it is odd: what
// collides by chance then cancels on average (Weinberger et al., "Feature hashing
// for large scale multitask learning", 2009). A signed count c of a block whose
// counts have the sum of magnitudes s becomes sign(c)*sqrt(|c|/s), computed in
// float64 and rounded to float32: the tenth mention of a word says less than the
// first, the length of the text is taken out, and a block has the norm 1. A block
// that counted nothing is zero.
//
// Shape. Each value is a bit: 1/16 if it is set, else 0. In order,
//
//	7 x 52  a count is at least 1, 2, 3, then (4+i mod 4)*2^(i/4) for i = 0..48 (4, 5, 6, 7, 8, 10, 12, 14, 16, .. 16384);
//	        the counts: bytes, pieces, digits, marks, capitals A-Z, line feeds, and the code points of the longest line,
//	        its line feed with it
//	3 x 28  100*count >= p*bytes for p = 1..28, if there are any bytes; the counts: digits, marks, capitals
//	32      4*letters >= q*runs of letters, for q = 8..39, if there are any letters: the mean length of a word
//	32      the text has the ASCII mark ! " # $ % & ' ( ) * + , - . / : ; < = > ? @ [ \ ] ^ _ ` { | } ~
//
// Steps instead of numbers, so that a linear projection can bend along them.
package lexical
