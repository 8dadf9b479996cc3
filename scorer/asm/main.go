// Command asm writes the kernels of scoring for amd64: run go generate in the folder above. It is a module
// of its own, so that the assembler's library is no dependency of the product.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	lanes     = 4 // float64 values in a vector register
	unrolled  = 2 // steps of so many columns in a round of the loop
	weight    = 4 // bytes, float32
	component = 8 // bytes, float64
	maxBatch  = 8 // vectors for which there are sums; the same as the package's
)

func main() {
	for _, rows := range []int{1, 4} {
		for _, vectors := range []int{1, 2} {
			kernel(rows, vectors, false)
		}
	}
	kernel(1, 4, false)
	kernel(2, 4, true)
	standardise()
	Generate()
}

// kernel writes a function that multiplies rows of weights with vectors. A sum has four lanes, of which lane i takes
// the columns i, i+4… one after the other; so the bits of a result do not depend on which kernel made it.
//
// With prefetch, the function also has as much of other rows brought into the second-level cache.
func kernel(rows, vectors int, prefetch bool) {
	name := fmt.Sprintf("dot%dx%d", rows, vectors)
	params := "sums *[4]float64, w *float32, stride int, x0"
	for v := 1; v < vectors; v++ {
		params += fmt.Sprintf(", x%d", v)
	}
	params += " *float64, eights int"
	if prefetch {
		params += ", next int"
	}
	TEXT(name, NOSPLIT, "func("+params+")")
	Pragma("noescape")
	doc := []string{
		fmt.Sprintf("%s adds the products of %d rows and %d vectors to sums[row*8+vector]. The rows are stride bytes apart", name, rows, vectors),
		"and eight columns times eights long; eights is above 0.",
	}
	if prefetch {
		doc = append(doc, "As much of as many rows that begin next bytes further is brought into the second-level cache.")
	}
	Doc(doc...)

	sums, w := Load(Param("sums"), GP64()), Load(Param("w"), GP64())
	stride := Load(Param("stride"), GP64())
	var x []Register
	for v := range vectors {
		x = append(x, Load(Param(fmt.Sprintf("x%d", v)), GP64()))
	}
	left := Load(Param("eights"), GP64())

	row := rowsFrom(w, stride, rows)
	var later []Mem
	if prefetch {
		next := Load(Param("next"), GP64())
		ADDQ(w, next)
		later = rowsFrom(next, stride, rows)
	}
	sum := make([][]VecVirtual, rows)
	at := func(r, v int) Mem { return Mem{Base: sums, Disp: (r*maxBatch + v) * lanes * component} }
	for r := range sum {
		sum[r] = make([]VecVirtual, vectors)
		for v := range sum[r] {
			sum[r][v] = YMM()
			VMOVUPD(at(r, v), sum[r][v])
		}
	}

	Label("columns")
	for _, weights := range later {
		PREFETCHT1(weights)
	}
	for step := range unrolled {
		values := make([]VecVirtual, vectors)
		for v := range values {
			values[v] = YMM()
			VMOVUPD(Mem{Base: x[v], Disp: step * lanes * component}, values[v])
		}
		for r := range sum {
			weights := YMM()
			VCVTPS2PD(row[r].Offset(step*lanes*weight), weights)
			for v := range values {
				VFMADD231PD(weights, values[v], sum[r][v])
			}
		}
	}
	ADDQ(Imm(unrolled*lanes*weight), w)
	for _, vector := range x {
		ADDQ(Imm(unrolled*lanes*component), vector)
	}
	if prefetch {
		ADDQ(Imm(unrolled*lanes*weight), later[0].Base)
	}
	DECQ(left)
	JNE(LabelRef("columns"))

	for r := range sum {
		for v := range sum[r] {
			VMOVUPD(sum[r][v], at(r, v))
		}
	}
	VZEROUPPER()
	RET()
}

// rowsFrom returns the addresses of up to four rows.
func rowsFrom(at, stride Register, rows int) []Mem {
	all := []Mem{{Base: at}, {Base: at, Index: stride, Scale: 1}, {Base: at, Index: stride, Scale: 2}}
	if rows == 4 {
		three := GP64()
		LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
		all = append(all, Mem{Base: at, Index: three, Scale: 1})
	}
	return all[:rows]
}
