package test

import (
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pointsman-dev/pointsman/"

// importRule says, for each top-level folder, which others of ours its packages
// may import. Folders below one of these belong to it.
var importRule = map[string][]string{
	"gen":    {},
	"cache":  {},
	"probe":  {},
	"scorer": {},
	"server": {"cache", "gen", "probe", "scorer"},
	"test":   {"cache", "gen", "probe", "scorer", "server"},
}

// TestImportRule checks every import of the module, those of the packages' own
// tests included.
func TestImportRule(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", module+"...")
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for decoder := json.NewDecoder(out); ; {
		var pkg struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		if err := decoder.Decode(&pkg); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		from := folder(pkg.ImportPath)
		seen[from] = true
		for _, imports := range [][]string{pkg.Imports, pkg.TestImports, pkg.XTestImports} {
			for _, to := range imports {
				if problem := breach(from, to); problem != "" {
					t.Errorf("%s imports %s: %s", pkg.ImportPath, to, problem)
				}
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for name := range importRule {
		if !seen[name] {
			t.Errorf("the rule names %s, which has no package", name)
		}
	}
}

// TestImportRuleCatchesBreaches shows that the check above can fail.
func TestImportRuleCatchesBreaches(t *testing.T) {
	for _, c := range []struct {
		from, to string
		allowed  bool
	}{
		{"probe", module + "scorer", false},
		{"cache", module + "gen/go/pointsman/v1", false},
		{"scorer", module + "server/config", false},
		{"server", module + "probe/vllmsim", true},
		{"probe", module + "probe/vllmsim", true},
		{"probe", "net/http", true},
		{"unknown", module + "cache", false},
	} {
		if got := breach(c.from, c.to) == ""; got != c.allowed {
			t.Errorf("%s importing %s: allowed is %v, want %v", c.from, c.to, got, c.allowed)
		}
	}
}

func folder(importPath string) string {
	top, _, _ := strings.Cut(strings.TrimPrefix(importPath, module), "/")
	return top
}

// breach says why a package in the folder from may not import to, or nothing.
func breach(from, to string) string {
	if !strings.HasPrefix(to, module) {
		return ""
	}
	target := folder(to)
	allowed, known := importRule[from]
	switch {
	case !known:
		return "the import rule does not know the folder " + from
	case target == from:
		return ""
	}
	if slices.Contains(allowed, target) {
		return ""
	}
	return from + " may import only " + strings.Join(allowed, ", ")
}
