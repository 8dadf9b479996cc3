package polyglot

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// demoAddress is where the README's demo listens; the tests put another in its
// place, so that they need no fixed port.
const demoAddress = "127.0.0.1:50051"

// block is a fenced block of the README.
type block struct{ language, text string }

// section returns the fenced blocks below a heading, up to the next heading of the
// same rank or higher.
func section(t *testing.T, heading string) []block {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repoRoot, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rank := len(heading) - len(strings.TrimLeft(heading, "#"))
	var blocks []block
	var inside, fenced bool
	for line := range strings.Lines(string(data)) {
		language, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence:
			fenced = !fenced
			if fenced && inside {
				blocks = append(blocks, block{language: strings.TrimSpace(language)})
			}
		case fenced && inside:
			blocks[len(blocks)-1].text += line
		case fenced:
		case strings.TrimSpace(line) == heading:
			inside = true
		case strings.HasPrefix(line, "#") && len(line)-len(strings.TrimLeft(line, "#")) <= rank:
			inside = false
		}
	}
	if len(blocks) == 0 {
		t.Fatalf("the README has no blocks below %q", heading)
	}
	return blocks
}

// fileName is the comment in a program's first line that names its file.
var fileName = regexp.MustCompile(`^(?://|#|<!--) (\S+\.\w+)(?: -->)?\n`)

// TestReadmeLanguages does what a newcomer does who has one language: runs the
// commands of its section and writes the programs to the files that they name.
func TestReadmeLanguages(t *testing.T) {
	needE2E(t)
	demo := startDemo(t)
	decision := ask(t, demo, easyTask) // which is the task of every section
	for _, tt := range []struct {
		heading string
		need    []string // all that the machine has, besides a shell and its tools
		env     []string
	}{
		{heading: "### Go", need: []string{"go"}},
		{heading: "### Python", need: []string{"python3"}},
		{heading: "### TypeScript", need: []string{"node", "npm"}},
		{heading: "### Java", need: []string{"mvn", "java", "javac"}, env: mavenEnv(t)},
	} {
		t.Run(strings.TrimPrefix(tt.heading, "### "), func(t *testing.T) {
			for _, program := range tt.need {
				need(t, program, "this section is for people who have it")
			}
			dir := checkout(t)
			env := append([]string{"PATH=" + pathWithout(t, tt.need) + ":" + os.Getenv("PATH")}, tt.env...)
			var out string
			for _, b := range section(t, tt.heading) {
				text := strings.ReplaceAll(b.text, demoAddress, demo)
				if b.language == "sh" {
					out = run(t, dir, env, "bash", "-euc", text)
					continue
				}
				name := fileName.FindStringSubmatch(text)
				if name == nil {
					t.Fatalf("a %s block does not name its file in its first line", b.language)
				}
				if err := os.WriteFile(filepath.Join(dir, name[1]), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if want := decision.GetTarget() + " " + decision.GetModel(); !strings.Contains(out, want) || !strings.Contains(out, "LEARNED") {
				t.Errorf("the last command printed %q, want %q and LEARNED", out, want)
			}
		})
	}
}

// checkout makes a fresh folder with what the README's sections use of this one.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []string{"gen", "proto"} {
		copyDir(t, part, filepath.Join(dir, part))
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(repoRoot, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// pathWithout makes a folder to stand first in PATH, in which every language but
// those named is broken: a newcomer has one.
func pathWithout(t *testing.T, have []string) string {
	t.Helper()
	dir := t.TempDir()
	for _, program := range []string{"go", "python3", "pip", "node", "npm", "npx", "mvn", "java", "javac", "protoc", "buf", "make"} {
		broken := true
		for _, h := range have {
			broken = broken && h != program
		}
		if !broken {
			continue
		}
		script := "#!/bin/sh\necho '" + program + " is not installed here' >&2\nexit 127\n"
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o700); err != nil { // it is to be run
			t.Fatal(err)
		}
	}
	return dir
}

// TestReadmeCookbook runs each line of the grpcurl cookbook with the real grpcurl.
func TestReadmeCookbook(t *testing.T) {
	needE2E(t)
	bin := filepath.Join(t.TempDir(), "grpcurl")
	run(t, repoRoot, nil, "go", "build", "-modfile=test/polyglot/tools.mod", "-o", bin, "github.com/fullstorydev/grpcurl/cmd/grpcurl")
	demo := startDemo(t)
	path := "PATH=" + filepath.Dir(bin) + ":" + os.Getenv("PATH")
	lines := 0
	for _, b := range section(t, "## grpcurl cookbook") {
		for line := range strings.Lines(b.text) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			command, want, ok := strings.Cut(line, "  # ")
			if !ok || !strings.HasPrefix(command, "grpcurl ") {
				t.Errorf("not a line with grpcurl and what it prints: %s", line)
				continue
			}
			lines++
			// A refused call exits non-zero; what it prints is what counts.
			out := output(t, strings.ReplaceAll(command, demoAddress, demo), path)
			if !strings.Contains(out, want) {
				t.Errorf("%s\nwant %s\ngot\n%s", command, want, out)
			}
		}
	}
	if lines < 15 {
		t.Errorf("the cookbook has only %d lines", lines)
	}
}

// output runs a line of shell and returns all that it prints, however it ends.
func output(t *testing.T, line, path string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", line)
	cmd.Dir, cmd.Env, cmd.WaitDelay = repoRoot, append(os.Environ(), path), time.Minute
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run()
	return out.String()
}
