package config

import (
	"maps"
	"math"
	"net"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman-dev/pointsman/cache/rediscache"
)

// Validate reports everything that is wrong with c, as Parse does, but without
// positions. It is for a Config that was not read from a file.
func (c *Config) Validate() error {
	f := new(file)
	validate(c, f)
	return joinProblems(f.problems)
}

func validate(c *Config, f *file) {
	checkTags(f, reflect.ValueOf(c).Elem(), "")
	c.GRPC.validate(f)
	checkListen(f, "admin.listen", c.Admin.Listen)
	if c.Admin.Listen == c.GRPC.Listen && !strings.HasSuffix(c.Admin.Listen, ":0") {
		f.checkf("admin.listen", []string{"grpc.listen"}, "is the address of grpc.listen too: give each its own port")
	}
	if _, ok := c.Routes[c.DefaultRoute]; !ok && c.DefaultRoute != "" {
		f.checkf("default_route", []string{"routes"}, "there is no such route; %s", choices(c.DefaultRoute, c.Routes))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		r := c.Routes[name]
		r.validate(f, c, name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Probes)) {
		p := c.Probes[name]
		p.validate(f, name)
	}
	if c.Cache.Redis != nil {
		c.Cache.Redis.validate(f)
	}
}

// checkTags checks what the tags say: need, range and enum.
func checkTags(f *file, section reflect.Value, at string) {
	for _, sub := range fieldsOf(section.Type(), at) {
		v := section.FieldByIndex(sub.index)
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				continue
			}
			v = v.Elem()
		}
		checkField(f, v, sub)
		switch v.Kind() {
		case reflect.Struct:
			checkTags(f, v, sub.path)
		case reflect.Map:
			for _, key := range v.MapKeys() {
				if element := v.MapIndex(key); element.Kind() == reflect.Struct {
					checkTags(f, element, joinPath(sub.path, key.String()))
				}
			}
		case reflect.Slice:
			for i := range v.Len() {
				checkTags(f, v.Index(i), indexPath(sub.path, i))
			}
		default:
		}
	}
}

func checkField(f *file, v reflect.Value, sub field) {
	switch v.Kind() {
	case reflect.String:
		text := v.String()
		if sub.need && strings.TrimSpace(text) == "" {
			f.checkf(sub.path, nil, "must not be empty: %s", clause(sub.doc))
		}
		if sub.words != nil && !slices.Contains(sub.words, text) {
			f.checkf(sub.path, nil, "must be %s, got %.40q", orList(sub.words), text)
		}
	case reflect.Map, reflect.Slice:
		if sub.need && v.Len() == 0 {
			f.checkf(sub.path, nil, "must not be empty: %s", clause(sub.doc))
		}
	default:
		if sub.limits == nil {
			return
		}
		if x := number(v); !sub.limits.holds(x) {
			f.checkf(sub.path, nil, "must be %v, got %v", sub.limits, v.Interface())
		}
	}
}

func number(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

// orList writes words as "a, b or c"; an empty word is written as "absent".
func orList(words []string) string {
	shown := make([]string, 0, len(words))
	for _, w := range words {
		if w != "" {
			shown = append(shown, w)
		}
	}
	if len(shown) < len(words) {
		shown = append(shown, "absent")
	}
	last := len(shown) - 1
	if last == 0 {
		return shown[0]
	}
	return strings.Join(shown[:last], ", ") + " or " + shown[last]
}

func (g *GRPC) validate(f *file) {
	checkListen(f, "grpc.listen", g.Listen)
	if need := g.MaxTaskBytes + messageSlack; g.MaxMessageBytes < need {
		f.checkf("grpc.max_message_bytes", []string{"grpc.max_task_bytes"},
			"must be at least %v more than max_task_bytes (%v), got %v: raise it or lower max_task_bytes",
			messageSlack, g.MaxTaskBytes, g.MaxMessageBytes)
	}
}

// checkListen checks host:port with a numeric port.
func checkListen(f *file, at, address string) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		f.checkf(at, nil, "must be host:port with a port from 0 to 65535, such as 127.0.0.1:50051 or :50051")
	}
}

// nameForm is what names of routes, probes and targets may look like: they are
// metric labels, span attributes and words that callers switch on.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

func checkName(f *file, at, name string) {
	if !nameForm.MatchString(name) {
		f.checkf(at, nil, "a name must be 1 to 64 letters, digits, dots, dashes or underscores, and begin with a letter or digit")
	}
}

// choices says which names there are, or which one was probably meant.
func choices[V any](name string, known map[string]V) string {
	names := slices.Sorted(maps.Keys(known))
	if meant := nearest(name, names); meant != "" {
		return "did you mean " + meant + "?"
	}
	return "there are: " + strings.Join(names, ", ")
}

func (r *Route) validate(f *file, c *Config, name string) {
	at := joinPath("routes", name)
	checkName(f, at, name)
	if _, ok := c.Probes[r.Probe]; !ok && r.Probe != "" {
		f.checkf(at+".probe", []string{"probes"}, "there is no such probe; %s", choices(r.Probe, c.Probes))
	}
	if b := r.Backup; b != nil && b.Probe != "" {
		if _, ok := c.Probes[b.Probe]; !ok {
			f.checkf(at+".backup.probe", []string{"probes"}, "there is no such probe; %s", choices(b.Probe, c.Probes))
		} else if b.Probe == r.Probe {
			f.checkf(at+".backup.probe", []string{at + ".probe"}, "is the route's own probe: a backup is for when that fails")
		}
	}
	r.Policy.validate(f, at+".policy")

	targets := at + ".targets"
	if len(r.Targets) == 1 {
		f.checkf(targets, nil, "has one target: there must be two or more to choose between")
	}
	names, heads := make(map[string]string), make(map[string]string)
	for i, t := range r.Targets {
		nameAt, headAt := indexPath(targets, i)+".name", indexPath(targets, i)+".head"
		if t.Name != "" {
			checkName(f, nameAt, t.Name)
		}
		checkUnique(f, names, nameAt, t.Name, "the name")
		checkUnique(f, heads, headAt, t.Head, "the head")
	}
	if _, ok := names[r.Fallback]; !ok && len(r.Targets) > 0 {
		f.checkf(at+".fallback", []string{targets}, "there is no such target; %s", choices(r.Fallback, names))
	}
}

// checkUnique reports a value that an earlier target of the route has too.
func checkUnique(f *file, seen map[string]string, at, value, what string) {
	if value == "" {
		return
	}
	if first, repeated := seen[value]; repeated {
		f.checkf(at, []string{first}, "is %s of %s too: each target needs its own", what, parentPath(first))
		return
	}
	seen[value] = at
}

func (p *Policy) validate(f *file, at string) {
	switch {
	case p.QualityWeight != nil && p.Tolerance != nil:
		f.checkf(at, nil, "has both quality_weight and tolerance: a route is decided by one of them")
	case p.QualityWeight == nil && p.Tolerance == nil:
		f.checkf(at, []string{at + ".quality_weight", at + ".tolerance"},
			"has neither quality_weight nor tolerance: give one, or leave policy out for tolerance %v", defaultTolerance)
	}
}

func (p *Probe) validate(f *file, name string) {
	at := joinPath("probes", name)
	checkName(f, at, name)
	p.checkKind(f, at)
	if p.Kind != ProbeKindVLLM {
		return
	}
	for i, e := range p.Endpoints {
		e.validate(f, indexPath(at+".endpoints", i))
	}
	p.checkFolders(f, at+".endpoints")
	budget := Duration(addSaturating(int64(p.QueueTimeout), int64(p.RequestTimeout), int64(p.ArtifactTimeout)))
	if p.Sweep.MinAge <= budget {
		f.checkf(at+".sweep.min_age", []string{at + ".queue_timeout", at + ".request_timeout", at + ".artifact_timeout"},
			"must be more than queue_timeout + request_timeout + artifact_timeout (%v), got %v: a younger file may still be awaited",
			budget, p.Sweep.MinAge)
	}
}

// checkFolders reports endpoints that write to one folder: what each may leave
// there is counted apart.
func (p *Probe) checkFolders(f *file, at string) {
	folders := make(map[string]string)
	for i, e := range p.Endpoints {
		here, folder := indexPath(at, i)+".hidden_states_dir", path.Clean(e.HiddenStatesDir)
		if first, repeated := folders[folder]; repeated && e.HiddenStatesDir != "" {
			f.checkf(here, []string{first}, "is the folder of %s too: each endpoint needs its own", parentPath(first))
			continue
		}
		folders[folder] = here
	}
}

// LexicalEncoder is the encoder of every probe of kind lexical.
const LexicalEncoder = "pointsman/lexical-1"

// checkKind checks that a probe has what its kind needs, and nothing that its kind
// has no use for.
func (p *Probe) checkKind(f *file, at string) {
	section := reflect.ValueOf(p).Elem()
	for _, sub := range fieldsOf(section.Type(), at) {
		_, given := f.at[sub.path]
		switch {
		case sub.needKind == p.Kind && section.FieldByIndex(sub.index).IsZero() && !given:
			f.checkf(sub.path, nil, "is missing: %s", clause(sub.doc))
		case sub.needKind == p.Kind && isEmpty(section.FieldByIndex(sub.index)):
			f.checkf(sub.path, nil, "must not be empty: %s", clause(sub.doc))
		case sub.kind != "" && sub.kind != p.Kind && given:
			f.checkf(sub.path, []string{at + ".kind"}, "means nothing to a probe of kind %s: remove it", p.Kind)
		}
	}
	if p.Kind == ProbeKindLexical && p.Encoder != LexicalEncoder {
		f.checkf(at+".encoder", []string{at + ".kind"}, "must be %s, or absent: a probe of kind lexical has no other", LexicalEncoder)
	}
}

// isEmpty reports whether v is a list without elements or a text without letters.
func isEmpty(v reflect.Value) bool {
	if v.Kind() == reflect.String {
		return strings.TrimSpace(v.String()) == ""
	}
	return v.Len() == 0
}

func addSaturating(values ...int64) int64 {
	var sum int64
	for _, v := range values {
		if v > math.MaxInt64-sum {
			return math.MaxInt64
		}
		sum += max(v, 0)
	}
	return sum
}

func (e *Endpoint) validate(f *file, at string) {
	if e.BaseURL != "" {
		// The text of a bad URL is not shown: it may hold a password.
		if problem := urlProblem(e.BaseURL, "http", "https"); problem != "" {
			f.checkf(at+".base_url", nil, "%s, such as http://127.0.0.1:8000/v1", problem)
		}
	}
	if e.ReportedDir != "" && !path.IsAbs(e.ReportedDir) {
		f.checkf(at+".reported_dir", nil, "must be absolute: it is the folder as vLLM reports it")
	}
}

// urlProblem says what is wrong with an address, or "".
func urlProblem(text string, schemes ...string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "must be a URL"
	case !slices.Contains(schemes, u.Scheme):
		return "must begin with " + orList(withSuffix(schemes, "://"))
	case u.Hostname() == "":
		return "must name a host"
	case u.User != nil:
		return "must not hold a user name or password; secrets have keys of their own"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "must end before any ? or #"
	}
	return ""
}

func withSuffix(words []string, suffix string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w + suffix
	}
	return out
}

func (r *Redis) validate(f *file) {
	const at = "cache.redis"
	err := rediscache.CheckURL(r.URL)
	switch {
	case r.URL == "": // said to be missing already
	case strings.Contains(r.URL, "@"):
		f.checkf(at+".url", nil, "must not hold a user name or password; secrets have keys of their own, such as redis://127.0.0.1:6379/0")
	case err != nil:
		f.checkf(at+".url", nil, "%v", err)
	}
	if r.TLS == nil {
		return
	}
	if !strings.HasPrefix(r.URL, "rediss") {
		f.checkf(at+".tls", []string{at + ".url"}, "needs a URL that begins with rediss")
	}
	if (r.TLS.CertFile == "") != (r.TLS.KeyFile == "") {
		f.checkf(at+".tls", nil, "has one of cert_file and key_file: give both or neither")
	}
}
