package probe

//go:generate go -C asm run . -out ../kernel_amd64.s -stubs ../kernel_stubs_amd64.go -pkg probe

// kernel adds rows of one dtype to sums.
//
// There are len(nonzero) rows of len(sums) little-endian elements; row r begins at src[r*stride]. The kernel sets
// nonzero[r] to 1 if row r holds an element that is neither 0 nor -0, and leaves it alone otherwise.
//
// Sums are float32, in an order that every kernel keeps, so that all give the same bits: with r0, r1… the rows' elements
// of a column, as long as there are eight more rows, the column's sum becomes
//
//	sum + (((r0+r1)+(r2+r3)) + ((r4+r5)+(r6+r7)))
//
// and the rows that are left are added one by one. An element then goes through n/8+3 roundings instead of n, and the
// sums are loaded and stored once for eight rows.
type kernel func(sums []float32, src []byte, stride int, nonzero []byte)

// treeRows is the number of rows that are summed as a tree: what AVX2's sixteen registers hold with a mark for each.
const treeRows = 8

// maxVectorBytes is how much a kernel may read beyond the last row, if the array is so long.
const maxVectorBytes = 32

// kernels are those of one dtype of hidden states.
type kernels struct {
	bytes    int    // of one element
	portable kernel // runs everywhere
	best     kernel // the fastest one of this machine
}

// kernelsFor returns the kernels of a dtype of hidden states.
func kernelsFor(dtype string) (kernels, bool) {
	var k kernels
	switch dtype {
	case dtypeBF16:
		k = kernels{bytes: 2, portable: portable(2, treeBF16, rowBF16)}
	case dtypeF16:
		k = kernels{bytes: 2, portable: portable(2, treeF16, rowF16)}
	case dtypeF32:
		k = kernels{bytes: 4, portable: portable(4, treeF32, rowF32)}
	default:
		return kernels{}, false
	}
	k.best = k.portable
	if vector, ok := vectorKernel(dtype, k); ok {
		k.best = vector
	}
	return k, true
}
