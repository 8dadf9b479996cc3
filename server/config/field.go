package config

import (
	"cmp"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// field is one key of the configuration: a struct field's tags, read.
type field struct {
	key    string
	path   string // of this value
	index  []int
	typ    reflect.Type
	doc    string
	need   bool
	isPath bool
	// kind is the one kind of probe that may have the key, needKind the one that must.
	kind, needKind ProbeKind
	limits         *limits
	// words are the accepted values of an enumeration; nil for anything else.
	words []string
}

// limits are the smallest and largest accepted value, in the unit of the field's
// type (nanoseconds, bytes), and as the tag spells them.
type limits struct {
	lo, hi         float64
	loText, hiText string
}

// yes is what a tag that is on says.
const yes = "true"

// fieldsOf lists the keys of a section at path, in the struct's order.
func fieldsOf(section reflect.Type, path string) []field {
	fields := make([]field, 0, section.NumField())
	for sf := range section.Fields() {
		key, _, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		if key == "-" {
			continue
		}
		f := field{
			key: key, path: joinPath(path, key), index: sf.Index, typ: sf.Type,
			doc:    sf.Tag.Get("doc"),
			need:   sf.Tag.Get("need") == yes,
			isPath: sf.Tag.Get("path") == yes,
		}
		f.kind = ProbeKind(sf.Tag.Get("kind"))
		if need := sf.Tag.Get("need"); need != yes {
			f.needKind = ProbeKind(need)
		}
		if text, ok := sf.Tag.Lookup("range"); ok {
			f.limits = parseLimits(text, sf.Type)
		}
		if words, ok := sf.Tag.Lookup("enum"); ok {
			f.words = strings.Split(words, "|")
		}
		fields = append(fields, f)
	}
	return fields
}

// parseLimits reads a range tag. A tag that cannot be read is a defect of this
// package, which its first test finds.
func parseLimits(text string, typ reflect.Type) *limits {
	if typ.Kind() == reflect.Pointer { // an optional value
		typ = typ.Elem()
	}
	lo, hi, _ := strings.Cut(text, "..")
	return &limits{
		lo: limitValue(cmp.Or(lo, "-Inf"), typ), hi: limitValue(cmp.Or(hi, "+Inf"), typ),
		loText: lo, hiText: hi,
	}
}

func limitValue(text string, typ reflect.Type) float64 {
	if x, err := strconv.ParseFloat(text, 64); err == nil {
		return x
	}
	var x float64
	var err error
	switch typ {
	case reflect.TypeFor[Duration]():
		var d Duration
		d, err = ParseDuration(text)
		x = float64(d)
	case reflect.TypeFor[ByteSize]():
		var b ByteSize
		b, err = ParseByteSize(text)
		x = float64(b)
	default:
		x = math.NaN()
	}
	if err != nil || math.IsNaN(x) {
		panic("config: range tag " + strconv.Quote(text) + " does not fit " + typ.String())
	}
	return x
}

// String says the limits for people.
func (l *limits) String() string {
	switch {
	case l.hiText == "":
		return "at least " + l.loText
	case l.loText == "":
		return "at most " + l.hiText
	default:
		return "from " + l.loText + " to " + l.hiText
	}
}

// holds reports whether x is within the limits; NaN never is.
func (l *limits) holds(x float64) bool { return x >= l.lo && x <= l.hi }
