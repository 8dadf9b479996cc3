package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// rotating is a file that is put aside when it is full. It has one user.
type rotating struct {
	path     string
	maxBytes int64
	maxFiles int
	file     *os.File
	size     int64
}

// openRotating opens the file to append to, and makes its folder if need be. Only the
// owner may read either: that somebody asked is not everybody's business.
func openRotating(path string, maxBytes int64, maxFiles int) (*rotating, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	r := &rotating{path: path, maxBytes: maxBytes, maxFiles: maxFiles}
	return r, r.open()
}

func (r *rotating) open() error {
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	r.file, r.size = f, info.Size()
	return nil
}

// Write implements [io.Writer].
func (r *rotating) Write(p []byte) (int, error) {
	if r.file == nil { // an earlier rotation could not open the new file
		if err := r.open(); err != nil {
			return 0, err
		}
	}
	n, err := r.file.Write(p)
	r.size += int64(n)
	return n, err
}

// rotateIfFull puts a full file aside. It is called between entries, so that no line is
// torn. A file that cannot be put aside is written on.
func (r *rotating) rotateIfFull() {
	if r.size < r.maxBytes || r.file == nil {
		return
	}
	_ = r.file.Close() // what it could not keep is lost; a new one is begun all the same
	r.file = nil
	r.shift()
	_ = r.open() // the next Write tries again and tells
}

// shift renames the file to .1, .1 to .2 and so on; the oldest goes.
func (r *rotating) shift() {
	if r.maxFiles <= 1 {
		_ = os.Remove(r.path)
		return
	}
	for i := r.maxFiles - 2; i >= 1; i-- {
		_ = os.Rename(r.aside(i), r.aside(i+1)) // most are not there yet
	}
	_ = os.Rename(r.path, r.aside(1))
}

func (r *rotating) aside(i int) string { return fmt.Sprintf("%s.%d", r.path, i) }

// Close closes the file.
func (r *rotating) Close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}

// pathless takes the path off an error: the configuration has it.
func pathless(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}
