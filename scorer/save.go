package scorer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Save writes a checkpoint that Load accepts into the new folder dir: it is
// written beside dir and renamed, so that dir is there whole or not at all. A
// dir that exists is an error matching [fs.ErrExist]; replace a checkpoint by
// saving under a new name and pointing a symbolic link at it.
//
// What Load would refuse is refused before anything is written. The same
// checkpoint gives the same files, and so the same digest.
func Save(dir string, m Manifest, t Tensors) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("save checkpoint %s: %w", dir, err)
		}
	}()
	dir = filepath.Clean(dir) // so that a trailing slash does not hide the parent
	files, err := encode(m, &t)
	if err != nil {
		return err
	}
	switch _, err := os.Lstat(dir); {
	case err == nil:
		return fmt.Errorf("the folder is already there: %w", fs.ErrExist)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(dir)
	staging, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+"-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staging) // nothing is left of it after the rename
	for name, write := range files {
		if err := writeFile(filepath.Join(staging, name), write); err != nil {
			return err
		}
	}
	// MkdirTemp makes it for its owner only; a checkpoint is no secret, and who
	// trains one is often not who serves it.
	if err := os.Chmod(staging, 0o755); err != nil { //nolint:gosec // readable by all, as said
		return err
	}
	if err := os.Rename(staging, dir); err != nil {
		return err
	}
	return syncDir(parent)
}

// encode validates a checkpoint and returns how to write each of its files.
func encode(m Manifest, t *Tensors) (map[string]func(io.Writer) error, error) {
	doc := m.document()
	if err := doc.validate(); err != nil {
		return nil, err
	}
	if len(t.Members) != m.EnsembleSize {
		return nil, fieldError("ensemble_size", m.EnsembleSize, fmt.Sprintf("%d, the number of members", len(t.Members)))
	}
	for i, member := range t.Members {
		if len(member) != len(m.TrunkHidden)+1 {
			return nil, fieldError("trunk_hidden", m.TrunkHidden, fmt.Sprintf("a width for each of the %d layers of member %d before its last", len(member)-1, i))
		}
	}
	list := slots(m, t)
	for _, s := range list {
		if len(*s.values) != s.elements() {
			return nil, &CheckpointError{
				File: doc.TensorFile, Part: s.name,
				Problem: fmt.Sprintf("has %d numbers, want shape %v", len(*s.values), s.shape),
			}
		}
		if err := s.check(doc.TensorFile); err != nil {
			return nil, err
		}
	}
	manifest, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", manifestFile, err)
	}
	manifest = append(manifest, '\n')
	if len(manifest) > maxManifestBytes {
		return nil, &CheckpointError{File: manifestFile, Problem: fmt.Sprintf("would have %d bytes, want at most %d", len(manifest), maxManifestBytes)}
	}
	return map[string]func(io.Writer) error{
		manifestFile: func(w io.Writer) error {
			_, err := w.Write(manifest)
			return err
		},
		doc.TensorFile: func(w io.Writer) error { return writeTensors(w, list) },
	}, nil
}

// writeFile creates a file and makes sure its contents reach the disk, since the
// rename that follows could otherwise survive a crash that they do not.
func writeFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a checkpoint is no secret
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
