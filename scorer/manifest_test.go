package scorer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// validFields returns router.json of smallManifest as a map.
func validFields(t testing.TB) map[string]any {
	t.Helper()
	data, err := json.Marshal(smallManifest().document())
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestManifestAccepts(t *testing.T) {
	tests := map[string]struct {
		set  map[string]any
		want func(*Manifest)
	}{
		"as written":                    {},
		"unknown field":                 {set: map[string]any{"trained_by": "x", "notes": []int{1}}},
		"other tensor file":             {set: map[string]any{"tensor_file": "weights..v2"}},
		"vllm layers":                   {set: map[string]any{"vllm_layer_ids": []int{3, 17}}, want: func(m *Manifest) { m.VLLMLayerIDs = []int{3, 17} }},
		"vllm layers null":              {set: map[string]any{"vllm_layer_ids": nil}},
		"no hidden layer":               {set: map[string]any{"trunk_hidden": []int{}}, want: func(m *Manifest) { m.TrunkHidden = []int{} }},
		"encoder with spaces":           {set: map[string]any{"encoder": " a b "}, want: func(m *Manifest) { m.Encoder = " a b " }},
		"more components than features": {set: map[string]any{"pca_dim": 200}, want: func(m *Manifest) { m.PCADim = 200 }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fields := validFields(t)
			maps.Copy(fields, tt.set)
			doc, err := parseDocument(marshal(t, fields))
			if err != nil {
				t.Fatal(err)
			}
			want := smallManifest()
			if tt.want != nil {
				tt.want(&want)
			}
			if diff := cmp.Diff(want, doc.manifest()); diff != "" {
				t.Errorf("manifest (-want +got):\n%s", diff)
			}
		})
	}
}

func TestManifestNamesMissingField(t *testing.T) {
	for field := range validFields(t) {
		for name, spoil := range map[string]func(map[string]any){
			"absent":       func(f map[string]any) { delete(f, field) },
			"null":         func(f map[string]any) { f[field] = nil },
			"other case":   func(f map[string]any) { f[strings.ToUpper(field)] = f[field]; delete(f, field) },
			"wrong type":   func(f map[string]any) { f[field] = map[string]any{} },
			"wrong scalar": func(f map[string]any) { f[field] = 0.5 },
		} {
			t.Run(field+"/"+name, func(t *testing.T) {
				fields := validFields(t)
				spoil(fields)
				_, err := parseDocument(marshal(t, fields))
				checkPart(t, err, manifestFile, field)
			})
		}
	}
}

func TestManifestRefuses(t *testing.T) {
	long := make([]int, maxLayers+1)
	for i := range long {
		long[i] = i
	}
	names := make([]string, 3)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	tests := []struct {
		name  string
		field string // to blame
		set   map[string]any
		want  string // in the message
	}{
		{"version", "format_version", map[string]any{"format_version": 2}, "is 2, want 1"},
		{"mode", "training_mode", map[string]any{"training_mode": "per_layer"}, `is "per_layer", want "single_pca_block"`},
		{"empty encoder", "encoder", map[string]any{"encoder": ""}, `is ""`},
		{"representation", "representation", map[string]any{"representation": "last_token"}, `"token_mean_per_layer_concat"`},
		{"no layers", "extraction_layer_ids", map[string]any{"extraction_layer_ids": []int{}}, "is empty"},
		{"layer gap", "extraction_layer_ids", map[string]any{"extraction_layer_ids": []int{0, 2}}, "is [0 2]"},
		{"negative layer", "extraction_layer_ids", map[string]any{"extraction_layer_ids": []int{-1, 0}}, "is [-1 0]"},
		{"too many layers", "extraction_layer_ids", map[string]any{"extraction_layer_ids": long}, "at most 65536"},
		{"no width", "hidden_size", map[string]any{"hidden_size": 0}, "is 0, want above 0"},
		{"negative width", "hidden_size", map[string]any{"hidden_size": -2}, "is -2"},
		{"width overflows", "hidden_size", map[string]any{"hidden_size": 1 << 62}, "at most"},
		{"width beyond int64", "hidden_size", map[string]any{"hidden_size": json.Number("18446744073709551616")}, "a whole number"},
		{"raw dimension", "raw_feature_dim", map[string]any{"raw_feature_dim": 5}, "is 5, want 4 (2 extraction_layer_ids x hidden_size 2)"},
		{"blocks", "feature_block_count", map[string]any{"feature_block_count": 2}, "is 2, want 1"},
		{"no components", "pca_dim", map[string]any{"pca_dim": 0}, "above 0"},
		{"components overflow", "pca_dim", map[string]any{"pca_dim": 1 << 61}, "at most"},
		{"whitening", "pca_whiten", map[string]any{"pca_whiten": true}, "want false"},
		{"no heads", "output_names", map[string]any{"output_names": []string{}}, "is empty"},
		{"empty head", "output_names", map[string]any{"output_names": []string{"a", ""}}, `is "" at position 1`},
		{"same heads", "output_names", map[string]any{"output_names": []string{"a", "a"}}, `is "a" twice`},
		{"heads beyond limit", "output_names", map[string]any{"output_names": names, "trunk_hidden": []int{1, maxElements - 1}}, "at most 1"},
		{"hidden width", "trunk_hidden", map[string]any{"trunk_hidden": []int{2, 0}}, "is 0 at position 1"},
		{"hidden width overflows", "trunk_hidden", map[string]any{"trunk_hidden": []int{1 << 60, 1 << 60}}, "at position 0"},
		{"no members", "ensemble_size", map[string]any{"ensemble_size": 0}, "above 0"},
		{"too many members", "ensemble_size", map[string]any{"ensemble_size": 1 << 40}, "at most 10922"},
		{"too many numbers", "ensemble_size", map[string]any{"ensemble_size": 10000, "trunk_hidden": []int{1000, 1000}}, "in all tensors together"},
		{"too many numbers in the transform", "ensemble_size", map[string]any{"pca_dim": maxElements / 4}, "in all tensors together"},
		{"link", "probability_link", map[string]any{"probability_link": "softmax"}, `"independent_sigmoid"`},
		{"reduction", "ensemble_reduction", map[string]any{"ensemble_reduction": "logit_mean"}, `"probability_mean"`},
		{"no tensor file", "tensor_file", map[string]any{"tensor_file": ""}, "plain name"},
		{"tensor file above", "tensor_file", map[string]any{"tensor_file": "../router.safetensors"}, "plain name"},
		{"tensor file dot-dot", "tensor_file", map[string]any{"tensor_file": ".."}, "plain name"},
		{"tensor file absolute", "tensor_file", map[string]any{"tensor_file": "/etc/passwd"}, "plain name"},
		{"tensor file with backslash", "tensor_file", map[string]any{"tensor_file": `..\x`}, "plain name"},
		{"tensor file below", "tensor_file", map[string]any{"tensor_file": "sub/router.safetensors"}, "plain name"},
		{"vllm layers too few", "vllm_layer_ids", map[string]any{"vllm_layer_ids": []int{3}}, "is a list of 1"},
		{"vllm layers empty", "vllm_layer_ids", map[string]any{"vllm_layer_ids": []int{}}, "is a list of 0"},
		{"vllm layers repeated", "vllm_layer_ids", map[string]any{"vllm_layer_ids": []int{3, 3}}, "is 3 at position 1"},
		{"vllm layers descending", "vllm_layer_ids", map[string]any{"vllm_layer_ids": []int{3, 1}}, "is 1 at position 1"},
		{"vllm layers negative", "vllm_layer_ids", map[string]any{"vllm_layer_ids": []int{-1, 1}}, "is -1 at position 0"},
		{"first of two faults", "format_version", map[string]any{"format_version": 0, "pca_dim": 0}, "is 0"},
		{"long value is clipped", "encoder", map[string]any{"encoder": []string{strings.Repeat("x", 1000)}}, "..."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fields := validFields(t)
			maps.Copy(fields, tt.set)
			_, err := parseDocument(marshal(t, fields))
			checkPart(t, err, manifestFile, tt.field)
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q does not say %q", err, tt.want)
			}
			if len(err.Error()) > 2*maxQuoted+200 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestManifestRefusesWhatIsNotAnObject(t *testing.T) {
	for _, data := range []string{"", "{", "[]", `"x"`, "1", "{} {}", "null"} {
		if _, err := parseDocument([]byte(data)); err == nil || !strings.Contains(err.Error(), manifestFile) {
			t.Errorf("%q: %v, want an error naming %s", data, err, manifestFile)
		}
	}
}

// checkPart checks that err blames a file and a part of it, also in its message.
func checkPart(t *testing.T, err error, file, part string) {
	t.Helper()
	var e *CheckpointError
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want a CheckpointError", err)
	}
	if e.File != file || e.Part != part {
		t.Errorf("blames %q of %q, want %q of %q: %v", e.Part, e.File, part, file, err)
	}
	if !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), part) {
		t.Errorf("%q does not name %s and %s", err, file, part)
	}
}
