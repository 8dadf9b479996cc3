package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func TestReferenceDocumentsEveryKey(t *testing.T) {
	docs := make(map[string]FieldDoc)
	for _, d := range Reference() {
		if _, twice := docs[d.Path]; twice {
			t.Errorf("%s is there twice", d.Path)
		}
		if d.Doc == "" || !strings.HasSuffix(d.Doc, ".") || d.Type == "" {
			t.Errorf("%s is not documented: %+v", d.Path, d)
		}
		docs[d.Path] = d
	}
	// The two files together use every key but the *_file ones.
	used := make(map[string]bool)
	documented, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{everything, string(documented)} {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		collectPaths(doc.Content[0], "", used)
	}
	for path := range used {
		if _, ok := docs[path]; !ok {
			t.Errorf("%s is used and not in the reference", path)
		}
	}
	for path := range docs {
		if !used[path] && path != "probes.*.api_key_file" && path != "cache.secret_file" &&
			path != "cache.redis.password_file" && path != "cache.redis.sentinel_password_file" && path != "record.secret_file" {
			t.Errorf("%s is in the reference and in no example", path)
		}
	}

	want := []FieldDoc{
		{Path: "routes.*.policy.tolerance", Type: "number", Default: "0.2", Limits: "from 0 to 1", Doc: docs["routes.*.policy.tolerance"].Doc},
		{Path: "routes.*.targets[].cost", Type: "number", Limits: "from 0 to 1e12", Required: true, Doc: docs["routes.*.targets[].cost"].Doc},
		{Path: "probes.*.max_artifact_bytes", Type: "size", Default: "8GiB", Limits: "from 1KiB to 1TiB", Doc: docs["probes.*.max_artifact_bytes"].Doc},
		{Path: "grpc.listen", Type: "text", Default: "127.0.0.1:50051", Doc: docs["grpc.listen"].Doc},
		{Path: "log.level", Type: "debug, info, warn or error", Default: "info", Doc: docs["log.level"].Doc},
	}
	for _, w := range want {
		if diff := cmp.Diff(w, docs[w.Path]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", w.Path, diff)
		}
	}
}

// collectPaths notes every key below n the way the reference writes it.
func collectPaths(n *yaml.Node, at string, into map[string]bool) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if at == "routes" || at == "probes" {
				key = "*"
			} else if key != "<<" {
				into[strings.TrimPrefix(at+"."+key, ".")] = true
			}
			if key != "chat_template_kwargs" {
				collectPaths(n.Content[i+1], strings.TrimPrefix(at+"."+key, "."), into)
			}
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			collectPaths(item, at+"[]", into)
		}
	default:
	}
}

// Every default in the reference is what a file without the key means: writing
// it out changes nothing.
func TestReferenceDefaultsHold(t *testing.T) {
	for _, d := range Reference() {
		if d.Default == "" || strings.HasPrefix(d.Path, "cache.redis") || strings.HasPrefix(d.Path, "grpc.auth") || strings.HasPrefix(d.Path, "record.") {
			continue
		}
		t.Run(d.Path, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "p.yaml")
			var doc yaml.Node
			if err := yaml.Unmarshal([]byte(withLines("", "", "")), &doc); err != nil {
				t.Fatal(err)
			}
			path := strings.NewReplacer("routes.*", "routes.main", "probes.*", "probes.qwen").Replace(d.Path)
			setKey(doc.Content[0], strings.Split(path, "."), d.Default)
			with, err := yaml.Marshal(&doc)
			if err != nil {
				t.Fatal(err)
			}
			want, err := Parse(file, []byte(withLines("", "", "")), env())
			if err != nil {
				t.Fatal(err)
			}
			got, err := Parse(file, with, env())
			if err != nil {
				t.Fatalf("%v in\n%s", err, with)
			}
			if !reflect.DeepEqual(want, got) {
				t.Errorf("written out it differs:\n%s", cmp.Diff(want, got, secrets))
			}
		})
	}
}

// setKey sets a plain value in nested mappings, making those that are missing.
func setKey(mapping *yaml.Node, path []string, value string) {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == path[0] {
			setKey(mapping.Content[i+1], path[1:], value)
			return
		}
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Value: path[0]}
	if len(path) == 1 {
		mapping.Content = append(mapping.Content, key, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
		return
	}
	inner := &yaml.Node{Kind: yaml.MappingNode}
	mapping.Content = append(mapping.Content, key, inner)
	setKey(inner, path[1:], value)
}

func TestMarkdown(t *testing.T) {
	got := Markdown([]FieldDoc{
		{Path: "a", Type: "x|y", Default: "x", Doc: "A."},
		{Path: "b", Type: "size", Limits: "from 1B to 2B", Required: true, Doc: "B|b."},
		{Path: "c", Type: "section", Doc: "C."},
	})
	want := "| key | value | default | meaning |\n| --- | --- | --- | --- |\n" +
		"| `a` | x\\|y | `x` | A. |\n" +
		"| `b` | size, from 1B to 2B | required | B\\|b. |\n" +
		"| `c` | section | – | C. |\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
