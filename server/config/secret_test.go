package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestSecretIsNeverShown(t *testing.T) {
	const value = "sesame"
	s := NewSecret(value)
	holder := struct{ S Secret }{s}
	if s.Reveal() != value || !s.IsSet() || (Secret{}).IsSet() {
		t.Fatal("the secret does not hold its value")
	}

	shown := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t", "%40s"} {
		shown[verb] = fmt.Sprintf(verb, s)
		shown["pointer "+verb] = fmt.Sprintf(verb, &s)
		shown["field "+verb] = fmt.Sprintf(verb, holder)
		shown["wrapped "+verb] = fmt.Sprintf(verb, []any{holder})
	}
	shown["String"], shown["GoString"] = s.String(), s.GoString()
	for name, marshal := range map[string]func(any) ([]byte, error){"JSON": json.Marshal, "YAML": yaml.Marshal} {
		out, err := marshal(map[string]any{"a": s, "b": holder, "c": &s})
		if err != nil {
			t.Fatal(err)
		}
		shown[name] = string(out)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "secret", s, "holder", holder)
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "secret", s, "holder", holder)
	shown["slog"] = log.String()

	for how, text := range shown {
		for _, form := range []string{value, fmt.Sprintf("%x", value), fmt.Sprintf("%X", value), "115"} { // 115 is an s in %d
			if strings.Contains(text, form) {
				t.Errorf("%s shows the secret: %s", how, text)
			}
		}
		if !strings.Contains(text, "[redacted]") {
			t.Errorf("%s: got %q, want [redacted] in it", how, text)
		}
	}
}
