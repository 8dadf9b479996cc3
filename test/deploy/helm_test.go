package deploy

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// chart is the Helm chart, seen from this package.
const chart = repoRoot + "/deploy/helm/pointsman"

// needE2E skips a test that fetches more modules than the product and its tests.
func needE2E(t *testing.T) {
	t.Helper()
	if os.Getenv("POINTSMAN_E2E") == "" {
		t.Skip("builds tools outside the product's module: run make e2e")
	}
}

// tool builds a program of a module file beside this test, and keeps it in dist.
func tool(t *testing.T, module, pkg string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(repoRoot, "dist", "e2e", strings.TrimSuffix(module, ".mod")))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-modfile=test/deploy/"+module, "-o", path, pkg)
	cmd.Dir = repoRoot
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// helm runs the real Helm, with nothing of the user's own.
func helm(t *testing.T, path string, args ...string) (string, error) {
	t.Helper()
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG=/dev/null")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = errors.New(stderr.String() + string(out))
	}
	return string(out), err
}

// TestChart lints and renders the chart with every values file there is, and checks
// what comes out against Kubernetes' schemas and against what we promise of it.
func TestChart(t *testing.T) {
	needE2E(t)
	helmPath := tool(t, "helm.mod", "helm.sh/helm/v4/cmd/helm")
	validatePath := tool(t, "kubectl-validate.mod", "sigs.k8s.io/kubectl-validate")
	files, err := filepath.Glob(chart + "/ci/*-values.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("only %v, %v", files, err)
	}
	for _, values := range files {
		t.Run(strings.TrimSuffix(filepath.Base(values), "-values.yaml"), func(t *testing.T) {
			if out, err := helm(t, helmPath, "lint", "--strict", chart, "--values", values); err != nil {
				t.Fatalf("lint: %v\n%s", err, out)
			}
			rendered, err := helm(t, helmPath, "template", "release", chart, "--namespace", "ns", "--values", values)
			if err != nil {
				t.Fatalf("template: %v", err)
			}
			for _, version := range []string{"1.25", "1.30"} {
				validate(t, validatePath, version, rendered)
			}
			r := decode(t, rendered)
			t.Run("configuration loads", r.configurationLoads)
			t.Run("pods are restricted", r.podsAreRestricted)
			t.Run("selectors meet", r.selectorsMeet)
			t.Run("memory adds up", r.memoryAddsUp)
			// What is printed after an installation is rendered by this only.
			notes, err := helm(t, helmPath, "install", "release", chart, "--namespace", "ns", "--dry-run=client", "--values", values)
			if err != nil || !strings.Contains(notes, ".ns.svc:") {
				t.Errorf("install --dry-run: %v\n%s", err, notes)
			}
		})
	}
	t.Run("refuses", func(t *testing.T) {
		good := chart + "/ci/vllm-values.yaml"
		for _, tt := range []struct{ name, set, want string }{
			{"an unknown key", "replica=1", "replica"},
			{"no checkpoints", "checkpoints=null", "checkpoints"},
			{"no routes", "config.routes=null", "routes"},
			{"no arguments for vLLM", "vllm.args=null", "args"},
			{"a privileged port", "ports.grpc=443", "grpc"},
			{"root", "runAsUser=0", "runAsUser"},
			{"autoscaling with GPUs", "autoscaling.enabled=true", "a replica is a GPU"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				out, err := helm(t, helmPath, "template", "release", chart, "--values", good, "--set", tt.set)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want an error about %s\n%s", err, tt.want, out)
				}
			})
		}
	})
}

func validate(t *testing.T, path, version, rendered string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, []byte(rendered), 0o600); err != nil {
		t.Fatal(err)
	}
	// ServiceMonitor is of an operator: the part of its definition that we use stands in testdata.
	cmd := exec.CommandContext(t.Context(), path, "--version", version, "--local-crds", "testdata/crds", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("Kubernetes %s: %v\n%s", version, err, out)
	}
}

// manifests are the rendered objects by kind and name.
type manifests map[string]map[string]any

func decode(t *testing.T, rendered string) manifests {
	t.Helper()
	all := manifests{}
	for decoder := yaml.NewDecoder(strings.NewReader(rendered)); ; {
		var object map[string]any
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if object != nil {
			all[at(object, "kind").(string)+"/"+at(object, "metadata", "name").(string)] = object
		}
	}
	return all
}

// at goes down maps; it returns nil where there is nothing.
func at(v any, keys ...string) any {
	for _, key := range keys {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

func (m manifests) ofKind(kind string) []map[string]any {
	var found []map[string]any
	for name, object := range m {
		if strings.HasPrefix(name, kind+"/") {
			found = append(found, object)
		}
	}
	return found
}

// configurationLoads: the ConfigMap is a configuration that the service takes, whose
// ports are the container's, and whose end the pod waits for.
func (m manifests) configurationLoads(t *testing.T) {
	text := at(m.ofKind("ConfigMap")[0], "data", "pointsman.yaml").(string)
	cfg := parse(t, "/etc/pointsman/pointsman.yaml", text)
	pod := m.pod()
	ports := map[string]any{}
	for _, p := range at(container(pod, "pointsman"), "ports").([]any) {
		ports[at(p, "name").(string)] = at(p, "containerPort")
	}
	for name, listen := range map[string]string{"grpc": cfg.GRPC.Listen, "admin": cfg.Admin.Listen} {
		if _, port, _ := strings.Cut(listen, ":"); port != yamlText(t, ports[name]) {
			t.Errorf("the service listens for %s on %s, the container has port %v", name, listen, ports[name])
		}
	}
	grace := at(pod, "terminationGracePeriodSeconds").(int)
	if needed := int((cfg.Shutdown.DrainDelay + cfg.Shutdown.Timeout) / 1e9); grace <= needed {
		t.Errorf("the pod may take %ds to stop, the service takes up to %ds", grace, needed)
	}
	for _, p := range cfg.Probes {
		for _, e := range p.Endpoints {
			if args, ok := at(container(pod, "vllm"), "args").([]any); ok && !strings.Contains(yamlText(t, args), `"shared_storage_path":"`+e.HiddenStatesDir+`"`) {
				t.Errorf("vLLM does not write to %s: %v", e.HiddenStatesDir, args)
			}
		}
	}
}

// podsAreRestricted: what Pod Security's restricted profile asks for.
func (m manifests) podsAreRestricted(t *testing.T) {
	pod := m.pod()
	if at(pod, "automountServiceAccountToken") != false {
		t.Error("the pod gets a token of the API")
	}
	if at(pod, "securityContext", "runAsNonRoot") != true || at(pod, "securityContext", "runAsUser") == 0 {
		t.Errorf("the pod's security context is %v", at(pod, "securityContext"))
	}
	init, _ := at(pod, "initContainers").([]any)
	for _, c := range append(slices.Clone(init), at(pod, "containers").([]any)...) {
		name, security := at(c, "name"), at(c, "securityContext")
		if at(security, "allowPrivilegeEscalation") != false || at(security, "runAsNonRoot") != true ||
			at(security, "seccompProfile", "type") != "RuntimeDefault" || yamlText(t, at(security, "capabilities", "drop")) != "- ALL" {
			t.Errorf("%v is not restricted: %v", name, security)
		}
		if name != "vllm" && at(security, "readOnlyRootFilesystem") != true {
			t.Errorf("%v can write to its root", name)
		}
	}
	if vllm := container(pod, "vllm"); vllm != nil {
		if at(vllm, "readinessProbe") != nil || at(vllm, "startupProbe") != nil {
			t.Error("a probe on vLLM takes cached and fallback answers away while the model loads")
		}
		for _, mount := range at(vllm, "volumeMounts").([]any) {
			if at(mount, "name") == "hidden-states" && strings.HasPrefix(at(mount, "mountPath").(string), "/dev/shm") {
				t.Error("the hidden states are where vLLM's own traffic lives")
			}
		}
	}
}

// selectorsMeet: everything that selects pods selects these, and nothing selects by
// what changes between releases.
func (m manifests) selectorsMeet(t *testing.T) {
	labels, _ := at(m.ofKind("Deployment")[0], "spec", "template", "metadata", "labels").(map[string]any)
	selectors := map[string]any{
		"Deployment":          at(m.ofKind("Deployment")[0], "spec", "selector", "matchLabels"),
		"PodDisruptionBudget": nil, "NetworkPolicy": nil,
	}
	for _, s := range m.ofKind("Service") {
		selectors["Service "+at(s, "metadata", "name").(string)] = at(s, "spec", "selector")
	}
	for _, s := range m.ofKind("PodDisruptionBudget") {
		selectors["PodDisruptionBudget"] = at(s, "spec", "selector", "matchLabels")
	}
	for _, s := range m.ofKind("NetworkPolicy") {
		selectors["NetworkPolicy"] = at(s, "spec", "podSelector", "matchLabels")
	}
	for name, selector := range selectors {
		for key, value := range asMap(selector) {
			if labels[key] != value || key == "app.kubernetes.io/version" || key == "helm.sh/chart" {
				t.Errorf("%s selects %s=%v", name, key, value)
			}
		}
	}
}

// memoryAddsUp: folders in memory count against the container that writes to them.
func (m manifests) memoryAddsUp(t *testing.T) {
	pod := m.pod()
	vllm := container(pod, "vllm")
	if vllm == nil {
		return
	}
	folders := 0
	for _, v := range at(pod, "volumes").([]any) {
		if at(v, "emptyDir", "medium") == "Memory" {
			folders += gibibytes(t, at(v, "emptyDir", "sizeLimit"))
		}
	}
	limit := gibibytes(t, at(vllm, "resources", "limits", "memory"))
	if folders == 0 || limit < folders+16 {
		t.Errorf("vLLM's limit is %d GiB, of which its folders may take %d", limit, folders)
	}
}

func (m manifests) pod() map[string]any {
	return asMap(at(m.ofKind("Deployment")[0], "spec", "template", "spec"))
}

func container(pod map[string]any, name string) map[string]any {
	for _, c := range at(pod, "containers").([]any) {
		if at(c, "name") == name {
			return asMap(c)
		}
	}
	return nil
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func yamlText(t *testing.T, v any) string {
	t.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func gibibytes(t *testing.T, quantity any) int {
	t.Helper()
	var n int
	text, ok := strings.CutSuffix(quantity.(string), "Gi")
	if err := yaml.Unmarshal([]byte(text), &n); !ok || err != nil {
		t.Fatalf("not in GiB: %v", quantity)
	}
	return n
}
