package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCompose loads the Compose files with the loader that Docker Compose uses, and
// checks what they promise of our container.
func TestCompose(t *testing.T) {
	needE2E(t)
	loader := tool(t, "compose.mod", "github.com/compose-spec/compose-go/v2/cmd")
	files, err := filepath.Glob(repoRoot + "/deploy/compose*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("only %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			out, err := compose(t, loader, file)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var model struct {
				Services map[string]struct {
					Build       struct{ Context, Dockerfile string }
					ReadOnly    bool     `json:"read_only"`
					CapDrop     []string `json:"cap_drop"`
					SecurityOpt []string `json:"security_opt"`
					User        string
					Ports       []struct {
						HostIP string `json:"host_ip"`
					}
					Volumes []struct{ Type, Source, Target string }
				}
			}
			if err := json.Unmarshal(out, &model); err != nil {
				t.Fatal(err)
			}
			ours, ok := model.Services["pointsman"]
			if !ok || !ours.ReadOnly || !slices.Equal(ours.CapDrop, []string{"ALL"}) || !slices.Contains(ours.SecurityOpt, "no-new-privileges:true") {
				t.Errorf("our container is not locked down: %+v", ours)
			}
			if _, err := os.Stat(filepath.Join(ours.Build.Context, ours.Build.Dockerfile)); err != nil {
				t.Errorf("what it builds is not there: %v", err)
			}
			for name, s := range model.Services {
				for _, p := range s.Ports {
					if p.HostIP != "127.0.0.1" {
						t.Errorf("%s is open to the network: %v", name, s.Ports)
					}
				}
			}
			// Both see the shared folder under one path, and are one user.
			if vllm, ok := model.Services["vllm"]; ok {
				if vllm.User != "65532:65532" || !strings.Contains(read(t, "deploy/Dockerfile"), "USER "+vllm.User) {
					t.Errorf("vLLM is another user: %s", vllm.User)
				}
				shared := 0
				for _, a := range ours.Volumes {
					for _, b := range vllm.Volumes {
						if a.Type == "volume" && a == b {
							shared++
						}
					}
				}
				if shared != 1 {
					t.Errorf("they share %d folders: %v and %v", shared, ours.Volumes, vllm.Volumes)
				}
			}
		})
	}
}

// TestSystemdUnit has systemd read the unit, where there is systemd.
func TestSystemdUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	unit := filepath.Join(t.TempDir(), "pointsman.service")
	// It looks for the programs too: one that is there stands in.
	text := strings.ReplaceAll(read(t, "deploy/systemd/pointsman.service"), "/usr/local/bin/pointsman", "/bin/true")
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput()
	if err != nil || strings.Contains(string(out), "pointsman.service") {
		t.Errorf("%v\n%s", err, out)
	}
}

// compose runs the loader in the file's folder, which it takes for the project's.
func compose(t *testing.T, loader, file string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), loader, "--format", "json", filepath.Base(file))
	cmd.Dir = filepath.Dir(file)
	return cmd.CombinedOutput()
}
