package scorer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// badCheckpoints says what is to blame in each folder of testdata/bad_checkpoints.
var badCheckpoints = map[string]struct{ file, part string }{
	"duplicate_outputs":   {manifestFile, "output_names"},
	"empty_folder":        {manifestFile, ""},
	"extra_tensor":        {defaultTensorFile, `"extra"`},
	"f16_weight":          {defaultTensorFile, "transform.pca_mean"},
	"format_version_2":    {manifestFile, "format_version"},
	"garbage_metadata":    {manifestFile, ""},
	"garbage_tensors":     {defaultTensorFile, ""},
	"hidden_zero":         {manifestFile, "hidden_size"},
	"inf_weight":          {defaultTensorFile, "ensemble.2.linear1.weight"},
	"layer_gap":           {manifestFile, "extraction_layer_ids"},
	"link":                {manifestFile, "probability_link"},
	"missing_tensor":      {defaultTensorFile, "ensemble.1.linear2.bias"},
	"nan_weight":          {defaultTensorFile, "ensemble.2.linear1.weight"},
	"negative_scale":      {defaultTensorFile, "transform.scaler_scale"},
	"no_layers":           {manifestFile, "extraction_layer_ids"},
	"no_outputs":          {manifestFile, "output_names"},
	"no_tensor_file":      {defaultTensorFile, ""},
	"pca_dim_wrong":       {defaultTensorFile, "transform.pca_components"},
	"raw_dim_off_by_one":  {manifestFile, "raw_feature_dim"},
	"reduction":           {manifestFile, "ensemble_reduction"},
	"representation":      {manifestFile, "representation"},
	"tensor_file_escapes": {manifestFile, "tensor_file"},
	"too_few_members":     {defaultTensorFile, `"ensemble.2.linear1.bias"`},
	"too_many_members":    {defaultTensorFile, "ensemble.3.linear1.weight"},
	"training_mode":       {manifestFile, "training_mode"},
	"trunk_mismatch":      {defaultTensorFile, "ensemble.0.linear2.weight"},
	"trunk_too_long":      {defaultTensorFile, "ensemble.0.linear3.weight"},
	"two_blocks":          {manifestFile, "feature_block_count"},
	"whitened":            {manifestFile, "pca_whiten"},
	"zero_members":        {manifestFile, "ensemble_size"},
	"zero_scale":          {defaultTensorFile, "transform.scaler_scale"},
}

func TestLoadRefusesBadCheckpoints(t *testing.T) {
	folders, err := os.ReadDir("testdata/bad_checkpoints")
	if err != nil {
		t.Fatal(err)
	}
	if len(folders) != len(badCheckpoints) {
		t.Errorf("%d folders, %d expectations", len(folders), len(badCheckpoints))
	}
	for _, folder := range folders {
		t.Run(folder.Name(), func(t *testing.T) {
			want, ok := badCheckpoints[folder.Name()]
			if !ok {
				t.Fatal("no expectation")
			}
			dir := filepath.Join("testdata", "bad_checkpoints", folder.Name())
			_, err := Load(dir)
			checkPart(t, err, want.file, want.part)
			if !strings.Contains(err.Error(), dir) {
				t.Errorf("%q does not name the folder", err)
			}
		})
	}
}

func TestLoadDerivesSizes(t *testing.T) {
	tests := map[string]struct {
		want    Manifest
		tensors int
	}{
		"seed-shape": {Manifest{
			Encoder: "probe/seed-shape", Layers: 4, HiddenSize: 64, PCADim: 200, TrunkHidden: []int{256, 128},
			EnsembleSize: 5, OutputNames: []string{"qwen-122b", "nemotron-3-super", "opus-4.7", "gpt-5.5"},
		}, 34},
		"three-layer-trunk": {Manifest{
			Encoder: "probe/three-layer-trunk", Layers: 3, HiddenSize: 32, PCADim: 24, TrunkHidden: []int{48, 32, 16},
			EnsembleSize: 3, OutputNames: []string{"a", "b", "c"},
		}, 28},
		"single-member": {Manifest{
			Encoder: "probe/single-member", Layers: 1, HiddenSize: 40, PCADim: 16, TrunkHidden: []int{12},
			EnsembleSize: 1, OutputNames: []string{"s", "w"},
		}, 8},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := mustLoad(t, name)
			if diff := cmp.Diff(tt.want, c.Manifest()); diff != "" {
				t.Errorf("manifest (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want.OutputNames, c.Heads()); diff != "" {
				t.Errorf("heads (-want +got):\n%s", diff)
			}
			if n := len(slots(c.manifest, c.tensors)); n != tt.tensors {
				t.Errorf("%d tensors, want %d", n, tt.tensors)
			}
		})
	}
}

func TestManifestAndHeadsBelongToTheCaller(t *testing.T) {
	c := mustLoad(t, "tiny")
	c.Heads()[0] = "changed"
	m := c.Manifest()
	m.OutputNames[0], m.TrunkHidden[0] = "changed", 99
	if c.Heads()[0] != "weak" || c.Manifest().TrunkHidden[0] != 4 {
		t.Error("the checkpoint changed with what it returned")
	}
}

func TestDigestCoversBothFilesAndTheirBorder(t *testing.T) {
	dir := copyFolder(t, "testdata/checkpoints/tiny")
	manifest, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := os.ReadFile(filepath.Join(dir, defaultTensorFile))
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(manifest))))
	h.Write(manifest)
	h.Write(tensors)
	want := "sha256:" + hex.EncodeToString(h.Sum(nil))
	if got := mustLoad(t, "tiny").Digest(); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}

	tensors[len(tensors)-1] ^= 1 // the sign or exponent of the last value
	writeTestFile(t, filepath.Join(dir, defaultTensorFile), tensors)
	c, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c.Digest() == want {
		t.Error("a changed tensor leaves the digest as it was")
	}
	tensors[len(tensors)-1] ^= 1
	writeTestFile(t, filepath.Join(dir, defaultTensorFile), tensors)
	writeTestFile(t, filepath.Join(dir, manifestFile), append(manifest, '\n'))
	if c, err = Load(dir); err != nil {
		t.Fatal(err)
	}
	if c.Digest() == want {
		t.Error("a changed router.json leaves the digest as it was")
	}
}

func TestCheckpointOutlivesItsFiles(t *testing.T) {
	dir := copyFolder(t, "testdata/checkpoints/worked")
	c, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Score([]float32{1.5, 3.5, 5.5, 7.5}); err != nil {
		t.Error(err)
	}
}

func TestLoadFollowsLinksThatStayInside(t *testing.T) {
	dir := copyFolder(t, "testdata/checkpoints/worked")
	want := mustLoad(t, "worked").Digest()

	// A mounted Kubernetes volume: files link to a folder that is itself a link.
	version := filepath.Join(dir, "..v1")
	if err := os.Mkdir(version, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{manifestFile, defaultTensorFile} {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(version, name)); err != nil {
			t.Fatal(err)
		}
		link(t, filepath.Join("..data", name), filepath.Join(dir, name))
	}
	link(t, "..v1", filepath.Join(dir, "..data"))
	// And the folder itself is reached through one.
	outside := filepath.Join(t.TempDir(), "current")
	link(t, dir, outside)

	c, err := Load(outside)
	if err != nil {
		t.Fatal(err)
	}
	if c.Digest() != want {
		t.Errorf("digest %s, want %s", c.Digest(), want)
	}
}

func TestLoadRefusesWhatIsNotAFileOfTheFolder(t *testing.T) {
	elsewhere, err := filepath.Abs("testdata/checkpoints/worked")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{manifestFile, defaultTensorFile} {
		for kind, create := range map[string]func(path string) error{
			"link outside": func(path string) error { return os.Symlink(filepath.Join(elsewhere, name), path) },
			"dangling":     func(path string) error { return os.Symlink("nothing", path) },
			"folder":       func(path string) error { return os.Mkdir(path, 0o700) },
			"fifo":         func(path string) error { return syscall.Mkfifo(path, 0o600) }, // would block an ordinary open
			"missing":      func(string) error { return nil },
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				dir := copyFolder(t, "testdata/checkpoints/worked")
				path := filepath.Join(dir, name)
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if err := create(path); err != nil {
					t.Fatal(err)
				}
				_, err := Load(dir)
				checkPart(t, err, name, "")
			})
		}
	}
}

func TestLoadNamesAMissingFolder(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "nowhere"))
	checkPart(t, err, manifestFile, "")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v does not wrap the cause", err)
	}
}

func TestLoadBoundsRouterJSON(t *testing.T) {
	dir := copyFolder(t, "testdata/checkpoints/worked")
	path := filepath.Join(dir, manifestFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.Repeat(" ", maxManifestBytes-len(data))
	writeTestFile(t, path, append(data, fill...))
	if _, err := Load(dir); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	writeTestFile(t, path, append(data, fill+" "...))
	_, err = Load(dir)
	checkPart(t, err, manifestFile, "")
}

// Metadata comes first: with both files at fault, router.json is blamed, and the
// tensor file is not opened.
func TestLoadValidatesMetadataFirst(t *testing.T) {
	dir := copyFolder(t, "testdata/bad_checkpoints/format_version_2")
	if err := os.Remove(filepath.Join(dir, defaultTensorFile)); err != nil {
		t.Fatal(err)
	}
	_, err := Load(dir)
	checkPart(t, err, manifestFile, "format_version")
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}
