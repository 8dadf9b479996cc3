package deploy

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

// script runs a script of deploy/vllm and returns what it prints, and whether it
// ended well.
func script(t *testing.T, env []string, name string, args ...string) (string, bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{filepath.Join(repoRoot, "deploy/vllm", name)}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// TestLaunchArguments: each release gets the flags it wants, and what vLLM is given
// as JSON is JSON.
func TestLaunchArguments(t *testing.T) {
	const noChunks, noPrefixes = "--no-enable-chunked-prefill", "--no-enable-prefix-caching"
	for _, tt := range []struct {
		version string
		old     bool // needs the flags of the time before the rework
	}{
		{"0.17.0", true}, {"0.21.3", true}, {"0.22.0", true}, {"v0.23.0", true}, {"0.24.0", false}, {"0.28.0", false}, {"0.31.0", false}, {"1.0.0", false},
	} {
		t.Run(tt.version, func(t *testing.T) {
			out, ok := script(t, []string{"PRINT=1", "VLLM_VERSION=" + tt.version}, "launch.sh", "Qwen/Qwen3-8B", "9,18,27,36", "/dev/shm/pointsman", "--port", "8123")
			if !ok {
				t.Fatal(out)
			}
			args := strings.Split(strings.TrimSpace(out), "\n")
			args = slices.DeleteFunc(args, func(a string) bool { return strings.HasPrefix(a, "launch.sh: ") })
			if slices.Contains(args, noChunks) != tt.old || slices.Contains(args, noPrefixes) != tt.old {
				t.Errorf("arguments %q", args)
			}
			if args[0] != "Qwen/Qwen3-8B" || args[len(args)-1] != "8123" {
				t.Errorf("arguments %q", args)
			}
			var speculative struct {
				Method string
				Tokens int `json:"num_speculative_tokens"`
				Draft  struct {
					Config struct {
						Layers []int `json:"eagle_aux_hidden_state_layer_ids"`
					} `json:"hf_config"`
				} `json:"draft_model_config"`
			}
			argument(t, args, "--speculative-config", &speculative)
			if speculative.Method != "extract_hidden_states" || speculative.Tokens != 1 || !slices.Equal(speculative.Draft.Config.Layers, []int{9, 18, 27, 36}) {
				t.Errorf("speculative config %+v", speculative)
			}
			var transfer struct {
				Connector string `json:"kv_connector"`
				Role      string `json:"kv_role"`
				Extra     struct {
					Folder string `json:"shared_storage_path"`
				} `json:"kv_connector_extra_config"`
			}
			argument(t, args, "--kv-transfer-config", &transfer)
			if transfer.Connector != "ExampleHiddenStatesConnector" || transfer.Role != "kv_producer" || transfer.Extra.Folder != "/dev/shm/pointsman" {
				t.Errorf("transfer config %+v", transfer)
			}
		})
	}
	for _, tt := range []struct {
		name, version string
		args          []string
	}{
		{"before the connector", "0.16.2", []string{"m", "1", "/f"}},
		{"no version", "x", []string{"m", "1", "/f"}},
		{"layers out of order", "0.28.0", []string{"m", "18,9", "/f"}},
		{"a layer twice", "0.28.0", []string{"m", "9,9", "/f"}},
		{"layers that are none", "0.28.0", []string{"m", "9,]}}", "/f"}},
		{"a relative folder", "0.28.0", []string{"m", "9", "f"}},
		{"a quote in the folder", "0.28.0", []string{"m", "9", `/f"`}},
		{"too few", "0.28.0", []string{"m", "9"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if out, ok := script(t, []string{"PRINT=1", "VLLM_VERSION=" + tt.version}, "launch.sh", tt.args...); ok {
				t.Errorf("it printed %s", out)
			}
		})
	}
}

// argument decodes the JSON that follows a flag.
func argument(t *testing.T, args []string, flag string, into any) {
	t.Helper()
	i := slices.Index(args, flag)
	if i < 0 || i+1 == len(args) {
		t.Fatalf("no %s in %q", flag, args)
	}
	if err := json.Unmarshal([]byte(args[i+1]), into); err != nil {
		t.Errorf("%s: %v", flag, err)
	}
}

// TestChartArguments: the chart's first example has the arguments that launch.sh
// prints, so that the two cannot drift apart.
func TestChartArguments(t *testing.T) {
	var values struct {
		VLLM struct{ Args []string } `yaml:"vllm"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/helm/pointsman/ci/vllm-values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(repoRoot, "deploy/vllm/launch.sh"), "Qwen/Qwen3-8B", "9,18,27,36", "/hidden-states/pointsman")
	cmd.Env = append(os.Environ(), "PRINT=1", "VLLM_VERSION=0.28.0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Split(strings.TrimSpace(string(out)), "\n"); !slices.Equal(values.VLLM.Args, want) {
		t.Errorf("the chart has %q, launch.sh prints %q", values.VLLM.Args, want)
	}
}

// TestCheckScript asks the stand-in for vLLM, in each regime of writing files, and
// servers that Pointsman could not use.
func TestCheckScript(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the script needs curl")
	}
	const model, key = "test/model", "a-key"
	for _, tt := range []struct {
		name   string
		config vllmsim.Config
		model  string
		key    string
		ok     bool
		want   string
	}{
		{name: "no lock", config: vllmsim.Config{Regime: vllmsim.RegimeA}, ok: true, want: "no lock file"},
		{name: "written around the answer", config: vllmsim.Config{Regime: vllmsim.RegimeB, WriteDelay: 50 * time.Millisecond}, ok: true, want: "with a lock file"},
		{name: "written after the answer", config: vllmsim.Config{Regime: vllmsim.RegimeC, WriteDelay: 300 * time.Millisecond}, ok: true, want: "with a lock file"},
		{name: "with a key", config: vllmsim.Config{APIKey: key}, key: key, ok: true, want: "good"},
		{name: "a wrong key", config: vllmsim.Config{APIKey: key}, key: "another", want: "status 401"},
		{name: "a wrong model", model: "other", want: "status 404"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.config.Dir, tt.config.Model, tt.config.Layers, tt.config.HiddenSize = dir, model, 2, 8
			sim, err := vllmsim.New(tt.config)
			if err != nil {
				t.Fatal(err)
			}
			web := httptest.NewServer(sim.Handler())
			defer func() {
				web.Close()
				if err := sim.Close(); err != nil {
					t.Error(err)
				}
			}()
			asked := model
			if tt.model != "" {
				asked = tt.model
			}
			out, ok := script(t, []string{"VLLM_API_KEY=" + tt.key}, "check.sh", web.URL+"/v1", asked, dir)
			if ok != tt.ok || !strings.Contains(out, tt.want) {
				t.Errorf("got %v and\n%s\nwant %v and %s", ok, out, tt.ok, tt.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
	t.Run("no connector", func(t *testing.T) {
		web := httptest.NewServer(plainChat{})
		defer web.Close()
		if out, ok := script(t, nil, "check.sh", web.URL+"/v1", model, t.TempDir()); ok || !strings.Contains(out, "the connector is not on") {
			t.Errorf("got %v and\n%s", ok, out)
		}
	})
}
