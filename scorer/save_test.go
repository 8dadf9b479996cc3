package scorer

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSaveRoundTrip(t *testing.T) {
	large := realManifest(2, 33)
	large.VLLMLayerIDs = []int{8, 16}
	flat := smallManifest()
	flat.TrunkHidden = nil // from the components straight to the heads
	for name, m := range map[string]Manifest{"small": smallManifest(), "original shape, vllm layers": large, "no hidden layer": flat} {
		t.Run(name, func(t *testing.T) {
			tensors := randomTensors(m, 5)
			dir := filepath.Join(t.TempDir(), "router")
			if err := Save(dir+"/", m, *tensors); err != nil {
				t.Fatal(err)
			}
			c, err := Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tensors, c.tensors); diff != "" {
				t.Errorf("tensors (-saved +loaded):\n%s", diff)
			}
			if m.TrunkHidden == nil {
				m.TrunkHidden = []int{}
			}
			if diff := cmp.Diff(m, c.Manifest()); diff != "" {
				t.Errorf("manifest (-saved +loaded):\n%s", diff)
			}

			again := filepath.Join(t.TempDir(), "router")
			if err := Save(again, m, *tensors); err != nil {
				t.Fatal(err)
			}
			c2, err := Load(again)
			if err != nil {
				t.Fatal(err)
			}
			if c.Digest() != c2.Digest() {
				t.Error("the same checkpoint has two digests")
			}
		})
	}
}

func TestSaveLeavesOneReadableFolder(t *testing.T) {
	parent := t.TempDir()
	m := smallManifest()
	if err := Save(filepath.Join(parent, "router"), m, *zeroTensors(m)); err != nil {
		t.Fatal(err)
	}
	checkEntries(t, parent, "router")
	checkEntries(t, filepath.Join(parent, "router"), manifestFile, defaultTensorFile)
	info, err := os.Stat(filepath.Join(parent, "router"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o755 {
		t.Errorf("permissions %v, want 0755", info.Mode().Perm())
	}
}

func TestSaveDoesNotReplace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "router")
	m := smallManifest()
	if err := Save(dir, m, *zeroTensors(m)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, defaultTensorFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := Save(dir, m, *randomTensors(m, 1)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v, want %v", err, fs.ErrExist)
	}
	after, err := os.ReadFile(filepath.Join(dir, defaultTensorFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the first checkpoint was changed")
	}
}

func TestSaveRefusesWhatLoadWould(t *testing.T) {
	nan := float32(0)
	nan /= nan
	tests := []struct {
		name       string
		manifest   func(*Manifest)
		tensors    func(*Tensors)
		file, part string
	}{
		{"no encoder", func(m *Manifest) { m.Encoder = "" }, nil, manifestFile, "encoder"},
		{"not UTF-8", func(m *Manifest) { m.OutputNames = []string{"a", "\xff"} }, nil, manifestFile, "output_names"},
		{"no layers", func(m *Manifest) { m.Layers = 0 }, nil, manifestFile, "extraction_layer_ids"},
		{"negative layers", func(m *Manifest) { m.Layers = -1 }, nil, manifestFile, "extraction_layer_ids"},
		{"endless layers", func(m *Manifest) { m.Layers = 1 << 60 }, nil, manifestFile, "extraction_layer_ids"},
		{"overflowing width", func(m *Manifest) { m.HiddenSize = 1 << 62 }, nil, manifestFile, "hidden_size"},
		{"vllm layers", func(m *Manifest) { m.VLLMLayerIDs = []int{1} }, nil, manifestFile, "vllm_layer_ids"},
		{"members", nil, func(t *Tensors) { t.Members = t.Members[:1] }, manifestFile, "ensemble_size"},
		{"depth", nil, func(t *Tensors) { t.Members[1] = t.Members[1][:1] }, manifestFile, "trunk_hidden"},
		{"no depth", nil, func(t *Tensors) { t.Members[1] = nil }, manifestFile, "trunk_hidden"},
		{"length", nil, func(t *Tensors) { t.PCAMean = t.PCAMean[1:] }, defaultTensorFile, "transform.pca_mean"},
		{"nothing", nil, func(t *Tensors) { t.Members[0][0].Bias = nil }, defaultTensorFile, "ensemble.0.linear1.bias"},
		{"NaN", nil, func(t *Tensors) { t.PCAComponents[3] = nan }, defaultTensorFile, "transform.pca_components"},
		{"scale", nil, func(t *Tensors) { t.ScalerScale[0] = 0 }, defaultTensorFile, "transform.scaler_scale"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := smallManifest()
			tensors := zeroTensors(m)
			if tt.manifest != nil {
				tt.manifest(&m)
			}
			if tt.tensors != nil {
				tt.tensors(tensors)
			}
			parent := t.TempDir()
			err := Save(filepath.Join(parent, "router"), m, *tensors)
			checkPart(t, err, tt.file, tt.part)
			checkEntries(t, parent)
		})
	}
}

func TestSaveNamesTheFolderItCannotWrite(t *testing.T) {
	m := smallManifest()
	err := Save(filepath.Join(t.TempDir(), "nowhere", "router"), m, *zeroTensors(m))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want %v", err, fs.ErrNotExist)
	}
}

func checkEntries(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("%s holds (-want +got):\n%s", dir, diff)
	}
}
