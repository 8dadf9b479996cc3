// Command asm writes the pooling kernels for amd64: run go generate in the folder above. It is a module of its own, so
// that the assembler's library is no dependency of the product.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// lanes is the number of float32 values in a vector register.
const lanes = 8

// format is a dtype of hidden states: its width, and how eight values are loaded and widened to float32.
type format struct {
	name  string
	bytes int
	load  func(from Mem, to VecVirtual)
}

var formats = []format{
	{"BF16", 2, func(from Mem, to VecVirtual) {
		VPMOVZXWD(from, to)
		VPSLLD(Imm(16), to, to) // a bfloat16 is the upper half of a float32
	}},
	{"F16", 2, func(from Mem, to VecVirtual) { VCVTPH2PS(from, to) }},
	{"F32", 4, func(from Mem, to VecVirtual) { VMOVUPS(from, to) }},
}

func main() {
	for _, f := range formats {
		kernel(f, 8)
		kernel(f, 1)
	}
	Generate()
}

// kernel writes a function that adds groups of rows to the sums. The columns are taken eight at a time; within them the
// rows of a group are summed as a balanced tree, and the tree's sum is added to the column's.
func kernel(f format, rows int) {
	name := fmt.Sprintf("add%sRows%d", f.name, rows)
	TEXT(name, NOSPLIT, "func(sums *float32, src *byte, eights, stride, groups int, nonzero *byte, mask *[8]uint32)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s adds groups of %d rows of %s, stride bytes apart, to sums: eight columns times eights. It sets", name, rows, f.name),
		"nonzero[r] to 1 if a value of row r, as float32, has one of the bits of mask. All three counts are above 0.")

	sums, src := Load(Param("sums"), GP64()), Load(Param("src"), GP64())
	eights, stride := Load(Param("eights"), GP64()), Load(Param("stride"), GP64())
	groups, nonzero := Load(Param("groups"), GP64()), Load(Param("nonzero"), GP64())

	at := GP64() // the current column's place in the first row of the group
	row := rowsFrom(at, stride, rows)
	step := GP64() // from one group to the next
	MOVQ(stride, step)
	if rows == 8 {
		SHLQ(Imm(3), step)
	}
	mask := YMM()
	VMOVDQU(Mem{Base: Load(Param("mask"), GP64())}, mask)

	Label("group")
	seen := make([]VecVirtual, rows) // the bits of each row's values, or-ed
	for i := range seen {
		seen[i] = YMM()
		VPXOR(seen[i], seen[i], seen[i])
	}
	sum, left := GP64(), GP64()
	MOVQ(src, at)
	MOVQ(sums, sum)
	MOVQ(eights, left)

	Label("column")
	total := tree(f, row, seen)
	VADDPS(Mem{Base: sum}, total, total)
	VMOVUPS(total, Mem{Base: sum})
	ADDQ(Imm(uint64(lanes*f.bytes)), at)
	ADDQ(Imm(lanes*4), sum)
	DECQ(left)
	JNE(LabelRef("column"))

	found := GP8()
	for i := range seen {
		VPTEST(mask, seen[i])
		SETNE(found)
		ORB(found, Mem{Base: nonzero, Disp: i})
	}
	ADDQ(step, src)
	ADDQ(Imm(uint64(rows)), nonzero)
	DECQ(groups)
	JNE(LabelRef("group"))
	VZEROUPPER()
	RET()
}

// rowsFrom returns the addresses of the rows of a group: at + i*stride, made from the odd multiples of the stride.
func rowsFrom(at, stride Register, rows int) []Mem {
	if rows == 1 {
		return []Mem{{Base: at}}
	}
	three, five, seven := GP64(), GP64(), GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 4}, five)
	LEAQ(Mem{Base: three, Index: stride, Scale: 4}, seven)
	return []Mem{
		{Base: at},
		{Base: at, Index: stride, Scale: 1},
		{Base: at, Index: stride, Scale: 2},
		{Base: at, Index: three, Scale: 1},
		{Base: at, Index: stride, Scale: 4},
		{Base: at, Index: five, Scale: 1},
		{Base: at, Index: three, Scale: 2},
		{Base: at, Index: seven, Scale: 1},
	}
}

// tree returns the sum of eight columns over the rows: ((r0+r1)+(r2+r3))+((r4+r5)+(r6+r7)).
func tree(f format, rows []Mem, seen []VecVirtual) VecVirtual {
	if len(rows) == 1 {
		value := YMM()
		f.load(rows[0], value)
		VPOR(value, seen[0], seen[0])
		return value
	}
	half := len(rows) / 2
	left := tree(f, rows[:half], seen[:half])
	right := tree(f, rows[half:], seen[half:])
	VADDPS(right, left, left)
	return left
}
