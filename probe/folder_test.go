package probe

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAFolderThatBecomesALinkIsLeftAlone: vLLM may own its folder, and whoever owns it can put a link in its place. What
// the link leads to is neither read nor removed, by an extraction, the sweep or a check.
func TestAFolderThatBecomesALinkIsLeftAlone(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request, f *fakeVLLM) {
		reply(w, filepath.Join(f.dir, "router.safetensors"))
	})
	cfg := f.config()
	cfg.Sweep.All = true
	v := newProbe(t, cfg)
	elsewhere := t.TempDir()
	precious := filepath.Join(elsewhere, "router.safetensors")
	writeFile(t, precious, twoTokens())
	old := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(precious, old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.dir, f.dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, f.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Extract(t.Context(), Request{Task: "x"}); !errors.Is(err, ErrArtifact) {
		t.Errorf("extraction: %v", err)
	}
	if got, err := v.Check(t.Context(), "x", Shape{}); !errors.Is(err, ErrArtifact) || got.Foreign != 0 {
		t.Errorf("check: %+v, %v", got, err)
	}
	v.sweeper.sweep(t.Context())
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("what is elsewhere: %v", err)
	}
}

// TestAFolderMayBeConfiguredByALink: then it is the operator's.
func TestAFolderMayBeConfiguredByALink(t *testing.T) {
	f := newFake(t, serveFile(twoTokens()))
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(f.dir, link); err != nil {
		t.Fatal(err)
	}
	cfg := f.config()
	cfg.Endpoint.HiddenStatesDir, cfg.Endpoint.ReportedDir = link, f.dir
	if _, err := newProbe(t, cfg).Extract(t.Context(), Request{Task: "x"}); err != nil {
		t.Error(err)
	}
	if left := names(t, f.dir); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}
