package probe

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		writeFile(t, f.path(r)+lockSuffix, nil)
		serveFile(twoTokens(), 101, 102)(w, r, f)
	})
	if err := os.Chmod(f.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(f.dir, "cmpl-1.safetensors"), nil)
	writeFile(t, filepath.Join(f.dir, "keep.txt"), nil)
	v := newProbe(t, f.config())
	got, err := v.Check(t.Context(), "canary", Shape{2, 2})
	if err != nil {
		t.Fatal(err)
	}
	if got.Tokens != 2 || got.Shape != (Shape{2, 2}) || !got.Artifact.Locked || got.Artifact.DType != "F32" || got.Artifact.Left ||
		!got.NamedByRequest || got.Foreign != 1 || got.HTTP <= 0 {
		t.Errorf("report %+v", got)
	}
	if len(got.Warnings) != 2 || !strings.Contains(got.Warnings[0], "mode 0755") || !strings.Contains(got.Warnings[1], "1 artifacts or locks of other") {
		t.Errorf("warnings %q", got.Warnings)
	}
}

func TestCheckFailure(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request, f *fakeVLLM) {
		writeFile(t, filepath.Join(f.dir, "renamed.safetensors"), twoTokens())
		reply(w, "renamed.safetensors")
	})
	v := newProbe(t, f.config())
	got, err := v.Check(t.Context(), "canary", Shape{})
	if err != nil || got.NamedByRequest || len(got.Warnings) == 0 || !strings.Contains(strings.Join(got.Warnings, " "), "X-Request-Id") {
		t.Errorf("report %+v, error %v", got, err)
	}
	if got, err = v.Check(t.Context(), "canary", Shape{3, 3}); !errors.Is(err, ErrArtifact) || got.HTTP <= 0 || got.Artifact.Bytes == 0 {
		t.Errorf("report %+v, error %v", got, err)
	}
}

func TestWarnings(t *testing.T) {
	f := newFake(t, serveFile(nil))
	v := newProbe(t, f.config())
	for mode, want := range map[os.FileMode]int{0o700: 0, 0o770: 0, 0o755: 1, 0o777: 1} {
		if err := os.Chmod(f.dir, mode); err != nil {
			t.Fatal(err)
		}
		if got := v.Warnings(); len(got) != want {
			t.Errorf("mode %#o: %q", mode, got)
		}
	}
	if err := os.Remove(f.dir); err != nil {
		t.Fatal(err)
	}
	if got := v.Warnings(); len(got) != 1 {
		t.Errorf("no folder: %q", got)
	}
	writeFile(t, f.dir, nil)
	if got := v.Warnings(); len(got) != 1 || !strings.Contains(got[0], "not a directory") {
		t.Errorf("a file: %q", got)
	}
}
