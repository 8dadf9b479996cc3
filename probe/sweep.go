package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"
)

// sweepBatch is how many names are read from the folder at a time, so that a folder of millions does not fill memory.
const sweepBatch = 1024

// sweeper removes what no request removed: artifacts of requests that timed out or whose process died, and their locks.
// vLLM never removes anything. It never touches a file that is young, whose lock is held, or, unless All is set, that no
// Pointsman asked for; several processes may sweep one folder.
type sweeper struct {
	folder   *folder
	cfg      Sweep
	observer Observer
	log      *slog.Logger
	failing  bool // said in the log, and not put right since
}

// run sweeps at once, for what an earlier process left, and then on every interval, until ctx ends.
func (s *sweeper) run(ctx context.Context) {
	ticker := time.NewTicker(s.cfg.Interval)
	defer ticker.Stop()
	for {
		s.once(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// once sweeps the folder and reports.
func (s *sweeper) once(ctx context.Context) {
	start := time.Now()
	report, err := s.sweep(ctx)
	report.Took = time.Since(start)
	if err != nil && !s.failing {
		s.log.Warn("sweep of the hidden-states folder failed; further failures are only counted", "error", err)
	}
	s.failing = err != nil
	s.observer.Swept(report)
}

// sweep looks at every name in the folder once. The error is the first that was met; the sweep goes on after it.
func (s *sweeper) sweep(ctx context.Context) (report SweepReport, first error) {
	fail := func(err error) {
		report.Errors++
		if first == nil {
			first = bare(err)
		}
	}
	root, err := s.folder.open()
	if err != nil {
		fail(err)
		return report, first
	}
	defer root.Close()
	oldest := time.Now().Add(-s.cfg.MinAge)
	err = eachName(ctx, root, func(name string) {
		switch kind := kindOf(name); {
		case kind == nameOther:
		case kind == nameForeign && !s.cfg.All:
			report.Foreign++
		default:
			if err := s.sweepName(root, name, oldest, &report); err != nil {
				fail(err)
			}
		}
	})
	if err != nil {
		fail(err)
	}
	return report, first
}

// sweepName removes an artifact with its lock, or a lock without an artifact. The lock of an artifact that exists is
// left to the artifact's own turn.
func (s *sweeper) sweepName(root *os.Root, name string, oldest time.Time, report *SweepReport) error {
	artifact := strings.TrimSuffix(name, lockSuffix)
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // another process was faster
	case err != nil:
		return err
	case info.ModTime().After(oldest):
		return nil
	}
	if name != artifact {
		if _, err := root.Lstat(artifact); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// The lock is held while its file is removed: a request that waits for it, against all timeouts, would go on with
	// what it then finds.
	state, lock, err := tryLock(root, artifact+lockSuffix, s.folder.swapped)
	if lock != nil {
		defer lock.Close()
	}
	switch {
	case state == lockBusy:
		report.Held++
		return nil
	case err != nil && !errors.Is(err, errNotRegular): // a link or a FIFO locks nothing
		return err
	}
	return errors.Join(s.remove(root, artifact, report), s.remove(root, artifact+lockSuffix, report))
}

// remove removes one name: a file, a link itself, or an empty directory. What is in a directory is nobody's artifact.
func (s *sweeper) remove(root *os.Root, name string, report *SweepReport) error {
	err := root.Remove(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("removing: %w", bare(err))
	}
	report.Removed++
	return nil
}

// nameKind is what a name in the folder says of its file.
type nameKind int

const (
	nameOther   nameKind = iota // not vLLM's: never touched
	nameForeign                 // an artifact or a lock that no Pointsman asked for
	nameOwned                   // vLLM made it for a Pointsman, whatever its extension
)

func kindOf(name string) nameKind {
	switch {
	case strings.HasPrefix(name, ownedPrefix):
		return nameOwned
	case strings.HasSuffix(strings.TrimSuffix(name, lockSuffix), artifactSuffix):
		return nameForeign
	default:
		return nameOther
	}
}

// eachName calls visit with every name in the folder.
func eachName(ctx context.Context, root *os.Root, visit func(name string)) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	for ctx.Err() == nil {
		names, err := dir.Readdirnames(sweepBatch)
		for _, name := range names {
			visit(name)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
