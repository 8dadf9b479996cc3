package config

import (
	"os"
	"testing"
)

// FuzzParse: whatever the file holds, Parse returns a configuration that is
// valid and can be written and read back, or an error made of Problems that all
// have a position.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/minimal.yaml", "testdata/full.yaml"} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, seed := range []string{
		"", "---\n", "\t", "{", "a: &a [*a]", "routes: &r {<<: [*r, *r]}", "? [a]\n: b", "a: !!float x", "a: !!int {}", "? !!merge x\n: y",
		"--- |\n", "a: 1\n---\nb: *c\n", "probes: {p: {chat_template_kwargs: {a: !!null x, b: 0x1p-2, c: 1_000, d: 0b1, e: !!timestamp z}}}",
		everything,
	} {
		f.Add([]byte(seed))
	}
	opts := env("KEY", "0123456789abcdef", "VLLM_API_KEY", "x", "POINTSMAN_CACHE_SECRET", "0123456789abcdef")
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("conf/p.yaml", data, opts)
		if err != nil {
			if len(problemLines(t, err)) == 0 {
				t.Fatalf("an error without problems: %v", err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("parsed and not valid: %v", err)
		}
		out, err := c.Redacted()
		if err != nil {
			t.Fatal(err)
		}
		// Relative paths were resolved against conf, and would be again.
		if _, err := Parse("p.yaml", out, opts); err != nil {
			t.Fatalf("does not read back: %v\n%s", err, out)
		}
	})
}
