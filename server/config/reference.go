package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// FieldDoc documents one key.
type FieldDoc struct {
	// Path has * for any name and [] for any element: routes.*.targets[].cost.
	Path string `json:"path"`
	// Type is the kind of value for people, or the accepted words.
	Type string `json:"type"`
	// Default is written as it would stand in the file; empty if there is none.
	Default string `json:"default"`
	// Limits are the accepted range; empty if there is none.
	Limits string `json:"limits"`
	// Required keys must be there whenever their section is.
	Required bool   `json:"required"`
	Doc      string `json:"doc"`
}

// Reference documents every key, sections before what they hold, in the order
// of the structs.
func Reference() []FieldDoc {
	return appendReference(nil, reflect.ValueOf(Default()).Elem(), "")
}

func appendReference(docs []FieldDoc, section reflect.Value, at string) []FieldDoc {
	for _, sub := range fieldsOf(section.Type(), "") {
		sub.path = strings.TrimPrefix(at+"."+sub.key, ".")
		v := section.FieldByIndex(sub.index)
		docs = append(docs, FieldDoc{
			Path: sub.path, Type: typeName(sub), Default: defaultText(v, sub), Limits: limitsText(sub),
			Required: (sub.need || sub.needKind != "") && defaultText(v, sub) == "", Doc: sub.doc,
		})
		if sub.kind != "" {
			docs[len(docs)-1].Doc += " Only for kind " + string(sub.kind) + "."
		}
		switch inner, path := nested(sub); {
		case inner == nil:
		case v.Kind() == reflect.Struct: // its own values are the defaults
			docs = appendReference(docs, v, path)
		default:
			docs = appendReference(docs, defaultsOf(inner), path)
		}
	}
	return docs
}

// nested returns the section that a field holds, directly or in a map or list,
// and the path of that section; nil for a plain value.
func nested(f field) (reflect.Type, string) {
	typ, path := f.typ, f.path
	switch typ.Kind() {
	case reflect.Pointer:
		typ = typ.Elem()
	case reflect.Map:
		typ, path = typ.Elem(), path+".*"
	case reflect.Slice:
		typ, path = typ.Elem(), path+"[]"
	default:
	}
	if typ.Kind() != reflect.Struct {
		return nil, ""
	}
	return typ, path
}

// defaultsOf returns a section as it is when nothing is written in it.
func defaultsOf(section reflect.Type) reflect.Value {
	v := reflect.New(section)
	if def, ok := reflect.TypeAssert[defaulter](v); ok {
		def.setDefaults()
	}
	return v.Elem()
}

func typeName(f field) string {
	if f.words != nil {
		return orList(f.words)
	}
	typ := f.typ
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch typ {
	case reflect.TypeFor[Duration]():
		return "duration"
	case reflect.TypeFor[ByteSize]():
		return "size"
	}
	switch typ.Kind() {
	case reflect.Struct:
		return "section"
	case reflect.Map:
		if typ.Elem().Kind() == reflect.Interface {
			return "section of any keys"
		}
		return "sections by name"
	case reflect.Slice:
		return "list of sections"
	case reflect.Bool:
		return aTruth
	case reflect.Int:
		return "whole number"
	case reflect.Float64:
		return "number"
	default:
		if f.isPath {
			return "path"
		}
		return aText
	}
}

// defaultText writes a default as it would stand in the file. Zero values of
// text and of what must be given are no defaults.
func defaultText(v reflect.Value, f field) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice:
		return ""
	case reflect.Float64:
		if f.need {
			return ""
		}
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	default:
		return fmt.Sprint(v.Interface())
	}
}

func limitsText(f field) string {
	if f.limits == nil {
		return ""
	}
	return f.limits.String()
}

// Markdown renders docs as a table.
func Markdown(docs []FieldDoc) string {
	var b strings.Builder
	b.WriteString("| key | value | default | meaning |\n| --- | --- | --- | --- |\n")
	for _, d := range docs {
		value := d.Type
		if d.Limits != "" {
			value += ", " + d.Limits
		}
		def := "–"
		switch {
		case d.Default != "":
			def = "`" + d.Default + "`"
		case d.Required:
			def = "required"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Path, cell(value), def, cell(d.Doc))
	}
	return b.String()
}

// cell escapes what would end a table's cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
