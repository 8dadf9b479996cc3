package lexical

import (
	"math"
	"strings"
)

// plainEncode follows the package comment word by word, with whole slices where
// the encoder keeps running hashes.
func plainEncode(text string) []float32 {
	runes := []rune(text)
	var pieces, chunks [][]rune
	var folded, chunk []rune
	var classes []class
	for i, r := range runes {
		c := classOf(r)
		classes = append(classes, c)
		folded = append(folded, fold(r, c))
		if c == space {
			chunk = nil
			continue
		}
		if chunk == nil {
			chunks = append(chunks, nil)
		}
		chunk = append(chunk, folded[i])
		chunks[len(chunks)-1] = chunk
		if i > 0 && c != mark && classes[i-1] == c {
			last := &pieces[len(pieces)-1]
			*last = append(*last, folded[i])
		} else {
			pieces = append(pieces, []rune{folded[i]})
		}
	}
	sequences := append([][]rune(nil), pieces...)
	for i := 1; i < len(pieces); i++ {
		sequences = append(sequences, []rune(string(pieces[i-1])+" "+string(pieces[i])))
	}
	out := plainBlock(0x77, sequences, 1536)

	sequences = nil
	for _, chunk := range chunks {
		padded := []rune(" " + string(chunk) + " ")
		for n := 3; n <= 5; n++ {
			for i := 0; i+n <= len(padded); i++ {
				sequences = append(sequences, padded[i:i+n])
			}
		}
	}
	out = append(out, plainBlock(0x63, sequences, 2048)...)
	return append(out, plainShape(text, runes, classes, len(pieces))...)
}

func plainBlock(seed uint64, sequences [][]rune, n int) []float32 {
	counts := make([]int, n)
	for _, sequence := range sequences {
		h := 14695981039346656037 ^ seed
		for _, c := range sequence {
			h = (h ^ uint64(c)) * 1099511628211
		}
		h ^= h >> 33
		h *= 0xff51afd7ed558ccd
		h ^= h >> 33
		h *= 0xc4ceb9fe1a85ec53
		h ^= h >> 33
		if h%2 == 0 {
			counts[(h>>32)*uint64(n)>>32]++
		} else {
			counts[(h>>32)*uint64(n)>>32]--
		}
	}
	sum := 0.0
	for _, c := range counts {
		sum += math.Abs(float64(c))
	}
	out := make([]float32, n)
	for i, c := range counts {
		if c != 0 {
			out[i] = float32(math.Copysign(math.Sqrt(math.Abs(float64(c))/sum), float64(c)))
		}
	}
	return out
}

func plainShape(text string, runes []rune, classes []class, pieces int) []float32 {
	number := map[class]int{}
	capitals, runs, longestLine := 0, 0, 0
	for i, c := range classes {
		number[c]++
		if c == letter && (i == 0 || classes[i-1] != letter) {
			runs++
		}
		if strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZ", runes[i]) {
			capitals++
		}
	}
	for line := range strings.SplitAfterSeq(string(runes), "\n") {
		longestLine = max(longestLine, len([]rune(line)))
	}
	var out []float32
	bit := func(set bool) {
		if set {
			out = append(out, 0.0625)
		} else {
			out = append(out, 0)
		}
	}
	for _, n := range []int{len(text), pieces, number[digit], number[mark], capitals, strings.Count(text, "\n"), longestLine} {
		for _, step := range []int{1, 2, 3} {
			bit(n >= step)
		}
		for i := range 49 {
			bit(n >= (4+i%4)<<(i/4))
		}
	}
	for _, n := range []int{number[digit], number[mark], capitals} {
		for p := 1; p <= 28; p++ {
			bit(text != "" && 100*n >= p*len(text))
		}
	}
	for q := 8; q <= 39; q++ {
		bit(runs > 0 && 4*number[letter] >= q*runs)
	}
	for _, m := range "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" {
		bit(strings.ContainsRune(string(runes), m))
	}
	return out
}
