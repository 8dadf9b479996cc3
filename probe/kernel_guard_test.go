//go:build unix

package probe

import (
	"os"
	"syscall"
	"testing"
)

// TestKernelsStayWithinTheirRows puts the last row at the end of a page before one that must not be read: to read
// beyond it kills the process.
func TestKernelsStayWithinTheirRows(t *testing.T) {
	page := os.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Skip(err)
	}
	defer syscall.Munmap(memory)
	if err := syscall.Mprotect(memory[page:], syscall.PROT_NONE); err != nil {
		t.Skip(err)
	}
	for dtype, width := range dtypes {
		k, _ := kernelsFor(dtype)
		for columns := 1; columns <= 24; columns++ {
			for rows := 1; rows <= 17; rows++ {
				size := rows * columns * width
				k.best(make([]float32, columns), memory[page-size:page:page], columns*width, make([]byte, rows))
			}
		}
	}
}
