package features

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// File is an open features file. It may be read by several goroutines.
type File struct {
	f       *os.File
	header  Header
	digests []Digest
	first   int64 // offset of the first row in the file
}

// Open opens a finished features file and reads its header and its digests. What
// is wrong with it is an [ErrFormat]. The caller closes it.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("features: %w", err)
	}
	file, err := read(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("features %s: %w", path, err), f.Close())
	}
	return file, nil
}

func read(f *os.File) (*File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	var prefix [prefixBytes]byte
	if _, err := f.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrFormat, size)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > maxHeaderBytes || length > uint64(size-prefixBytes) {
		return nil, fmt.Errorf("%w: a header of %d bytes in a file of %d", ErrFormat, length, size)
	}
	data := make([]byte, length)
	if _, err := f.ReadAt(data, prefixBytes); err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	header, doc, err := decode(data)
	if err != nil {
		return nil, err
	}
	rows, err := doc.layout(header, uint64(size)-prefixBytes-length)
	if err != nil {
		return nil, err
	}
	base := prefixBytes + int64(length)
	digests, err := readDigests(io.NewSectionReader(f, base+int64(doc.Digests.DataOffsets[0]), int64(rows)*sha256.Size), rows)
	if err != nil {
		return nil, err
	}
	return &File{f: f, header: header, digests: digests, first: base + int64(doc.Features.DataOffsets[0])}, nil
}

func readDigests(r io.Reader, rows int) ([]Digest, error) {
	digests := make([]Digest, rows)
	for i := range digests {
		if _, err := io.ReadFull(r, digests[i][:]); err != nil {
			return nil, fmt.Errorf("read digests: %w", err)
		}
	}
	return digests, nil
}

// Header says where the features come from.
func (f *File) Header() Header { return f.header }

// Len returns the number of rows.
func (f *File) Len() int { return len(f.digests) }

// Digests returns the task's digest of every row. The caller must not change it.
func (f *File) Digests() []Digest { return f.digests }

// ReadRow reads row i into dst, which has Header().Dim() numbers. A NaN or an
// infinity is an [ErrNonFinite] that names the row and the column.
func (f *File) ReadRow(i int, dst []float32) error {
	if i < 0 || i >= len(f.digests) || len(dst) != f.header.Dim() {
		return fmt.Errorf("features: row %d into %d numbers, the file has %d rows of %d", i, len(dst), len(f.digests), f.header.Dim())
	}
	buf := make([]byte, len(dst)*bytesPerFloat)
	if _, err := f.f.ReadAt(buf, f.first+int64(i)*int64(len(buf))); err != nil {
		return fmt.Errorf("features: read row %d: %w", i, err)
	}
	for j := range dst {
		dst[j] = math.Float32frombits(binary.LittleEndian.Uint32(buf[j*bytesPerFloat:]))
		if dst[j]-dst[j] != 0 { // NaN or infinity
			return fmt.Errorf("%w: features row %d, column %d", ErrNonFinite, i, j)
		}
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }
