package config

import (
	"fmt"

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
