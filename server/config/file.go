package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// file is the configuration file being read: where each value stands and what
// is wrong with it.
type file struct {
	name, dir string
	problems  []*Problem
	// at has the position of every value that was given, by path.
	at map[string]position
	// broken has the paths that a Problem was already reported for, so that later
	// checks do not complain about the default that stands in for the value.
	broken map[string]bool
}

// position is a place in the file; both count from 1.
type position struct{ line, column int }

func nodePosition(n *yaml.Node) position { return position{n.Line, n.Column} }

// failf reports a problem with the value at path, at an explicit place.
func (f *file) failf(pos position, path, format string, args ...any) {
	f.problems = append(f.problems, &Problem{
		File: f.name, Line: pos.line, Column: pos.column,
		Path: path, Message: fmt.Sprintf(format, args...),
	})
	f.markBroken(path)
}

func (f *file) markBroken(path string) {
	if f.broken == nil {
		f.broken = make(map[string]bool)
	}
	f.broken[path] = true
}

// checkf reports a problem with the value at path, at the place where it stands,
// or where the nearest section around it does. Nothing is reported if path, or
// one of the other paths that the check looked at, is already known to be wrong.
func (f *file) checkf(path string, others []string, format string, args ...any) {
	if f.isBroken(path) || slices.ContainsFunc(others, f.isBroken) {
		return
	}
	f.failf(f.position(path), path, format, args...)
}

func (f *file) isBroken(path string) bool {
	for p := path; p != ""; p = parentPath(p) {
		if f.broken[p] {
			return true
		}
	}
	return false
}

func (f *file) position(path string) position {
	for p := path; ; p = parentPath(p) {
		if pos, ok := f.at[p]; ok || p == "" {
			return pos
		}
	}
}

func (f *file) setPosition(path string, n *yaml.Node) {
	if f.at == nil {
		f.at = make(map[string]position)
	}
	f.at[path] = nodePosition(n)
}

// plainKey matches the keys that stand in a path as they are.
var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// joinPath appends a key to a path, quoted where it could be misread.
func joinPath(path, key string) string {
	if !plainKey.MatchString(key) {
		key = fmt.Sprintf("%.64q", key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func indexPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func parentPath(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// readDocument parses data as exactly one YAML document that holds a mapping. On
// a mistake it reports it and returns nil.
func (f *file) readDocument(data []byte) *yaml.Node {
	start := position{1, 1}
	if len(data) > maxFileBytes {
		f.failf(start, "", "the file is larger than %v, the limit for a configuration", ByteSize(maxFileBytes))
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) || (err == nil && isNull(doc.Content[0])) {
		f.failf(start, "", "the file is empty: it needs at least the sections routes and probes")
		return nil
	}
	if err == nil {
		switch next := dec.Decode(&second); {
		case next == nil:
			f.failf(nodePosition(&second), "", "a second YAML document begins here: a configuration is one document")
			return nil
		case !errors.Is(next, io.EOF):
			err = next
		}
	}
	if err != nil {
		pos, message := syntaxError(data, err)
		f.failf(pos, "", "not valid YAML: %s", message)
		return nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		f.failf(nodePosition(root), "", "must be a mapping with sections such as routes and probes, not %s", describe(root))
		return nil
	}
	return root
}

var (
	yamlPrefix    = regexp.MustCompile(`^yaml: (line \d+: )?`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '([^']*)' referenced$`)
)

// syntaxError says where and what. The parser's own line numbers are those of
// the surrounding block, often one off, and it has no columns. So the place is
// found by asking how many lines it takes to bring the error about.
func syntaxError(data []byte, err error) (position, string) {
	message := yamlPrefix.ReplaceAllString(err.Error(), "")
	lines := bytes.SplitAfter(data, []byte("\n"))
	n := sort.Search(len(lines), func(n int) bool {
		var ignored yaml.Node
		dec := yaml.NewDecoder(bytes.NewReader(bytes.Join(lines[:n+1], nil)))
		for {
			switch e := dec.Decode(&ignored); {
			case errors.Is(e, io.EOF):
				return false
			case e != nil:
				return yamlPrefix.ReplaceAllString(e.Error(), "") == message
			}
		}
	})
	line := string(lines[min(n, len(lines)-1)])
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	pos := position{min(n, len(lines)-1) + 1, len(indent) + 1}
	if tab := strings.IndexByte(indent, '\t'); tab >= 0 {
		pos.column = tab + 1
		message += ": indent with spaces, not tabs"
	}
	if m := unknownAnchor.FindStringSubmatch(message); m != nil {
		if i := strings.Index(line, "*"+m[1]); i >= 0 {
			pos.column = i + 1
		}
		message = "the alias has no anchor of its name before it"
	}
	return pos, message
}
