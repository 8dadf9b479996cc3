package probe

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// watchedFolder looks once, and then only when its watch wakes it.
func watchedFolder(t *testing.T) *folder {
	t.Helper()
	f := testFolder(t)
	f.pause = time.Hour
	var err error
	if f.watch, err = newWatch(f.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.watch.close)
	return f
}

// awaitWatched has the artifact awaited while write makes it, and fails if the wait was not woken.
func awaitWatched(t *testing.T, f *folder, write func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		c, err := f.await(ctx, artifactName)
		c.close()
		done <- err
	}()
	for f.watch.waits() == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(5 * time.Millisecond) // it has looked by then, most likely; if not, its first look finds the artifact
	write()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := f.watch.waits(); n != 0 {
		t.Errorf("%d names are still waited for", n)
	}
}

func (w *watch) waits() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting)
}

func writeWhole(t *testing.T, dir string) {
	t.Helper()
	data := encode(map[string]entry{"hidden_states": {dtype: "F32", shape: []int{1, 1, 2}, data: make([]byte, 8)}})
	if err := os.WriteFile(filepath.Join(dir, artifactName), data, 0o600); err != nil {
		t.Error(err)
	}
}

func TestTheWatchTellsOfAFile(t *testing.T) {
	f := watchedFolder(t)
	awaitWatched(t, f, func() { writeWhole(t, f.dir) })
}

func TestTheWatchTellsOfAFreeLock(t *testing.T) {
	f := watchedFolder(t)
	writeWhole(t, f.dir)
	release := holdLock(t, filepath.Join(f.dir, artifactName+lockSuffix))
	awaitWatched(t, f, release)
}

func TestTheWatchFollowsAFolderThatWasMadeAgain(t *testing.T) {
	f := watchedFolder(t)
	awaitWatched(t, f, func() { writeWhole(t, f.dir) })
	if err := os.RemoveAll(f.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	awaitWatched(t, f, func() { writeWhole(t, f.dir) })
}

// A watch that has told of an artifact is trusted with the next one; that one is looked for all the same, and
// if it was not told of, the next is looked for as often as at first.
func TestTrustInTheWatchLastsWhileItTells(t *testing.T) {
	f := watchedFolder(t)
	if f.watch.trusted() {
		t.Error("a watch that has told of nothing is trusted")
	}
	awaitWatched(t, f, func() { writeWhole(t, f.dir) })
	if !f.watch.trusted() {
		t.Fatal("a watch that has told of an artifact is not trusted")
	}
	if err := os.Remove(filepath.Join(f.dir, artifactName)); err != nil {
		t.Fatal(err)
	}

	// Names that are moved into the folder are not told of.
	elsewhere := t.TempDir()
	writeWhole(t, elsewhere)
	if err := os.WriteFile(filepath.Join(elsewhere, artifactName+lockSuffix), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	move := func(name string) {
		if err := os.Rename(filepath.Join(elsewhere, name), filepath.Join(f.dir, name)); err != nil {
			t.Error(err)
		}
	}
	move(artifactName + lockSuffix)
	looks := 0
	f.swapped = func(name string) {
		if name != artifactName+lockSuffix {
			return
		}
		if looks++; looks == 2 {
			move(artifactName)
		}
	}
	awaitWatched(t, f, func() {})
	if looks != 2 {
		t.Errorf("%d looks", looks)
	}
	if f.watch.trusted() {
		t.Error("a watch that has missed an artifact is trusted")
	}
}
