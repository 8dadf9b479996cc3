package train

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// fullDisk names the folder that a child of the test may write little to.
const fullDisk = "POINTSMAN_TEST_FULL_DISK"

// A disk that is full, played by a limit on the size of files in a process of its
// own, leaves an error and nothing else.
func TestFullDiskLeavesNothing(t *testing.T) {
	if parent := os.Getenv(fullDisk); parent != "" {
		saveWithin(t, parent, 2000)
		return
	}
	parent := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDiskLeavesNothing$", "-test.count=1")
	cmd.Env = append(os.Environ(), fullDisk+"="+parent)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func saveWithin(t *testing.T, parent string, limit uint64) {
	result := trainQuick(t.Context(), t, quick(), Options{})
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
	if err := result.Save(filepath.Join(parent, "router")); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("save: %v", err)
	}
}
