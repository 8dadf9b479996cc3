package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

const (
	singles     = 8          // float32 values in a vector register
	exponentF32 = 0x7f800000 // all ones in infinities and NaN alone
)

// standardise writes a function that does the elementwise first steps of scoring. Each of them is rounded to float32, as
// the portable ones are, and only then made a float64.
func standardise() {
	TEXT("standardise8", NOSPLIT, "func(dst *float64, x, mean, scale, centre *float32, eights int) (nonFinite int32)")
	Pragma("noescape")
	Doc("standardise8 sets dst to (x-mean)/scale-centre, elementwise, eight times eights values; eights is above 0. The result",
		"is not 0 if one of them is not finite.")
	dst, x, mean := Load(Param("dst"), GP64()), Load(Param("x"), GP64()), Load(Param("mean"), GP64())
	scale, centre := Load(Param("scale"), GP64()), Load(Param("centre"), GP64())
	left := Load(Param("eights"), GP64())

	exponent, seen, bits := YMM(), YMM(), GP32()
	MOVL(U32(exponentF32), bits)
	VMOVD(bits, exponent.AsX())
	VPBROADCASTD(exponent.AsX(), exponent)
	VPXOR(seen, seen, seen)

	Label("eight")
	value, check := YMM(), YMM()
	VMOVUPS(Mem{Base: x}, value)
	VSUBPS(Mem{Base: mean}, value, value)
	VDIVPS(Mem{Base: scale}, value, value)
	VSUBPS(Mem{Base: centre}, value, value)
	VPAND(value, exponent, check)
	VPCMPEQD(check, exponent, check)
	VPOR(check, seen, seen)
	low, high := YMM(), YMM()
	VCVTPS2PD(value.AsX(), low)
	VEXTRACTF128(Imm(1), value, value.AsX())
	VCVTPS2PD(value.AsX(), high)
	VMOVUPD(low, Mem{Base: dst})
	VMOVUPD(high, Mem{Base: dst, Disp: singles / 2 * component})
	ADDQ(Imm(singles*component), dst)
	for _, in := range []Op{x, mean, scale, centre} {
		ADDQ(Imm(singles*weight), in)
	}
	DECQ(left)
	JNE(LabelRef("eight"))

	VMOVMSKPS(seen, bits)
	Store(bits, ReturnIndex(0))
	VZEROUPPER()
	RET()
}
