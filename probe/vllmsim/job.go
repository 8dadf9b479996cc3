package vllmsim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// job is one request's way to its artifact. Its methods are called one after
// the other: place, then for the file begin and complete, then release.
type job struct {
	folder   string // the server's, which is there whatever the fault
	path     string // where the artifact is written
	reported string // what the answer calls it
	artifact artifact
	fault    Fault
	locks    bool // the regime has lock files
	lock     *os.File
	released <-chan struct{} // closed by Server.ReleaseLocks
}

// newJob names the artifact of the request with that engine id.
func (s *Server) newJob(engineID string, tokens []int64, fault Fault) (*job, error) {
	name := engineID + ".safetensors"
	dir, reported := s.cfg.Dir, s.cfg.ReportedDir
	switch fault.kind { //nolint:exhaustive // the others are made as usual
	case pathOutside:
		dir, reported = fault.location, fault.location
	case pathDotDot:
		way, err := filepath.Rel(s.cfg.Dir, fault.location)
		if err != nil {
			return nil, fmt.Errorf("find the way to the folder outside: %w", err)
		}
		dir, reported = fault.location, reported+"/"+way
	case pathNested:
		dir, reported = filepath.Join(dir, "nested"), reported+"/nested"
	case pathExtension:
		name = engineID + ".bin"
	}
	return &job{
		folder:   s.cfg.Dir,
		path:     filepath.Join(dir, name),
		reported: strings.TrimSuffix(reported, "/") + "/" + name,
		artifact: fault.spoil(newArtifact(tokens, s.cfg.Layers, s.cfg.HiddenSize, s.cfg.DType)),
		fault:    fault,
		locks:    s.cfg.Regime.locks(),
		released: s.lockRelease(),
	}, nil
}

// place makes the folder and takes the lock.
func (j *job) place() error {
	for _, dir := range []string{j.folder, filepath.Dir(j.path)} {
		if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // vLLM's mode
			return fmt.Errorf("make artifact folder: %w", err)
		}
	}
	lock := j.path + ".lock"
	switch j.fault.kind { //nolint:exhaustive // the others are made as usual
	case noLock:
		return nil
	case lockSymlink:
		return linkOutside(j.fault.location, lock, nil)
	case lockFIFO:
		return makeFIFO(lock)
	case lockDir:
		return makeDir(lock)
	}
	if !j.locks && j.fault.kind != lockKept {
		return nil
	}
	file, err := os.OpenFile(lock, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644) //nolint:gosec // vLLM's mode
	if err != nil {
		return fmt.Errorf("make lock: %w", err)
	}
	// The name is new, so nobody can hold it; where the random suffix is off and
	// a client repeats an id, an error is better than waiting for it.
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("take lock: %w", err), file.Close())
	}
	j.lock = file
	return nil
}

// release gives the lock up by closing it, as vLLM does. It stays on disk.
func (j *job) release() error {
	if j.lock == nil {
		return nil
	}
	err := j.lock.Close()
	j.lock = nil
	if err != nil {
		return fmt.Errorf("release lock: %w", err)
	}
	return nil
}

// begin writes what is to be at the artifact's path: for most faults all of
// it, for a truncated file the first half.
func (j *job) begin() error {
	switch j.fault.kind {
	case fileMissing:
		return nil
	case artifactSymlink:
		return linkOutside(j.fault.location, j.path, j.artifact.write)
	case artifactFIFO:
		return makeFIFO(j.path)
	case artifactDir:
		return makeDir(j.path)
	case hugeSparse:
		return writeFile(j.path, func(f *os.File) error { return f.Truncate(j.fault.size) })
	case hugeZeros:
		return writeFile(j.path, j.writeZeros)
	case garbage:
		return writeFile(j.path, writeGarbage)
	case truncated:
		size, err := j.artifact.size()
		if err != nil {
			return err
		}
		return writeFile(j.path, func(f *os.File) error {
			return j.artifact.write(&section{out: f, until: size / 2})
		})
	default:
		return writeFile(j.path, func(f *os.File) error { return j.artifact.write(f) })
	}
}

// complete adds the second half of a file that is truncated for a while. The
// artifact is the same at every writing, so it is written again without the
// bytes that are there.
func (j *job) complete() error {
	size, err := j.artifact.size()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the client gave up and took it away
	}
	if err != nil {
		return fmt.Errorf("complete artifact: %w", err)
	}
	return errors.Join(j.artifact.write(&section{out: file, from: size / 2, until: size}), file.Close())
}

// writeZeros writes a header for as many tokens as make about the wanted size
// and leaves a hole for the data.
func (j *job) writeZeros(f *os.File) error {
	a := j.artifact
	tokens := max(1, int(j.fault.size/(8+a.rowBytes())))
	a.shape = []int{tokens, a.layers, a.hidden}
	header, err := a.header(tokens, tokens)
	if err != nil {
		return err
	}
	if _, err := f.Write(header); err != nil {
		return fmt.Errorf("write artifact header: %w", err)
	}
	return f.Truncate(int64(len(header)) + int64(tokens)*(8+a.rowBytes()))
}

// garbageSize is a page: large enough to be read as a header.
const garbageSize = 4096

func writeGarbage(f *os.File) error {
	var noise []byte
	for n := uint64(1); len(noise) < garbageSize; n++ {
		noise = binary.LittleEndian.AppendUint64(noise, splitMix(n*splitMixStep))
	}
	_, err := f.Write(noise)
	return err
}

// writeFile creates the file as safetensors does: at its final name, 0666 less
// the umask, filled in place.
func writeFile(path string, fill func(*os.File) error) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o666) //nolint:gosec // safetensors' mode
	if err != nil {
		return fmt.Errorf("create artifact: %w", err)
	}
	return errors.Join(fill(file), file.Close())
}

// linkOutside fills a file in the folder outside and makes path a link to it.
func linkOutside(outside, path string, fill func(io.Writer) error) error {
	target := filepath.Join(outside, filepath.Base(path))
	err := writeFile(target, func(f *os.File) error {
		if fill == nil {
			return nil
		}
		return fill(f)
	})
	if err != nil {
		return err
	}
	if err := os.Symlink(target, path); err != nil {
		return fmt.Errorf("make symbolic link: %w", err)
	}
	return nil
}

func makeFIFO(path string) error {
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		return fmt.Errorf("make fifo: %w", err)
	}
	return nil
}

func makeDir(path string) error {
	if err := os.Mkdir(path, 0o777); err != nil { //nolint:gosec // vLLM's mode
		return fmt.Errorf("make folder: %w", err)
	}
	return nil
}

// section passes on the bytes from..until of what is written to it and drops
// the others.
type section struct {
	out         io.Writer
	from, until int64
	at          int64
}

func (s *section) Write(p []byte) (int, error) {
	start := min(max(s.from-s.at, 0), int64(len(p)))
	end := min(max(s.until-s.at, start), int64(len(p)))
	s.at += int64(len(p))
	if start < end {
		if _, err := s.out.Write(p[start:end]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
