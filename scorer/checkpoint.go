package scorer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
)

// Checkpoint is a loaded router checkpoint. It holds all it needs, so the folder
// may be changed or removed, and it may be used by any number of goroutines.
type Checkpoint struct {
	manifest Manifest
	tensors  *Tensors
	digest   string
	scratch  sync.Pool // of *scratch, sized for this checkpoint

	projector projector
}

// Load reads the checkpoint in folder dir, which may be a symbolic link. Links
// inside it are followed as long as they stay inside. Everything is validated:
// first router.json, then the tensor file it names. What is at fault is reported
// by a [*CheckpointError] that names the file and the field or tensor.
func Load(dir string) (*Checkpoint, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		err = &CheckpointError{File: manifestFile, Problem: unreadable, Err: err}
		return nil, fmt.Errorf("checkpoint %s: %w", dir, err)
	}
	defer root.Close()
	c, err := load(func(name string) (io.ReadCloser, int64, error) { return openRegular(root, name) })
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", dir, err)
	}
	return c, nil
}

// openFunc opens a file of a checkpoint by name and gives its size.
type openFunc func(name string) (f io.ReadCloser, size int64, err error)

// load reads a checkpoint from the files that open gives.
func load(open openFunc) (*Checkpoint, error) {
	data, err := readManifest(open)
	if err != nil {
		return nil, err
	}
	doc, err := parseDocument(data)
	if err != nil {
		return nil, err
	}
	f, size, err := open(doc.TensorFile)
	if err != nil {
		return nil, &CheckpointError{File: doc.TensorFile, Problem: unreadable, Err: err}
	}
	defer f.Close()

	digest := newDigest(data)
	m := doc.manifest()
	t := emptyTensors(m)
	if err := readTensors(io.TeeReader(f, digest), size, doc.TensorFile, slots(m, t)); err != nil {
		return nil, err
	}
	return newCheckpoint(m, t, "sha256:"+hex.EncodeToString(digest.Sum(nil))), nil
}

// newDigest starts a checkpoint's digest: SHA-256 over the length of router.json
// (8 bytes, little-endian, as safetensors writes its own), router.json, and then
// the tensor file, which the caller adds. The length keeps a byte from moving
// from one file to the other unseen.
func newDigest(manifest []byte) hash.Hash {
	h := sha256.New()
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(manifest))))
	h.Write(manifest)
	return h
}

func newCheckpoint(m Manifest, t *Tensors, digest string) *Checkpoint {
	c := &Checkpoint{manifest: m, tensors: t, digest: digest, projector: newProjector(t.PCAComponents, m.FeatureDim())}
	c.scratch.New = func() any { return newScratch(m) }
	return c
}

func readManifest(open openFunc) ([]byte, error) {
	f, _, err := open(manifestFile)
	if err != nil {
		return nil, &CheckpointError{File: manifestFile, Problem: unreadable, Err: err}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
	if err != nil {
		return nil, &CheckpointError{File: manifestFile, Problem: unreadable, Err: err}
	}
	if len(data) > maxManifestBytes {
		return nil, &CheckpointError{File: manifestFile, Problem: fmt.Sprintf("is too large, want at most %d bytes", maxManifestBytes)}
	}
	return data, nil
}

// unreadable is the problem of a file, whose own error says more.
const unreadable = "cannot be read"

// openRegular opens a regular file inside root. O_NONBLOCK keeps a FIFO from
// holding the open until somebody writes; the check is on what was opened.
func openRegular(root *os.Root, name string) (io.ReadCloser, int64, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	if !info.Mode().IsRegular() {
		return nil, 0, errors.Join(fmt.Errorf("%s is not a regular file", name), f.Close())
	}
	return f, info.Size(), nil
}

// Manifest returns what the checkpoint says about itself. The caller owns it.
func (c *Checkpoint) Manifest() Manifest { return c.manifest.clone() }

// Digest identifies the checkpoint by its files' contents, "sha256:" and 64 hex
// digits.
func (c *Checkpoint) Digest() string { return c.digest }

// Heads returns the names of the heads, in the order of Score's probabilities.
// The caller owns the slice.
func (c *Checkpoint) Heads() []string { return slices.Clone(c.manifest.OutputNames) }
