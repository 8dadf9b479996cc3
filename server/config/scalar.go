package config

import (
	"math"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decodeScalar reads a single value into a string, number, boolean, Duration or
// ByteSize.
func (d *decoder) decodeScalar(n *yaml.Node, v reflect.Value, f field) {
	failf := func(format string, args ...any) { d.file.failf(nodePosition(n), f.path, format, args...) }
	if isNull(n) {
		failf("has no value: write one or remove the key")
		return
	}
	if n.Kind != yaml.ScalarNode {
		failf("must be %s, not %s", wanted(v), describe(n))
		return
	}
	isText, isNumber := n.Tag == tagText, n.Tag == tagInt || n.Tag == tagFloat
	switch out := v.Addr().Interface().(type) {
	case *Duration:
		if !isText && !isNumber {
			failf("must be %s, not %s", wanted(v), describe(n))
			return
		}
		parsed, err := ParseDuration(n.Value)
		if err != nil {
			failf("%v", err)
			return
		}
		*out = parsed
	case *ByteSize:
		if !isText && n.Tag != tagInt {
			failf("must be %s, not %s", wanted(v), describe(n))
			return
		}
		parsed, err := ParseByteSize(n.Value)
		if err != nil {
			failf("%v", err)
			return
		}
		*out = parsed
	default:
		d.decodeBasic(n, v, f, failf)
	}
}

func (d *decoder) decodeBasic(n *yaml.Node, v reflect.Value, f field, failf func(string, ...any)) {
	var want string
	switch v.Kind() {
	case reflect.String:
		if n.Tag != tagText {
			failf("must be text, not %s: put it in quotes", describe(n))
			return
		}
		text := n.Value
		if f.isPath {
			text = d.file.absolute(text)
		}
		v.SetString(text)
		return
	case reflect.Bool:
		want = tagBool
	case reflect.Int:
		want = tagInt
	case reflect.Float64:
		want = tagFloat
	default:
		panic("config: no decoder for " + v.Type().String()) // a defect of this package, found by its first test
	}
	if n.Tag != want && (want != tagFloat || n.Tag != tagInt) {
		failf("must be %s, not %s", wanted(v), describe(n))
		return
	}
	if n.Decode(v.Addr().Interface()) != nil {
		failf("must be %s", wanted(v))
	}
}

// decodeAnyScalar reads a single value of unknown type. Dates stay text.
func (d *decoder) decodeAnyScalar(n *yaml.Node, path string) (any, bool) {
	switch n.Tag {
	case tagNull:
		return nil, true
	case tagText, tagDate:
		return n.Value, true
	case tagBool, tagInt, tagFloat:
		var x any
		if err := n.Decode(&x); err != nil {
			d.file.failf(nodePosition(n), path, "cannot be read as %s", describe(n))
			return nil, false
		}
		if number, ok := x.(float64); ok && (math.IsNaN(number) || math.IsInf(number, 0)) {
			d.file.failf(nodePosition(n), path, "must be a finite number: JSON has no other")
			return nil, false
		}
		return x, true
	default:
		d.file.failf(nodePosition(n), path, "must be text, a number, true, false, a list or a section, not %s", describe(n))
		return nil, false
	}
}

// wanted names the type of v for people.
func wanted(v reflect.Value) string {
	switch v.Interface().(type) {
	case Duration:
		return "a duration such as 25ms, 2s or 24h"
	case ByteSize:
		return "a size such as 512KiB or 8GiB"
	}
	switch v.Kind() {
	case reflect.Bool:
		return aTruth
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return aNumber
	default:
		return aText
	}
}

// nearest returns the candidate that key is most likely a misspelling of, or ""
// if none is near: at most a third of its letters differ.
func nearest(key string, candidates []string) string {
	best, bestDistance := "", len(key)/3+1
	if len(key) > 64 {
		return ""
	}
	for _, c := range candidates {
		if dist := editDistance(strings.ToLower(key), c); dist < bestDistance {
			best, bestDistance = c, dist
		}
	}
	return best
}

// editDistance is the Levenshtein distance between two short ASCII words.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
