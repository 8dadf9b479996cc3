package config

import (
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Redacted returns the effective configuration as YAML: defaults filled in,
// paths resolved. Secrets do not appear, only the variable or file they came
// from, so the text can be read back as a configuration.
func (c *Config) Redacted() ([]byte, error) {
	out, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write the effective configuration: %w", err)
	}
	return out, nil
}

// MarshalYAML implements [yaml.Marshaler]: the keys that the probe's kind has no use
// for are left out, since Parse refuses them.
func (p Probe) MarshalYAML() (any, error) {
	type plain Probe // without this method
	var n yaml.Node
	if err := n.Encode(plain(p)); err != nil {
		return nil, err
	}
	for _, sub := range fieldsOf(reflect.TypeFor[Probe](), "") {
		i := slices.IndexFunc(n.Content, func(key *yaml.Node) bool { return key.Value == sub.key })
		if sub.kind != "" && sub.kind != p.Kind && i >= 0 && i%2 == 0 {
			n.Content = slices.Delete(n.Content, i, i+2)
		}
	}
	return &n, nil
}
