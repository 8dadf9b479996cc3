package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

const (
	artifactSuffix = ".safetensors"

	// Where the watch has not told of the last artifact, the first looks follow each other closely, since a fast file
	// system may be done within a millisecond of the answer; a slow one is not helped by looking often.
	pollFirst = 200 * time.Microsecond
	pollSlow  = 10 * time.Millisecond
	// pollShare is the part of a pause by which the next is longer: so a wait is found to be over at most about an eighth
	// of it late, and takes some thirty looks until it is 80 ms long and looks come every 10 ms.
	pollShare = 8

	// lockFreeGrace is how long a whole file is waited for once the lock is free. vLLM releases the lock after the
	// write, and also after a write that failed: only a file system that shows names late makes waiting worthwhile.
	lockFreeGrace = 250 * time.Millisecond
)

// folder is the directory shared with vLLM. It is opened anew for each look, since vLLM may remove and make it again.
type folder struct {
	dir      string // absolute, as this process sees it; a link that was configured has been followed
	reported string // absolute and clean, as vLLM sees it
	maxBytes int64
	watch    *watch        // wakes a wait early
	pause    time.Duration // before the second look

	// swapped is called between the check of a name and its opening; tests use it to change the file in between.
	swapped func(name string)
}

func newFolder(e Endpoint, maxBytes int64) (*folder, error) {
	dir, err := filepath.Abs(e.HiddenStatesDir)
	if err != nil {
		return nil, fmt.Errorf("hidden_states_dir: %w", err)
	}
	f := &folder{dir: dir, reported: dir, maxBytes: maxBytes, pause: pollFirst}
	if e.ReportedDir != "" {
		f.reported = filepath.Clean(e.ReportedDir)
	}
	// Once: a link that is configured is the operator's, one that turns up later may be anybody's (see open).
	if followed, err := filepath.EvalSymlinks(dir); err == nil {
		f.dir = followed
	}
	return f, nil
}

// open opens the folder, unless a link has taken its place: vLLM may own the folder, and could lead us with a link to
// files of ours, to be read and removed. The caller closes the root.
func (f *folder) open() (*os.Root, error) {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, bare(err)
	}
	opened, err := root.Stat(".")
	if err == nil {
		var there fs.FileInfo
		if there, err = os.Lstat(f.dir); err == nil && !os.SameFile(opened, there) {
			err = errFolderReplaced
		}
	}
	if err != nil {
		return nil, errors.Join(bare(err), root.Close())
	}
	return root, nil
}

var errFolderReplaced = errors.New("hidden_states_dir: a link has taken its place")

// resolve returns the name, in the folder, of the artifact that vLLM reported. The path comes from another process and
// is taken as text only: nothing is opened here. Its errors do not repeat it.
func (f *folder) resolve(path string) (string, error) {
	for element := range strings.SplitSeq(path, "/") {
		if element == ".." {
			return "", errors.New("reported path has a .. in it")
		}
	}
	if strings.ContainsRune(path, 0) {
		return "", errors.New("reported path holds a NUL")
	}
	name := filepath.Clean(path)
	if filepath.IsAbs(path) {
		inside, err := filepath.Rel(f.reported, name)
		if err != nil || strings.HasPrefix(inside, "..") {
			return "", errors.New("reported path is outside the folder (set reported_dir if vLLM sees it under another path)")
		}
		name = inside
	}
	switch {
	case strings.ContainsRune(name, '/'):
		return "", errors.New("reported path is not directly in the folder")
	case !strings.HasSuffix(name, artifactSuffix) || name == artifactSuffix:
		return "", errors.New("reported path does not end in " + artifactSuffix)
	}
	return name, nil
}

// claim is an artifact as one look found it, with what is needed to read and remove it. The caller closes it.
type claim struct {
	root   *os.Root
	name   string
	lock   lockState
	shared *flock.Flock // with lockHeld
	file   *os.File     // with a whole file
	header header
	size   int64
}

// await waits until the artifact is whole and its lock is free, or ctx ends. Which of the three ways of writing vLLM
// uses need not be known: with no lock, a whole file is all there is to wait for; with a lock, it is held from before
// the answer until the file is written.
//
// The claim is never nil. With an error it says whether the files are ours to remove.
func (f *folder) await(ctx context.Context, name string) (*claim, error) {
	written, stop := f.watch.expect(name) // before the first look, so that nothing falls in between
	defer stop()
	pause := f.pause
	if f.watch.trusted() {
		pause = pollSlow
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var free time.Time // when the lock was first seen free
	for told, looks := false, 0; ; looks++ {
		c, err := f.look(name)
		if err == nil || !errors.Is(err, errNotYet) {
			if looks > 0 {
				f.watch.trust(told)
			}
			return c, err
		}
		switch {
		case c.lock != lockHeld:
			free = time.Time{}
		case free.IsZero():
			free = time.Now()
		case time.Since(free) >= lockFreeGrace:
			return c, fmt.Errorf("lock is free, but %w", err)
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return c, lateError(context.Cause(ctx), c.lock, err)
		case <-timer.C:
			pause = min(pause+pause/pollShare, pollSlow)
		case <-written:
			told = true
			pause = pollFirst // the lock comes free a moment after the file was closed, and after its own closing is told of
		}
		c.close()
	}
}

// errNotYet says that a later look may find a whole file.
var errNotYet = errors.New("artifact is not ready")

// lateError is the error of a wait that ended without a whole file.
func lateError(cause error, lock lockState, last error) error {
	switch {
	case !errors.Is(cause, errArtifactTime):
		return cause
	case lock == lockBusy:
		return fmt.Errorf("%w: artifact's lock was not released: %w", ErrTimeout, cause)
	default:
		return fmt.Errorf("%w: %w", cause, last)
	}
}

// look takes one look at the artifact. Nothing is opened before it was seen to be a regular file.
func (f *folder) look(name string) (*claim, error) {
	c := &claim{name: name}
	var err error
	if c.root, err = f.open(); err != nil {
		return c, fmt.Errorf("%w: folder: %w", errNotYet, err)
	}
	if c.lock, c.shared, err = tryLock(c.root, name+lockSuffix, f.swapped); err != nil {
		return c, err
	}
	if c.lock == lockBusy {
		return c, fmt.Errorf("%w: lock is held", errNotYet)
	}
	file, info, err := openRegular(c.root, name, f.swapped)
	if errors.Is(err, fs.ErrNotExist) {
		return c, fmt.Errorf("%w: no file", errNotYet)
	}
	if err != nil {
		return c, err
	}
	c.file, c.size = file, info.Size()
	c.header, err = readHeader(file, c.size, f.maxBytes)
	if errors.Is(err, errIncomplete) {
		return c, fmt.Errorf("%w: %w", errNotYet, err)
	}
	return c, err
}

// openRegular opens a regular file that is a direct child of the root, and nothing else. The root keeps the open inside
// the folder but follows links within it, so the name is looked at first and the opened file compared with it; a FIFO
// that takes the name's place in between does not block a non-blocking open.
func openRegular(root *os.Root, name string, swapped func(string)) (*os.File, fs.FileInfo, error) {
	seen, err := root.Lstat(name)
	if err != nil {
		return nil, nil, bare(err)
	}
	if !seen.Mode().IsRegular() {
		return nil, nil, errNotRegular
	}
	if swapped != nil {
		swapped(name)
	}
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, bare(err)
	}
	opened, err := file.Stat()
	if err != nil || !os.SameFile(seen, opened) {
		return nil, nil, errors.Join(errors.New("replaced while it was opened"), file.Close())
	}
	return file, opened, nil
}

var errNotRegular = errors.New("not a regular file")

// remove removes the artifact, then its lock. It reports whether both are gone. They are left when the lock was busy:
// vLLM may still be writing, and the sweep comes later. Only names in the folder are removed, never what a link leads
// to, and no directory.
func (c *claim) remove() (bool, error) {
	if c.root == nil {
		return true, nil
	}
	if c.lock != lockHeld && c.lock != lockNone {
		return false, nil
	}
	err := errors.Join(removeEntry(c.root, c.name), removeEntry(c.root, c.name+lockSuffix))
	return err == nil, err
}

// removeEntry removes a name that is not a directory; one that is gone already is success.
func removeEntry(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err == nil && info.IsDir() {
		return errors.New("is a directory")
	}
	if err == nil {
		err = root.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return bare(err)
	}
	return nil
}

// close releases the lock and closes the files. The files were only read, so there is nothing to report. The nil *claim has
// nothing to close.
func (c *claim) close() {
	if c == nil {
		return
	}
	if c.file != nil {
		_ = c.file.Close()
	}
	if c.shared != nil {
		_ = c.shared.Close()
	}
	if c.root != nil {
		_ = c.root.Close()
	}
}
