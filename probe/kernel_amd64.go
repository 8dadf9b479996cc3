package probe

import "golang.org/x/sys/cpu"

// vectorKernel returns the kernel of a dtype in vector instructions, if the machine has them.
func vectorKernel(dtype string, k kernels) (kernel, bool) {
	if !cpu.X86.HasAVX2 || dtype == dtypeF16 && !cpu.X86.HasF16C {
		return nil, false
	}
	return vectorRows{dtype, k}.add, true
}

// vectorColumns is the number of columns that a vector register holds.
const vectorColumns = 8

// vectorRows adds rows of one dtype in assembly.
type vectorRows struct {
	dtype string
	kernels
}

// add is a kernel. Columns are taken eight at a time, and rows eight at a time or one. Columns that are left over are
// taken as eight too, if reading beyond them stays within src's array: of what is read too much, nothing is kept.
//
// Assembly cannot be interrupted, by the collector above all. A call takes as long as reading src, which its callers
// hold to poolBufferBytes: some 10 µs.
func (v vectorRows) add(sums []float32, src []byte, stride int, nonzero []byte) {
	if len(nonzero) == 0 {
		return
	}
	last := src[(len(nonzero)-1)*stride:] // the last row
	wide := len(sums) &^ (vectorColumns - 1)
	if wide > 0 {
		_ = last[:wide*v.bytes]
		v.groups(&sums[0], src, wide/vectorColumns, stride, nonzero, vectorColumns)
	}
	rest := sums[wide:]
	switch {
	case len(rest) == 0:
	case cap(last) >= (wide+vectorColumns)*v.bytes:
		var padded [vectorColumns]float32
		copy(padded[:], rest)
		v.groups(&padded[0], src[wide*v.bytes:], 1, stride, nonzero, len(rest))
		copy(rest, padded[:])
	default:
		v.portable(rest, src[wide*v.bytes:], stride, nonzero)
	}
}

// groups adds rows of eight columns times eights. Of the last eight, the first few are looked at for zeros.
func (v vectorRows) groups(sums *float32, src []byte, eights, stride int, nonzero []byte, few int) {
	var mask [vectorColumns]uint32
	for i := range few {
		mask[i] = ^uint32(signF32)
	}
	trees := len(nonzero) / treeRows * treeRows
	if trees > 0 {
		v.eight(sums, &src[0], eights, stride, trees/treeRows, &nonzero[0], &mask)
	}
	if trees < len(nonzero) {
		v.one(sums, &src[trees*stride], eights, stride, len(nonzero)-trees, &nonzero[trees], &mask)
	}
}

// eight and one call the assembly by name, so that the compiler knows that it keeps no pointer.

func (v vectorRows) eight(sums *float32, src *byte, eights, stride, groups int, nonzero *byte, mask *[vectorColumns]uint32) {
	switch v.dtype {
	case dtypeBF16:
		addBF16Rows8(sums, src, eights, stride, groups, nonzero, mask)
	case dtypeF16:
		addF16Rows8(sums, src, eights, stride, groups, nonzero, mask)
	case dtypeF32:
		addF32Rows8(sums, src, eights, stride, groups, nonzero, mask)
	}
}

func (v vectorRows) one(sums *float32, src *byte, eights, stride, groups int, nonzero *byte, mask *[vectorColumns]uint32) {
	switch v.dtype {
	case dtypeBF16:
		addBF16Rows1(sums, src, eights, stride, groups, nonzero, mask)
	case dtypeF16:
		addF16Rows1(sums, src, eights, stride, groups, nonzero, mask)
	case dtypeF32:
		addF32Rows1(sums, src, eights, stride, groups, nonzero, mask)
	}
}
