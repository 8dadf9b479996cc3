package probe

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

const artifactName = "chatcmpl-pm-0-1.safetensors"

func testFolder(t *testing.T) *folder {
	t.Helper()
	dir := t.TempDir()
	return &folder{dir: dir, reported: dir, maxBytes: math.MaxInt64, pause: pollFirst}
}

// holdLock makes a lock file and holds it exclusively, as vLLM's writer does; the returned function lets it go. The file gets
// its name when it is locked: a reader that looks in between would hold it.
func holdLock(t *testing.T, path string) (release func()) {
	t.Helper()
	lock := flock.New(path+".unnamed", flock.SetFlag(os.O_CREATE|os.O_WRONLY))
	if ok, err := lock.TryLock(); err != nil || !ok {
		t.Errorf("lock: %v, %v", ok, err)
	}
	if err := os.Rename(path+".unnamed", path); err != nil {
		t.Error(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	return func() { _ = lock.Close() }
}

func TestResolve(t *testing.T) {
	f := &folder{dir: "/srv/states", reported: "/dev/shm/hs"}
	tests := []struct{ path, want string }{
		{"/dev/shm/hs/a.safetensors", "a.safetensors"},
		{"/dev/shm//hs/./a.safetensors", "a.safetensors"},
		{"a.safetensors", "a.safetensors"},
		{"./a.safetensors", "a.safetensors"},

		{"", ""},
		{".", ""},
		{"/", ""},
		{"/dev/shm/hs", ""},
		{"/dev/shm/hs/", ""},
		{"/dev/shm/hs/.safetensors", ""},
		{"/dev/shm/hs/a.bin", ""},
		{"/dev/shm/hs/a.safetensors.lock", ""},
		{"/dev/shm/hs/a.safetensors\x00", ""},
		{"/dev/shm/hs/\x00a.safetensors", ""},
		{"/dev/shm/hs/sub/a.safetensors", ""},
		{"sub/a.safetensors", ""},
		{"/dev/shm/a.safetensors", ""},
		{"/dev/shm/hs2/a.safetensors", ""},
		{"/srv/states/a.safetensors", ""}, // our own name for it is not the one vLLM reports
		{"/etc/passwd", ""},
		{"../a.safetensors", ""},
		{"/dev/shm/hs/../a.safetensors", ""},
		{"/dev/shm/hs/../hs/a.safetensors", ""},
		{"/dev/shm/hs/..", ""},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.path, "/", "|"), func(t *testing.T) {
			got, err := f.resolve(tt.path)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("resolve = %q, %v; want %q", got, err, tt.want)
			}
			if err != nil && len(tt.path) > 3 && strings.Contains(err.Error(), tt.path) {
				t.Errorf("error repeats the path: %v", err)
			}
		})
	}
}

// TestLookRefuses: nothing but a regular file in the folder is opened, for the artifact and for its lock.
func TestLookRefuses(t *testing.T) {
	makers := map[string]func(t *testing.T, path string){
		"directory": func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"FIFO": func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Skip(err)
			}
		},
		"link to a file outside": func(t *testing.T, path string) {
			target := filepath.Join(t.TempDir(), "x")
			writeFile(t, target, twoTokens())
			if err := os.Symlink(target, path); err != nil {
				t.Skip(err)
			}
		},
		"link to a file inside": func(t *testing.T, path string) {
			writeFile(t, filepath.Join(filepath.Dir(path), "inside"), twoTokens())
			if err := os.Symlink("inside", path); err != nil {
				t.Skip(err)
			}
		},
		"dangling link": func(t *testing.T, path string) {
			if err := os.Symlink("nothing", path); err != nil {
				t.Skip(err)
			}
		},
	}
	for kind, create := range makers {
		t.Run("artifact is a "+kind, func(t *testing.T) {
			f := testFolder(t)
			create(t, filepath.Join(f.dir, artifactName))
			c, err := f.look(artifactName)
			defer c.close()
			if !errors.Is(err, errNotRegular) {
				t.Errorf("error %v, want errNotRegular", err)
			}
			gone, _ := c.remove()
			if want := kind != "directory"; gone != want {
				t.Errorf("removed: %v, want %v", gone, want)
			}
		})
		t.Run("lock is a "+kind, func(t *testing.T) {
			f := testFolder(t)
			writeFile(t, filepath.Join(f.dir, artifactName), twoTokens())
			create(t, filepath.Join(f.dir, artifactName+lockSuffix))
			c, err := f.look(artifactName)
			defer c.close()
			if !errors.Is(err, errNotRegular) || c.lock != lockUnknown {
				t.Errorf("error %v, lock %v; want errNotRegular, lockUnknown", err, c.lock)
			}
			if gone, _ := c.remove(); gone {
				t.Error("removed under a lock that could not be understood")
			}
		})
	}
}

// TestLookSwapped: whatever takes the name's place between check and opening is not read.
func TestLookSwapped(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.safetensors")
	writeFile(t, outside, twoTokens())
	swaps := map[string]func(path string) error{
		"another file":      func(path string) error { return os.WriteFile(path, twoTokens(), 0o600) },
		"link outside":      func(path string) error { return os.Symlink(outside, path) },
		"link inside":       func(path string) error { return os.Symlink("kept", path) },
		"FIFO":              func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory":         func(path string) error { return os.Mkdir(path, 0o700) },
		"nothing":           func(string) error { return nil },
		"link to the first": func(path string) error { return os.Symlink("kept-first", path) },
	}
	for kind, swap := range swaps {
		for _, victim := range []string{artifactName, artifactName + lockSuffix} {
			t.Run(kind+" for "+victim, func(t *testing.T) {
				f := testFolder(t)
				writeFile(t, filepath.Join(f.dir, artifactName), twoTokens())
				writeFile(t, filepath.Join(f.dir, artifactName+lockSuffix), nil)
				writeFile(t, filepath.Join(f.dir, "kept"), twoTokens())
				f.swapped = func(name string) {
					if name != victim {
						return
					}
					path := filepath.Join(f.dir, name)
					// The first file lives on under another name, so that its inode is not used again.
					if err := os.Rename(path, filepath.Join(f.dir, "kept-first")); err != nil {
						t.Error(err)
					}
					if err := swap(path); err != nil {
						t.Error(err)
					}
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					c, err := f.look(artifactName)
					defer c.close()
					// A link to the very file that was checked leads to no other file; a lock that went is no lock.
					harmless := kind == "link to the first" || kind == "nothing" && victim != artifactName
					if err == nil && !harmless {
						t.Error("read")
					}
				}()
				select {
				case <-done:
				case <-time.After(5 * time.Second):
					t.Fatal("opening blocked")
				}
				if _, err := os.Stat(outside); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestLookHardLinkIsAFile(t *testing.T) {
	f := testFolder(t)
	outside := filepath.Join(t.TempDir(), "outside")
	writeFile(t, outside, twoTokens())
	if err := os.Link(outside, filepath.Join(f.dir, artifactName)); err != nil {
		t.Skip(err)
	}
	c, err := f.look(artifactName)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if gone, err := c.remove(); !gone {
		t.Error(err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("the other name is gone too: %v", err)
	}
}

// awaitResult runs await with a timeout.
func awaitResult(t *testing.T, f *folder, timeout time.Duration) (*claim, error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errArtifactTime)
	defer cancel()
	c, err := f.await(ctx, artifactName)
	t.Cleanup(c.close)
	return c, err
}

func TestAwait(t *testing.T) {
	const soon, long = 30 * time.Millisecond, 20 * time.Second
	const promptly = long / 2 // far from long, whatever else the machine does
	whole := twoTokens()
	tests := []struct {
		name    string
		timeout time.Duration
		// start prepares the folder; what it returns runs a little later, while await waits.
		start    func(t *testing.T, path string) func()
		lock     lockState
		want     error // nil: a whole file
		atLeast  time.Duration
		atMost   time.Duration
		leftOver bool // the files are not ours to remove
	}{
		{"no lock, whole file", long, func(t *testing.T, path string) func() {
			writeFile(t, path, whole)
			return nil
		}, lockNone, nil, 0, promptly, false},
		{"no lock, file later", long, func(t *testing.T, path string) func() {
			return func() { writeFile(t, path, whole) }
		}, lockNone, nil, soon, promptly, false},
		{"no lock, file completed later", long, func(t *testing.T, path string) func() {
			writeFile(t, path, whole[:len(whole)-3])
			return func() { writeFile(t, path, whole) }
		}, lockNone, nil, soon, promptly, false},
		{
			"no lock, no file", soon, func(*testing.T, string) func() { return nil },
			lockNone, errNotYet, soon, promptly, false,
		},
		{"no lock, file never whole", soon, func(t *testing.T, path string) func() {
			writeFile(t, path, whole[:20])
			return nil
		}, lockNone, errIncomplete, soon, promptly, false},
		{"no lock, malformed file is not waited for", long, func(t *testing.T, path string) func() {
			writeFile(t, path, []byte("\x02\x00\x00\x00\x00\x00\x00\x00[]"))
			return nil
		}, lockNone, errAny, 0, promptly, false},
		{"lock held, then released with the file", long, func(t *testing.T, path string) func() {
			release := holdLock(t, path+lockSuffix)
			return func() { writeFile(t, path, whole); release() }
		}, lockHeld, nil, soon, promptly, false},
		{"whole file but lock held", soon, func(t *testing.T, path string) func() {
			writeFile(t, path, whole)
			holdLock(t, path+lockSuffix)
			return nil
		}, lockBusy, ErrTimeout, soon, promptly, true},
		{"lock free, no file", long, func(t *testing.T, path string) func() {
			writeFile(t, path+lockSuffix, nil)
			return nil
		}, lockHeld, errNotYet, lockFreeGrace, promptly, false},
		{"lock free, truncated file", long, func(t *testing.T, path string) func() {
			writeFile(t, path+lockSuffix, nil)
			writeFile(t, path, whole[:len(whole)-1])
			return nil
		}, lockHeld, errIncomplete, lockFreeGrace, promptly, false},
		{"lock free, file shows late", long, func(t *testing.T, path string) func() {
			writeFile(t, path+lockSuffix, nil)
			return func() { writeFile(t, path, whole) }
		}, lockHeld, nil, soon, promptly, false},
		{"lock appears after the first look", long, func(t *testing.T, path string) func() {
			return func() {
				release := holdLock(t, path+lockSuffix)
				writeFile(t, path, whole)
				release()
			}
		}, lockHeld, nil, soon, promptly, false},
		{"folder is made later", long, func(t *testing.T, path string) func() {
			if err := os.Remove(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
					t.Error(err)
				}
				writeFile(t, path, whole)
			}
		}, lockNone, nil, soon, promptly, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := testFolder(t)
			path := filepath.Join(f.dir, artifactName)
			if later := tt.start(t, path); later != nil {
				timer := time.AfterFunc(soon, later)
				defer timer.Stop()
			}
			begin := time.Now()
			c, err := awaitResult(t, f, tt.timeout)
			took := time.Since(begin)
			switch {
			case tt.want == errAny && err != nil:
			case !errors.Is(err, tt.want):
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if c.lock != tt.lock {
				t.Errorf("lock state %v, want %v", c.lock, tt.lock)
			}
			if took < tt.atLeast || took > tt.atMost {
				t.Errorf("took %v, want %v to %v", took, tt.atLeast, tt.atMost)
			}
			gone, removeErr := c.remove()
			if gone == tt.leftOver || removeErr != nil {
				t.Errorf("removed: %v, %v", gone, removeErr)
			}
			if left := len(names(t, f.dir)); (left > 0) != tt.leftOver {
				t.Errorf("%d names left", left)
			}
		})
	}
}

// errAny stands for an error without a sentinel.
var errAny = errors.New("any")

// TestTryLockCreatesNothing: a lock that is not there stays not there, and two readers share one that is.
func TestTryLock(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if state, _, err := tryLock(root, "x.lock", nil); state != lockNone || err != nil {
		t.Errorf("no lock: %v, %v", state, err)
	}
	wantNames(t, dir)
	// vLLM's locks are not writable to other users.
	if err := os.WriteFile(filepath.Join(dir, "x.lock"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		state, lock, err := tryLock(root, "x.lock", nil)
		if state != lockHeld || err != nil {
			t.Fatalf("free lock: %v, %v", state, err)
		}
		defer lock.Close()
	}
	writer := flock.New(filepath.Join(dir, "x.lock"), flock.SetFlag(os.O_RDONLY))
	if ok, err := writer.TryLock(); ok || err != nil {
		t.Errorf("a writer got the lock that readers hold: %v, %v", ok, err)
	}
}
