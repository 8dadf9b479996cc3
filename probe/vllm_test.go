package probe

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestExtract(t *testing.T) {
	var id string
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		id = r.Header.Get("X-Request-Id")
		writeFile(t, f.path(r)+lockSuffix, nil)
		serveFile(twoTokens(), 101, 102)(w, r, f)
	})
	v := newProbe(t, f.config())
	if got := v.Status(); got.State != StateReady || got.Capacity != 32 || got.Typical != 0 {
		t.Errorf("status before: %+v", got)
	}
	got, err := v.Extract(t.Context(), Request{Task: secretTask, Shape: Shape{2, 2}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Values, twoTokenMeans) || got.Tokens != 2 || got.Shape != (Shape{2, 2}) {
		t.Errorf("features %+v", got.Features)
	}
	if got.HTTP <= 0 || got.Artifact <= 0 {
		t.Errorf("times %v, %v", got.HTTP, got.Artifact)
	}
	if !requestIDForm.MatchString(id) {
		t.Errorf("request id %q", id)
	}
	wantNames(t, f.dir)
	if got := v.Status(); got.State != StateReady || got.Typical <= 0 || got.LastSuccess.IsZero() || got.InFlight != 0 {
		t.Errorf("status after: %+v", got)
	}
}

// TestExtractReportedDir: vLLM sees the folder under another path.
func TestExtractReportedDir(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		path := f.path(r)
		writeFile(t, path, twoTokens())
		reply(w, filepath.Join("/dev/shm/hs", filepath.Base(path)))
	})
	cfg := f.config()
	cfg.Endpoint.ReportedDir = "/dev/shm/hs/"
	if _, err := newProbe(t, cfg).Extract(t.Context(), Request{}); err != nil {
		t.Fatal(err)
	}
	wantNames(t, f.dir)
}

// TestExtractBadArtifacts: every bad file is refused and gone, with and without a lock.
func TestExtractBadArtifacts(t *testing.T) {
	files, err := filepath.Glob("testdata/bad_artifacts/*.safetensors")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, locked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/lock=%v", filepath.Base(file), locked), func(t *testing.T) {
				t.Parallel()
				f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
					if locked {
						writeFile(t, f.path(r)+lockSuffix, nil)
					}
					serveFile(content)(w, r, f)
				})
				v := newProbe(t, f.config())
				_, err := v.Extract(t.Context(), Request{Task: secretTask, Shape: Shape{2, 8}})
				checkError(t, err, ErrArtifact, "")
				if err != nil && strings.Contains(err.Error(), "chatcmpl") {
					t.Errorf("error %q holds the file's name", err)
				}
				wantNames(t, f.dir)
				if s := v.Status(); s.State != StateDegraded || s.LastError != err.Error() {
					t.Errorf("status %+v", s)
				}
			})
		}
	}
}

// TestExtractLeavesOthersAlone: paths that are not an artifact in the folder are refused, and nothing is touched.
func TestExtractLeavesOthersAlone(t *testing.T) {
	outside := t.TempDir()
	for _, path := range []string{
		filepath.Join(outside, "x.safetensors"), "../x.safetensors", "DIR/../x.safetensors", "DIR/x.bin", "DIR/sub/x.safetensors", "sub/x.safetensors", "/",
	} {
		t.Run(path, func(t *testing.T) {
			f := newFake(t, func(w http.ResponseWriter, _ *http.Request, f *fakeVLLM) {
				reply(w, strings.Replace(path, "DIR", f.dir, 1))
			})
			if err := os.Mkdir(filepath.Join(f.dir, "sub"), 0o700); err != nil {
				t.Fatal(err)
			}
			kept := []string{
				filepath.Join(outside, "x.safetensors"), filepath.Join(filepath.Dir(f.dir), "x.safetensors"),
				filepath.Join(f.dir, "x.bin"), filepath.Join(f.dir, "x.safetensors"), filepath.Join(f.dir, "sub/x.safetensors"),
			}
			for _, file := range kept {
				writeFile(t, file, twoTokens())
				writeFile(t, file+lockSuffix, nil)
			}
			_, err := newProbe(t, f.config()).Extract(t.Context(), Request{Task: secretTask})
			checkError(t, err, ErrArtifact, "path")
			for _, file := range kept {
				for _, name := range []string{file, file + lockSuffix} {
					if _, err := os.Stat(name); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// TestExtractDirectoryIsLeft: a directory with an artifact's name is nobody's artifact.
func TestExtractDirectoryIsLeft(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request, _ *fakeVLLM) { reply(w, "x.safetensors") })
	if err := os.Mkdir(filepath.Join(f.dir, "x.safetensors"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := newProbe(t, f.config()).Extract(t.Context(), Request{})
	checkError(t, err, ErrArtifact, "not a regular file")
	wantNames(t, f.dir, "x.safetensors")
}

func TestExtractLockHeldThenReleased(t *testing.T) {
	var writer sync.WaitGroup
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		path := f.path(r)
		release := holdLock(t, path+lockSuffix)
		writer.Add(1)
		time.AfterFunc(20*time.Millisecond, func() {
			defer writer.Done()
			writeFile(t, path, twoTokens())
			release()
		})
		reply(w, path)
	})
	defer writer.Wait()
	cfg := f.config()
	cfg.ArtifactTimeout = 5 * time.Second
	if _, err := newProbe(t, cfg).Extract(t.Context(), Request{}); err != nil {
		t.Fatal(err)
	}
	wantNames(t, f.dir)
}

func TestExtractLockNeverReleased(t *testing.T) {
	var path string
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, f *fakeVLLM) {
		path = f.path(r)
		holdLock(t, path+lockSuffix)
		serveFile(twoTokens())(w, r, f)
	})
	cfg := f.config()
	cfg.Breaker.Failures = 1
	v := newProbe(t, cfg)
	_, err := v.Extract(t.Context(), Request{Task: secretTask})
	checkError(t, err, ErrTimeout, "lock")
	wantNames(t, f.dir, filepath.Base(path), filepath.Base(path)+lockSuffix)
	if v.Status().State == StateDown {
		t.Error("a slow writer opened the circuit: only HTTP timeouts count")
	}
}
