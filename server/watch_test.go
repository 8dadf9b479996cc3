package server

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pointsman-dev/pointsman/server/config"
)

func TestFoldersFollowLinks(t *testing.T) {
	root := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(root, "v1"), 0o700))
	must(os.MkdirAll(filepath.Join(root, "links"), 0o700))
	must(os.Symlink(filepath.Join(root, "v1"), filepath.Join(root, "links", "router")))
	got := folders([]string{filepath.Join(root, "links", "router", "router.json")})
	for _, want := range []string{filepath.Join(root, "links", "router"), filepath.Join(root, "links")} {
		if !slices.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if slices.Contains(got, root) {
		t.Errorf("%q: nothing is linked in the folder above", got)
	}
}

// TestFingerprintSeesWhatKubernetesDoes: the file's own name never changes, a link
// beside it does.
func TestFingerprintSeesWhatKubernetesDoes(t *testing.T) {
	root := t.TempDir()
	write := func(dir string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, "tokens"), []byte("same"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		_ = os.Remove(filepath.Join(root, "new"))
		if err := os.Symlink(to, filepath.Join(root, "new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(root, "new"), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	write("..1")
	write("..2")
	link("..1", "..data")
	link("..data/tokens", "tokens")
	files := []string{filepath.Join(root, "tokens")}
	before := fingerprint(files)
	if again := fingerprint(files); again != before {
		t.Errorf("it changes by itself: %q, %q", before, again)
	}
	link("..2", "..data")
	if fingerprint(files) == before {
		t.Error("the swap was not seen")
	}
	if err := os.Remove(filepath.Join(root, "..2", "tokens")); err != nil {
		t.Fatal(err)
	}
	if got := fingerprint(files); got != files[0]+" missing\n" {
		t.Errorf("%q", got)
	}
}

// TestABackupsCheckpointIsWatchedToo keeps the list of files in step with what a
// reload reads.
func TestABackupsCheckpointIsWatchedToo(t *testing.T) {
	r := &reloader{path: "pointsman.yaml"}
	files := r.files(&config.Config{Routes: map[string]config.Route{
		"main": {Checkpoint: "first", Backup: &config.Backup{Checkpoint: "second"}},
	}})
	for _, dir := range []string{"first", "second"} {
		for _, name := range []string{"router.json", "router.safetensors"} {
			if !slices.Contains(files, filepath.Join(dir, name)) {
				t.Errorf("%s in %s is not watched: %q", name, dir, files)
			}
		}
	}
}
