package lexical

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"
)

// golden are digests of whole vectors: the first half of SHA-256 over their values
// as float32, little-endian. They were computed by an implementation of the
// package comment in another language, and pin the encoder: a checkpoint is worth
// nothing with other features. Never change them; a new encoder gets a new name.
var golden = []struct {
	name, text string
	pieces     int
	digest     string
}{
	{"empty", "", 0, "4fe7b59af6de3b665b67788cc2f99892"},
	{"space", " \n\t\u00a0\u3000", 0, "fbedc3f831239c24811c5c1235c27fa0"},
	{"one letter", "a", 1, "9ef94fed52d418d42560605cf1816f1a"},
	{"arithmetic", "What is 2+2?", 6, "3205ce4a6cc57aa99ccdc573ddf560c3"},
	{"capitals do not change words", "WHAT IS 2+2?", 6, "65d82815276fbe3a305df0eb3397d06e"},
	{"multiple choice", "Find the degree of the extension Q(sqrt(2)) over Q.\nA. 0\nB. 4\nC. 2\nD. 6\nAnswer:", 30, "a4ce44d93a0192ba6109589962785fe7"},
	{"code", "func main() {\n\tfmt.Println(\"héllo\", 1024)\r\n}\n", 16, "4a64f2d99694cf61a51a836599110ee1"},
	{"other scripts", "Это вопрос? 質問です。 ¿Qué? 🙂 naïve—quotes “x”", 15, "240f7c7afe18d7703bf2d7e8e4e5ef6f"},
	{"not UTF-8", "a\xffb\xc3", 4, "7239606a853f20bd0aac29298d03f533"},
	{"NUL and U+FFFD", "\x00a\ufffd\x7f", 2, "8083ac6c46e5cba80adfd3fa6978d32c"},
	{"long", strings.Repeat("The 1st of 365 days; ", 5000), 35000, "adb20e2124e58d76d67f05813a7d38d8"},
}

func digest(values []float32) string {
	h := sha256.New()
	for _, v := range values {
		_ = binary.Write(h, binary.LittleEndian, v)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func TestGolden(t *testing.T) {
	for _, c := range golden {
		t.Run(c.name, func(t *testing.T) {
			values, pieces := Encode(c.text)
			if got := digest(values); got != c.digest {
				t.Errorf("digest %s, want %s", got, c.digest)
			}
			if pieces != c.pieces {
				t.Errorf("%d pieces, want %d", pieces, c.pieces)
			}
		})
	}
}

// Words fold case and chunks fold digits, but only the shape sees capitals.
func TestCaseAndDigitsAreFolded(t *testing.T) {
	a, _ := Encode("Add 123 to FOUR")
	b, _ := Encode("add 456 to four")
	if !slices.Equal(a[:shapeStart], b[:shapeStart]) {
		t.Error("case or digits change words or chars")
	}
	if slices.Equal(a[shapeStart:], b[shapeStart:]) {
		t.Error("capitals do not change the shape")
	}
}

func TestBlocksHaveNormOne(t *testing.T) {
	values, _ := Encode(golden[5].text)
	for name, block := range map[string][]float32{"words": values[:charStart], "chars": values[charStart:shapeStart]} {
		var squares float64
		for _, v := range block {
			squares += float64(v) * float64(v)
		}
		if math.Abs(squares-1) > 1e-6 {
			t.Errorf("%s: squared norm %v", name, squares)
		}
	}
}

// A bit of the shape is set from its step on, and not below.
func TestShapeSteps(t *testing.T) {
	set := func(text string, index int) bool {
		values, _ := Encode(text)
		return values[shapeStart+index] != 0
	}
	const (
		marks     = 3 * countSteps
		lineFeeds = 5 * countSteps
		longLine  = 6 * countSteps
		percents  = 7 * countSteps
		wordSteps = percents + 3*percentSteps
		presence  = wordSteps + 32
	)
	for _, c := range []struct {
		name  string
		text  string
		index int
		want  bool
	}{
		{"bytes, not code points", "é", 1, true},
		{"9 bytes are not 10", strings.Repeat("a", 9), 8, false},
		{"10 bytes", strings.Repeat("a", 10), 8, true},
		{"the last step", strings.Repeat("a", 16384), countSteps - 1, true},
		{"below the last step", strings.Repeat("a", 16383), countSteps - 1, false},
		{"two marks", "a.b.", marks + 1, true},
		{"one mark", "a.b", marks + 1, false},
		{"a line feed", "a\n", lineFeeds, true},
		{"the longest line with its line feed", "aa\na", longLine + 2, true},
		{"no longer line", "aa\na", longLine + 3, false},
		{"a tenth is digits", "1aaaaaaaaa", percents + 9, true},
		{"no eleventh part is", "1aaaaaaaaa", percents + 10, false},
		{"words of 2.5 letters", "aa aaa", wordSteps + 2, true},
		{"not of 2.75", "aa aaa", wordSteps + 3, false},
		{"the first mark", "!", presence, true},
		{"the last mark", "~", shapeValues - 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := set(c.text, c.index); got != c.want {
				t.Errorf("bit %d is %v", c.index, got)
			}
		})
	}
}

func FuzzEncode(f *testing.F) {
	for _, c := range golden[:len(golden)-1] {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, pieces := Encode(text)
		if want := plainEncode(text); !slices.Equal(values, want) {
			t.Errorf("differs from the plain implementation for %q", text)
		}
		if pieces < 0 || pieces > len(text) {
			t.Errorf("%d pieces in %d bytes", pieces, len(text))
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	for name, text := range map[string]string{
		"prompt": golden[5].text, "page": strings.Repeat(golden[5].text+"\n", 40), "1MiB": strings.Repeat("word ", 1<<20/5),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Encode(text)
			}
		})
	}
}
