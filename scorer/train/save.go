package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pointsman-dev/pointsman/scorer"
)

// CheckTarget reports, before any work is done, why a checkpoint cannot be written
// to the new folder dir.
func CheckTarget(dir string) error {
	dir = filepath.Clean(dir)
	switch _, err := os.Lstat(dir); { //nolint:gosec // the folder is named by who runs it
	case err == nil:
		return fmt.Errorf("checkpoint %s: the folder is already there; choose another, or remove it: %w", dir, fs.ErrExist)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("checkpoint: %w", err)
	}
	staging, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-*")
	if err != nil {
		return fmt.Errorf("checkpoint %s: cannot write beside it: %w", dir, err)
	}
	return os.Remove(staging) //nolint:gosec // made above
}

// Save writes the checkpoint and its record into the new folder dir: beside it
// first, then renamed, so that it is there whole or not at all.
func (r *Result) Save(dir string) error {
	if err := r.save(filepath.Clean(dir)); err != nil {
		return fmt.Errorf("checkpoint %s: %w", dir, err)
	}
	return nil
}

func (r *Result) save(dir string) (err error) {
	if err := CheckTarget(dir); err != nil {
		return err
	}
	staging, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }() //nolint:gosec // made above
	whole := filepath.Join(staging, "checkpoint")
	if err := scorer.Save(whole, r.Manifest, r.Tensors); err != nil {
		return err
	}
	checkpoint, err := scorer.Load(whole) // proves that it will be served, and gives its digest
	if err != nil {
		return err
	}
	r.Record.Checkpoint = checkpoint.Digest()
	record, err := json.MarshalIndent(r.Record, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", RecordFile, err)
	}
	if err := writeSynced(filepath.Join(whole, RecordFile), append(record, '\n')); err != nil {
		return err
	}
	return os.Rename(whole, dir) //nolint:gosec // the folder is named by who runs it
}

// writeSynced writes a file and waits for the disk.
func writeSynced(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a checkpoint is no secret
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}
