package config

import (
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of a document. Aliases are followed, so a few lines can stand for
// millions of values, or for themselves.
const (
	maxValues = 100_000 // about what maxFileBytes can hold without aliases
	maxDepth  = 32      // of chat_template_kwargs and of merges; nothing else nests freely
)

// The tags that the YAML parser gives to values by their looks.
const (
	tagNull  = "!!null"
	tagText  = "!!str"
	tagInt   = "!!int"
	tagFloat = "!!float"
	tagBool  = "!!bool"
	tagDate  = "!!timestamp"
	tagMerge = "!!merge"
)

// What people call some kinds of value, in errors and in the reference.
const (
	aText   = "text"
	aTruth  = "true or false"
	aNumber = "a number"
)

// defaulter fills itself with its defaults. The decoder calls it for every
// section that appears in the file, before reading it.
type defaulter interface{ setDefaults() }

// decoder turns nodes into the types of this package.
type decoder struct {
	file   *file
	values int
}

// decode reads n into v. Mistakes are reported to the file and leave v as it is.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, f field) {
	if !d.count(n) {
		return
	}
	n = resolve(n)
	d.file.setPosition(f.path, n)
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if def, ok := reflect.TypeAssert[defaulter](v.Addr()); ok {
		def.setDefaults()
	}
	switch v.Kind() {
	case reflect.Struct:
		d.decodeStruct(n, v, f)
	case reflect.Map:
		d.decodeMap(n, v, f)
	case reflect.Slice:
		d.decodeSlice(n, v, f)
	default:
		d.decodeScalar(n, v, f)
	}
}

// count keeps the sum of values seen, and reports once when it is too large.
func (d *decoder) count(n *yaml.Node) bool {
	d.values++
	if d.values == maxValues+1 {
		d.file.failf(nodePosition(n), "", "the file stands for more than %d values once its aliases are followed", maxValues)
	}
	return d.values <= maxValues
}

func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, f field) {
	fields := make(map[string]field)
	for _, sub := range fieldsOf(v.Type(), f.path) {
		fields[sub.key] = sub
	}
	given, meant := make(map[string]bool), make(map[string]bool)
	for _, p := range d.pairs(n, f.path) {
		if sub, known := fields[p.key]; known {
			given[p.key] = true
			d.decode(p.value, v.FieldByIndex(sub.index), sub)
		} else if near := d.unknownKey(p, f.path, slices.Sorted(maps.Keys(fields))); near != "" {
			meant[near] = true
		}
	}
	if d.file.isBroken(f.path) {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		switch sub := fields[key]; {
		case given[key]:
		case meant[key]: // one mistake, not an unknown key and a missing one
			d.file.markBroken(sub.path)
		case sub.need && v.FieldByIndex(sub.index).IsZero():
			d.file.failf(nodePosition(n), sub.path, "is missing: %s", clause(sub.doc))
		}
	}
}

// unknownKey reports a key that its section does not have, and returns the one
// that was probably meant.
func (d *decoder) unknownKey(p pair, section string, known []string) string {
	near := nearest(p.key, known)
	hint := "known here: " + strings.Join(known, ", ")
	if near != "" {
		hint = "did you mean " + near + "?"
	}
	d.file.failf(nodePosition(p.at), joinPath(section, p.key), "unknown key; %s", hint)
	return near
}

func (d *decoder) decodeMap(n *yaml.Node, v reflect.Value, f field) {
	out := reflect.MakeMap(v.Type())
	for _, p := range d.pairs(n, f.path) {
		path := joinPath(f.path, p.key)
		element := reflect.New(v.Type().Elem()).Elem()
		if element.Kind() == reflect.Interface {
			if x, ok := d.decodeAny(p.value, path, 1); ok && x != nil {
				element.Set(reflect.ValueOf(x))
			}
		} else {
			d.decode(p.value, element, field{path: path})
		}
		out.SetMapIndex(reflect.ValueOf(p.key), element)
	}
	v.Set(out)
}

func (d *decoder) decodeSlice(n *yaml.Node, v reflect.Value, f field) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.file.failf(nodePosition(n), f.path, "must be a list, not %s", describe(n))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.decode(item, out.Index(i), field{path: indexPath(f.path, i)})
	}
	v.Set(out)
}

// decodeAny reads a value of any shape into what encoding/json would make of it.
func (d *decoder) decodeAny(n *yaml.Node, path string, depth int) (any, bool) {
	if !d.count(n) {
		return nil, false
	}
	n = resolve(n)
	if depth > maxDepth {
		d.file.failf(nodePosition(n), path, "is nested more than %d deep", maxDepth)
		return nil, false
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := make(map[string]any)
		for _, p := range d.pairs(n, path) {
			out[p.key], _ = d.decodeAny(p.value, joinPath(path, p.key), depth+1)
		}
		return out, true
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, item := range n.Content {
			out[i], _ = d.decodeAny(item, indexPath(path, i), depth+1)
		}
		return out, true
	default:
		return d.decodeAnyScalar(n, path)
	}
}

// pair is one entry of a mapping; at is where its key stands.
type pair struct {
	key   string
	at    *yaml.Node
	value *yaml.Node
}

// pairs returns the entries of a mapping in the file's order, those merged in by
// << last. A null counts as an empty mapping, as if all its lines were commented out.
func (d *decoder) pairs(n *yaml.Node, path string) []pair {
	seen := make(map[string]int)
	return d.appendPairs(nil, n, path, seen, 0)
}

func (d *decoder) appendPairs(out []pair, n *yaml.Node, path string, seen map[string]int, depth int) []pair {
	if isNull(n) {
		return out
	}
	if n.Kind != yaml.MappingNode {
		d.file.failf(nodePosition(n), path, "must be a section with keys, not %s", describe(n))
		return out
	}
	if depth > maxDepth {
		d.file.failf(nodePosition(n), path, "merges more than %d deep", maxDepth)
		return out
	}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), n.Content[i+1]
		switch line, repeated := seen[key.Value]; {
		case !d.count(key):
			return out
		case key.Kind == yaml.ScalarNode && key.Tag == tagMerge:
			merged = append(merged, mergeSources(value)...)
		case key.Kind != yaml.ScalarNode || key.Tag != tagText:
			d.file.failf(nodePosition(n.Content[i]), path, "has a key that is not text but %s: put it in quotes", describe(key))
		case repeated && depth == 0:
			d.file.failf(nodePosition(n.Content[i]), joinPath(path, key.Value), "is given twice, first in line %d: remove one", line)
		case !repeated:
			seen[key.Value] = key.Line
			out = append(out, pair{key.Value, n.Content[i], value})
		}
	}
	for _, m := range merged {
		out = d.appendPairs(out, m, path, seen, depth+1)
	}
	return out
}

// mergeSources returns the mappings that a << stands for.
func mergeSources(value *yaml.Node) []*yaml.Node {
	value = resolve(value)
	if value.Kind != yaml.SequenceNode {
		return []*yaml.Node{value}
	}
	sources := make([]*yaml.Node, len(value.Content))
	for i, item := range value.Content {
		sources[i] = resolve(item)
	}
	return sources
}

// resolve follows an alias to what it stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == tagNull }

// describe names what a node is without showing what it holds.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a section"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case n.Tag == tagText:
		return aText
	case n.Tag == tagInt, n.Tag == tagFloat:
		return aNumber
	case n.Tag == tagBool:
		return aTruth
	case n.Tag == tagDate:
		return "a date"
	default:
		return "a value with a tag"
	}
}

// absolute takes a path relative to the file's folder.
func (f *file) absolute(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(f.dir, path)
}

// clause turns documentation into the end of a sentence.
func clause(doc string) string {
	doc = strings.TrimSuffix(doc, ".")
	if len(doc) > 1 && strings.ToUpper(doc[1:2]) != doc[1:2] {
		return strings.ToLower(doc[:1]) + doc[1:]
	}
	return doc
}
