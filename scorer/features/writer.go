package features

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
)

const (
	partialSuffix = ".partial"         // rows of an unfinished file, after room for the header
	digestsSuffix = ".partial.digests" // their digests, one after another

	// flushRows is how many rows may be lost by a crash. A flush waits for the
	// disk twice, a few milliseconds: nothing beside so many probes.
	flushRows = 64

	// filePerm keeps the files to their owner: something of a text can be told from
	// its features.
	filePerm = 0o600
)

// Writer appends rows to a features file that is not finished yet. It is not
// safe for several goroutines at once.
//
// Until Finish, rows and digests stand in two files beside path. Rows reach the
// disk before their digests are written, so that the number of whole digests says
// how many rows can be trusted after a crash.
type Writer struct {
	path    string
	header  Header
	rows    *os.File
	buffer  *bufio.Writer // before rows
	index   *os.File      // digests
	pending []Digest      // appended but not flushed
	known   map[Digest]struct{}
}

// Create opens a writer for the file at path: a new one, one that was left
// unfinished, or a finished one that is to grow. What is there must have the
// same header, or Create fails with [ErrOtherProbe] and touches nothing. Two
// writers for one path must not exist at once.
func Create(path string, h Header) (*Writer, error) {
	w, err := create(path, h)
	if err != nil {
		return nil, fmt.Errorf("features %s: %w", path, err)
	}
	return w, nil
}

func create(path string, h Header) (w *Writer, err error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	head, err := h.encode(0)
	if err != nil {
		return nil, err
	}
	if err := reopenFinished(path, h); err != nil {
		return nil, err
	}
	w = &Writer{path: path, header: h, known: map[Digest]struct{}{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.closeFiles())
		}
	}()
	if w.rows, err = os.OpenFile(path+partialSuffix, os.O_RDWR|os.O_CREATE, filePerm); err != nil {
		return w, err
	}
	if w.index, err = os.OpenFile(path+digestsSuffix, os.O_RDWR|os.O_CREATE, filePerm); err != nil {
		return w, err
	}
	if err := w.resume(head); err != nil {
		return w, err
	}
	w.buffer = bufio.NewWriterSize(w.rows, 1<<20)
	return w, nil
}

// reopenFinished turns a finished file back into an unfinished one. Its digests
// are written first, so that a crash in between loses nothing.
func reopenFinished(path string, h Header) error {
	file, err := Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if err := h.Matches(file.header); err != nil {
		return err
	}
	if file.first != headerBytes {
		return fmt.Errorf("%w: it was written by another program and cannot grow; write to a new file", ErrFormat)
	}
	if _, err := os.Lstat(path + partialSuffix); err == nil {
		return fmt.Errorf("both it and %s are there: remove one", filepath.Base(path)+partialSuffix)
	}
	var all bytes.Buffer
	for _, d := range file.digests {
		all.Write(d[:])
	}
	if err := os.WriteFile(path+digestsSuffix, all.Bytes(), filePerm); err != nil {
		return err
	}
	return os.Rename(path, path+partialSuffix)
}

// resume reads what an earlier writer left and cuts off what it had not flushed.
func (w *Writer) resume(head []byte) error {
	info, err := w.rows.Stat()
	if err != nil {
		return err
	}
	if info.Size() >= headerBytes {
		if err := w.checkHead(); err != nil {
			return err
		}
	}
	info, err = w.index.Stat()
	if err != nil {
		return err
	}
	rowInfo, err := w.rows.Stat()
	if err != nil {
		return err
	}
	rows := max(0, (rowInfo.Size()-headerBytes)/w.rowBytes())
	rows = min(rows, info.Size()/sha256.Size)
	digests, err := readDigests(io.NewSectionReader(w.index, 0, rows*sha256.Size), int(rows))
	if err != nil {
		return err
	}
	for _, d := range digests {
		w.known[d] = struct{}{}
	}
	if len(w.known) != len(digests) {
		return fmt.Errorf("%w: %s holds a task twice", ErrFormat, filepath.Base(w.path)+digestsSuffix)
	}
	if err := errors.Join(w.index.Truncate(rows*sha256.Size), w.rows.Truncate(headerBytes+rows*w.rowBytes())); err != nil {
		return err
	}
	if _, err := w.rows.WriteAt(head, 0); err != nil {
		return err
	}
	for _, f := range []*os.File{w.rows, w.index} {
		if _, err := f.Seek(0, io.SeekEnd); err != nil {
			return err
		}
	}
	return nil
}

// checkHead compares the header of an unfinished file with the writer's.
func (w *Writer) checkHead() error {
	head := make([]byte, headerBytes)
	if _, err := w.rows.ReadAt(head, 0); err != nil {
		return err
	}
	found, _, err := decode(bytes.TrimRight(head[prefixBytes:], " "))
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(w.path)+partialSuffix, err)
	}
	return w.header.Matches(found)
}

func (w *Writer) rowBytes() int64 { return int64(w.header.Dim()) * bytesPerFloat }

// Has reports whether the task with this digest has a row.
func (w *Writer) Has(d Digest) bool {
	_, ok := w.known[d]
	return ok
}

// Len returns the number of rows.
func (w *Writer) Len() int { return len(w.known) }

// Append adds a row. A task that has one already, a row of another length, or
// one with a NaN or an infinity is an error, and the writer can go on; after any
// other error it must be closed.
func (w *Writer) Append(d Digest, row []float32) error {
	if len(row) != w.header.Dim() {
		return fmt.Errorf("features: a row of %d numbers, want %d", len(row), w.header.Dim())
	}
	if w.Has(d) {
		return fmt.Errorf("features: task %s has a row already", d)
	}
	for i, v := range row {
		if v-v != 0 {
			return fmt.Errorf("%w: feature %d of task %s", ErrNonFinite, i, d)
		}
	}
	var number [bytesPerFloat]byte
	for _, v := range row {
		binary.LittleEndian.PutUint32(number[:], math.Float32bits(v))
		if _, err := w.buffer.Write(number[:]); err != nil {
			return fmt.Errorf("features: append row: %w", err)
		}
	}
	w.known[d] = struct{}{}
	w.pending = append(w.pending, d)
	if len(w.pending) < flushRows {
		return nil
	}
	return w.Flush()
}

// Flush makes sure that every row appended so far survives a crash.
func (w *Writer) Flush() error {
	if err := w.flush(); err != nil {
		return fmt.Errorf("features: write %s: %w", w.path, err)
	}
	return nil
}

func (w *Writer) flush() error {
	if err := w.buffer.Flush(); err != nil {
		return err
	}
	if err := w.rows.Sync(); err != nil {
		return err
	}
	for _, d := range w.pending {
		if _, err := w.index.Write(d[:]); err != nil {
			return err
		}
	}
	w.pending = w.pending[:0]
	return w.index.Sync()
}

// Finish writes the finished file and closes the writer. The file is there whole
// or not at all; after an error the rows can still be resumed.
func (w *Writer) Finish() error {
	err := w.finish()
	err = errors.Join(err, w.closeFiles())
	if err != nil {
		return fmt.Errorf("features: finish %s: %w", w.path, err)
	}
	return os.Remove(w.path + digestsSuffix)
}

func (w *Writer) finish() error {
	if err := w.flush(); err != nil {
		return err
	}
	head, err := w.header.encode(w.Len())
	if err != nil {
		return err
	}
	if _, err := w.index.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(w.rows, w.index); err != nil {
		return err
	}
	// The header with the final number last: until then the file is a whole
	// unfinished one, whose tail is cut off when it is resumed.
	if _, err := w.rows.WriteAt(head, 0); err != nil {
		return err
	}
	if err := w.rows.Sync(); err != nil {
		return err
	}
	return os.Rename(w.path+partialSuffix, w.path)
}

// Close flushes and closes the writer and leaves the file unfinished, to be
// resumed by Create.
func (w *Writer) Close() error {
	err := w.Flush()
	return errors.Join(err, w.closeFiles())
}

func (w *Writer) closeFiles() error {
	var errs []error
	for _, f := range []*os.File{w.rows, w.index} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// pad puts the length prefix before a header and spaces after it.
func pad(data []byte) ([]byte, error) {
	if len(data) > headerBytes-prefixBytes {
		return nil, fmt.Errorf("a header of %d bytes, want at most %d: shorten the encoder's name or the revision", len(data), headerBytes-prefixBytes)
	}
	out := binary.LittleEndian.AppendUint64(make([]byte, 0, headerBytes), headerBytes-prefixBytes)
	out = append(out, data...)
	return slices.Concat(out, bytes.Repeat([]byte(" "), headerBytes-len(out))), nil
}
