//go:build !linux

package probe

import (
	"os"
	"path/filepath"
	"syscall"
)

// lockOpenFlags keeps a link that took the lock's place from being followed.
const lockOpenFlags = syscall.O_NOFOLLOW

// lockPath is the plain path; tryLock compares what it leads to with the file it checked.
func lockPath(root *os.Root, name string, _ *os.File) string {
	return filepath.Join(root.Name(), name)
}
