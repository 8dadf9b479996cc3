package test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// repoRoot is the repository, seen from this package.
const repoRoot = ".."

// TestStubsAreGenerated checks the client packages of other languages without
// their tools: each was sealed with the digests of what it was generated from and
// of what came out, and neither may have changed since.
func TestStubsAreGenerated(t *testing.T) {
	for _, language := range []string{"python", "typescript", "java"} {
		t.Run(language, func(t *testing.T) {
			for _, problem := range unsealed(t, repoRoot, language) {
				t.Errorf("%s; run make generate and commit gen/", problem)
			}
		})
	}
}

// TestStubsCheckCatchesEdits shows that the check above can fail.
func TestStubsCheckCatchesEdits(t *testing.T) {
	copied := func(t *testing.T) string {
		dir := t.TempDir()
		for _, part := range []string{"proto", "gen/python"} {
			if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(repoRoot, part))); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range []string{"LICENSE", "gen/python.sha256"} {
			data, err := os.ReadFile(filepath.Join(repoRoot, file))
			if err != nil {
				t.Fatal(err)
			}
			writeText(t, filepath.Join(dir, file), string(data))
		}
		return dir
	}
	tests := []struct {
		name, want string
		spoil      func(t *testing.T, dir string)
	}{
		{"nothing", "", func(*testing.T, string) {}},
		{"a proto file changed", "proto/pointsman/v1/decision.proto has changed", func(t *testing.T, dir string) {
			writeText(t, filepath.Join(dir, "proto/pointsman/v1/decision.proto"), "")
		}},
		{"a proto file came", "proto/pointsman/v1/new.proto is new", func(t *testing.T, dir string) {
			writeText(t, filepath.Join(dir, "proto/pointsman/v1/new.proto"), "")
		}},
		{"a stub was edited", "gen/python/pointsman/v1/decision_pb2.py has changed", func(t *testing.T, dir string) {
			writeText(t, filepath.Join(dir, "gen/python/pointsman/v1/decision_pb2.py"), "")
		}},
		{"a stub went", "gen/python/pointsman/v1/decision_pb2.py is missing", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "gen/python/pointsman/v1/decision_pb2.py")); err != nil {
				t.Fatal(err)
			}
		}},
		{"something was added by hand", "gen/python/pointsman/extra.py is new", func(t *testing.T, dir string) {
			writeText(t, filepath.Join(dir, "gen/python/pointsman/extra.py"), "")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := copied(t)
			tt.spoil(t, dir)
			if got := strings.Join(unsealed(t, dir, "python"), "; "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// unsealed compares a language's sealed digests with the files below dir.
func unsealed(t *testing.T, dir, language string) []string {
	t.Helper()
	seal, err := os.ReadFile(filepath.Join(dir, "gen", language+".sha256"))
	if err != nil {
		t.Fatal(err)
	}
	var problems []string
	known := map[string]bool{}
	for line := range strings.Lines(string(seal)) {
		digest, path, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			t.Fatalf("not a line of sha256sum: %q", line)
		}
		known[path] = true
		data, err := os.ReadFile(filepath.Join(dir, path))
		sum := sha256.Sum256(data)
		switch {
		case os.IsNotExist(err):
			problems = append(problems, path+" is missing")
		case err != nil:
			t.Fatal(err)
		case hex.EncodeToString(sum[:]) != digest:
			problems = append(problems, path+" has changed")
		}
	}
	for _, folder := range []string{"proto/pointsman/v1", "proto/stubs/" + language, "gen/" + language} {
		err := filepath.WalkDir(filepath.Join(dir, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() {
				// What building a package in place leaves behind is not committed.
				if slices.Contains([]string{"__pycache__", "node_modules", "target", "dist"}, entry.Name()) {
					return filepath.SkipDir
				}
				return nil
			}
			if rel, err := filepath.Rel(dir, path); err != nil {
				return err
			} else if rel = filepath.ToSlash(rel); !known[rel] {
				problems = append(problems, rel+" is new")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return problems
}

// TestGoStubsAreLight keeps what a gateway links small: the stubs are a package of
// the product's module, and module graph pruning leaves the rest of it out of a
// gateway's build, as long as the stubs import nothing but gRPC and protobuf.
func TestGoStubsAreLight(t *testing.T) {
	allowed := []string{
		"github.com/pointsman-dev/pointsman/gen/go/", "google.golang.org/grpc", "google.golang.org/protobuf/", "google.golang.org/genproto/googleapis/rpc/",
		"golang.org/x/net/", "golang.org/x/sys/", "golang.org/x/text/",
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module+"gen/go/pointsman/v1")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 10 {
		t.Fatalf("go list found only %v", packages)
	}
	for _, pkg := range packages {
		if !slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(pkg, prefix) }) {
			t.Errorf("the stubs pull in %s", pkg)
		}
	}
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
