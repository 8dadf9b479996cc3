package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// mostOutstanding is how many bytes of artifacts may be outstanding when the configuration does not say and the file
// system has room enough: four of the largest that are accepted by default.
const mostOutstanding = 32 << 30

// fileSystem is where a folder is.
type fileSystem struct {
	device uint64
	size   int64 // in bytes, used or not; 0: not known
}

// fileSystemOf finds the file system of dir, or of the folder that dir would be made in.
func fileSystemOf(dir string) fileSystem {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fileSystem{}
	}
	for {
		info, err := os.Stat(dir)
		parent := filepath.Dir(dir)
		if errors.Is(err, fs.ErrNotExist) && parent != dir {
			dir = parent
			continue
		}
		var space syscall.Statfs_t
		if err != nil || syscall.Statfs(dir, &space) != nil {
			return fileSystem{}
		}
		found := fileSystem{size: int64(space.Blocks) * int64(space.Bsize)} //nolint:unconvert // Bsize is narrower on other systems
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			found.device = uint64(stat.Dev) //nolint:unconvert // and so is Dev
		}
		return found
	}
}

// outstandingFor is how many bytes of artifacts may be in an endpoint's folder when the configuration does not say: half
// of what its file system holds, divided among those of the endpoints whose folders are there. The other half is for
// what the estimates miss, and for files that wait to be swept after a crash.
func outstandingFor(e Endpoint, all []Endpoint) int64 {
	where := fileSystemOf(e.HiddenStatesDir)
	if where.size <= 0 {
		return mostOutstanding
	}
	var sharers int64
	for _, other := range all {
		if fileSystemOf(other.HiddenStatesDir).device == where.device {
			sharers++
		}
	}
	return max(1, min(mostOutstanding, where.size/2/max(1, sharers)))
}

// space compares the folder's file system, and its owner, with what the probe needs.
func (f *folder) space(outstanding int64) []string {
	info, err := os.Stat(f.dir)
	if err != nil {
		return nil // Warnings has it
	}
	var warnings []string
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() != 0 && int(stat.Uid) != os.Geteuid() && info.Mode().Perm()&0o020 == 0 {
		warnings = append(warnings, fmt.Sprintf("hidden_states_dir: belongs to user %d and is closed to the group; this process is user %d and cannot "+
			"remove what vLLM writes", stat.Uid, os.Geteuid()))
	}
	if size := fileSystemOf(f.dir).size; size > 0 && outstanding > size/2 {
		warnings = append(warnings, fmt.Sprintf("hidden_states_dir: its file system holds %d MiB, and max_outstanding_bytes is %d MiB: a full folder can "+
			"stop vLLM; set max_outstanding_bytes to half of what it holds, or leave it out", size>>20, outstanding>>20))
	}
	return warnings
}
