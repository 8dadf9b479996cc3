package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
)

// maxFileBytes bounds the configuration file. A thousand routes take about half
// of it.
const maxFileBytes = 1 << 20

// LoadOptions are the outside world as Load and Parse see it.
type LoadOptions struct {
	// LookupEnv finds an environment variable. Nil: os.LookupEnv.
	LookupEnv func(name string) (value string, found bool)
}

func (o LoadOptions) lookupEnv(name string) (string, bool) {
	if o.LookupEnv == nil {
		return os.LookupEnv(name)
	}
	return o.LookupEnv(name)
}

// Load reads the file at path with the process's environment. Every mistake in
// the file is in the error as a Problem.
func Load(path string) (*Config, error) {
	return LoadWith(path, LoadOptions{})
}

// LoadWith is Load with another environment.
func LoadWith(path string, opts LoadOptions) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	// Absolute, so that the effective configuration says where things really are.
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return parse(path, dir, data, opts)
}

// readFile reads one byte more than is allowed, for parse to refuse.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	return data, errors.Join(err, f.Close())
}

// Parse reads data as if it stood in a file called name: the name appears in
// errors, and relative paths are taken from its folder.
func Parse(name string, data []byte, opts LoadOptions) (*Config, error) {
	return parse(name, filepath.Dir(name), data, opts)
}

func parse(name, dir string, data []byte, opts LoadOptions) (*Config, error) {
	f := &file{name: name, dir: dir}
	root := f.readDocument(data)
	if root == nil {
		return nil, joinProblems(f.problems)
	}
	c := new(Config)
	d := decoder{file: f}
	d.decode(root, reflect.ValueOf(c).Elem(), field{})
	if d.values > maxValues {
		return nil, joinProblems(f.problems) // what was read is cut off; more complaints would mislead
	}
	c.complete()
	validate(c, f)
	c.fetchSecrets(f, opts)
	if len(f.problems) > 0 {
		return nil, joinProblems(f.problems)
	}
	return c, nil
}

// complete fills in what follows from other values.
func (c *Config) complete() {
	if c.DefaultRoute == "" && len(c.Routes) == 1 {
		for name := range c.Routes {
			c.DefaultRoute = name
		}
	}
	for name, r := range c.Routes {
		if r.Fallback == "" {
			r.Fallback = defaultFallback(r.Targets)
		}
		c.Routes[name] = r
	}
	for name, p := range c.Probes {
		if p.Kind == ProbeKindLexical && p.Encoder == "" {
			p.Encoder = LexicalEncoder
		}
		if p.Kind == ProbeKindVLLM && p.ServedModel == "" {
			p.ServedModel = p.Encoder
		}
		c.Probes[name] = p
	}
}

// defaultFallback is the first strong target, else the first: when nothing is
// known about a task, quality goes before cost.
func defaultFallback(targets []Target) string {
	for _, t := range targets {
		if t.Tier == TierStrong {
			return t.Name
		}
	}
	if len(targets) > 0 {
		return targets[0].Name
	}
	return ""
}
