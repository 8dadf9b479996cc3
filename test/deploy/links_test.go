package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinks: every relative link of the documents leads to a file that is there, and
// to a heading that is in it.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, document := range []string{"README.md", "deploy/README.md", "deploy/configuration.md", "CHANGELOG.md"} {
		found := 0
		for _, m := range link.FindAllStringSubmatch(withoutBlocks(read(t, document)), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			found++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := document
			if path != "" {
				target = filepath.Join(filepath.Dir(document), path)
			}
			info, err := os.Stat(filepath.Join(repoRoot, target))
			if err != nil {
				t.Errorf("%s links to %s, which is not there", document, m[1])
				continue
			}
			if anchor != "" && (info.IsDir() || !anchors(read(t, target))[anchor]) {
				t.Errorf("%s links to %s: no such heading", document, m[1])
			}
		}
		if document == "README.md" && found < 10 {
			t.Errorf("%s has only %d relative links: does this test still see them?", document, found)
		}
	}
}

func withoutBlocks(markdown string) string {
	return regexp.MustCompile("(?s)```.*?```").ReplaceAllString(markdown, "")
}

// anchors are the headings as GitHub names them: lower case, dashes for spaces, and
// only letters, digits, dashes and underscores.
func anchors(markdown string) map[string]bool {
	found := map[string]bool{}
	drop := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for line := range strings.Lines(withoutBlocks(markdown)) {
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			text := drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			found[strings.ReplaceAll(text, " ", "-")] = true
		}
	}
	return found
}
