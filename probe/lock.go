package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/gofrs/flock"
)

// lockSuffix is what vLLM adds to an artifact's name to name its lock.
const lockSuffix = ".lock"

// lockState is what a look at a lock found.
type lockState int

const (
	lockUnknown lockState = iota // not looked at, or not a lock that can be used
	lockNone                     // there is none: an old vLLM, or use_synchronization_lock=false
	lockBusy                     // vLLM holds it: it has not finished writing
	lockHeld                     // we hold it, shared: vLLM has finished
)

// tryLock takes a shared lock on the lock file of that name without waiting. It never creates one. With lockHeld comes
// the lock, which the caller has to release.
//
// A read-only descriptor and a shared lock are all that vLLM's lock files allow to another user: they are created with
// mode 0644.
func tryLock(root *os.Root, name string, swapped func(string)) (lockState, *flock.Flock, error) {
	file, info, err := openRegular(root, name, swapped)
	if errors.Is(err, fs.ErrNotExist) {
		return lockNone, nil, nil
	}
	if err != nil {
		return lockUnknown, nil, fmt.Errorf("lock: %w", bare(err))
	}
	defer file.Close()

	// flock opens by path. The path below leads to the file that was just opened and checked, not to whatever has the
	// name by now; where there is no such path, the descriptors are compared.
	lock := flock.New(lockPath(root, name, file), flock.SetFlag(os.O_RDONLY|syscall.O_NONBLOCK|lockOpenFlags))
	free, err := lock.TryRLock()
	if err != nil {
		return lockUnknown, nil, fmt.Errorf("lock: %w", bare(err))
	}
	if !free {
		return lockBusy, nil, nil
	}
	if locked, err := lock.Stat(); err != nil || !os.SameFile(info, locked) {
		return lockUnknown, nil, errors.Join(errors.New("lock: replaced while it was opened"), lock.Close())
	}
	return lockHeld, lock, nil
}
