package deploy

import (
	"debug/elf"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestImage does what a Docker engine would do with deploy/Dockerfile, as far as
// that goes without one: its build commands in a folder that holds what the build
// context holds, then the program alone on a read-only root, as nobody.
func TestImage(t *testing.T) {
	needE2E(t)
	dockerfile := read(t, "deploy/Dockerfile")
	build, final, ok := strings.Cut(dockerfile, "\nFROM scratch\n")
	if !ok {
		t.Fatal("the Dockerfile does not end in a stage from scratch")
	}
	source, out := buildContext(t), t.TempDir()
	ran := 0
	for line := range strings.Lines(build) {
		command, isRun := strings.CutPrefix(line, "RUN ")
		if !isRun {
			continue
		}
		ran++
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", strings.ReplaceAll(command, "/out/", out+"/"))
		cmd.Dir, cmd.Env = source, append(os.Environ(), "VERSION=v9.8.7")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("RUN %s: %v\n%s", command, err, text)
		}
	}
	binary := filepath.Join(out, "pointsman")
	if ran != 2 {
		t.Errorf("ran %d commands, want the download and the build", ran)
	}
	t.Run("the final stage uses what was built", func(t *testing.T) {
		for _, want := range []string{"COPY --from=build /out/pointsman /pointsman\n", "USER 65532:65532\n", `ENTRYPOINT ["/pointsman"]`, `"/pointsman", "healthcheck"`} {
			if !strings.Contains(final, want) {
				t.Errorf("the final stage has no %s", want)
			}
		}
	})
	t.Run("it knows its version", func(t *testing.T) {
		text, err := exec.CommandContext(t.Context(), binary, "version").Output()
		if err != nil || !strings.Contains(string(text), "v9.8.7") {
			t.Errorf("%s, %v", text, err)
		}
	})
	t.Run("it is static", func(t *testing.T) { isStatic(t, binary) })
	t.Run("it serves as nobody on a read-only root", func(t *testing.T) { servesLocked(t, binary) })
}

// buildContext copies what git knows, less what .dockerignore names.
func buildContext(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = repoRoot
	files, err := cmd.Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	var ignored []string
	for line := range strings.Lines(read(t, ".dockerignore")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			ignored = append(ignored, line)
		}
	}
	dir := t.TempDir()
	for path := range strings.SplitSeq(strings.TrimRight(string(files), "\x00"), "\x00") {
		if isIgnored(path, ignored) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(repoRoot, path))
		if os.IsNotExist(err) { // deleted, and not yet committed
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// isIgnored knows the two forms that our .dockerignore uses: a path and **/name.
func isIgnored(path string, patterns []string) bool {
	for _, p := range patterns {
		if name, anywhere := strings.CutPrefix(p, "**/"); anywhere {
			if strings.Contains("/"+path, "/"+name+"/") {
				return true
			}
		} else if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// isStatic: no interpreter, no libraries.
func isStatic(t *testing.T, binary string) {
	if runtime.GOOS != "linux" {
		t.Skip("the image is for Linux")
	}
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it has a segment %v: it is not static", p.Type)
		}
	}
}

// servesLocked runs the program as the container would: in a root that holds it, its
// configuration, a checkpoint and the shared folder, mounted read-only but for that
// folder, as a user without a name or rights. Then the image's own health check.
func servesLocked(t *testing.T, binary string) {
	if runtime.GOOS != "linux" || os.Getuid() != 0 || exec.Command("unshare", "--mount", "true").Run() != nil {
		t.Skip("needs root on Linux, and unshare: it makes a root of its own")
	}
	root := filepath.Join(t.TempDir(), "root")
	for _, dir := range []string{"", "etc/pointsman", "checkpoints", "hidden-states"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil { // nobody must get in
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(root, "checkpoints/router"), os.DirFS(filepath.Join(repoRoot, "scorer/testdata/checkpoints/tiny"))); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	const locked = `
grpc: { listen: "127.0.0.1:%s" }
admin: { listen: "127.0.0.1:0" }
routes:
  main:
    probe: p
    checkpoint: /checkpoints/router
    targets:
      - { name: strong, model: a, head: %s, cost: 1 }
      - { name: weak, model: b, head: %s, cost: 0 }
probes:
  p: { encoder: %q, endpoints: [{ base_url: "http://127.0.0.1:1/v1", hidden_states_dir: /hidden-states }] }
`
	encoder, heads := manifest(t, filepath.Join(root, "checkpoints/router/router.json"))
	for path, data := range map[string][]byte{
		"pointsman":                    program,
		"etc/pointsman/pointsman.yaml": fmt.Appendf(nil, locked, freePort(t), heads[0], heads[1], encoder),
	} {
		if err := os.WriteFile(filepath.Join(root, path), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The mounts go with the namespace.
	const script = `
mount --bind "$1" "$1"
mount -t tmpfs -o uid=65532,gid=65532,mode=0700 tmpfs "$1/hidden-states"
mount -o remount,bind,ro "$1"
exec chroot --userspec=65532:65532 "$1" "${@:2}"`
	inside := func(args ...string) *exec.Cmd {
		return exec.Command("unshare", append([]string{"--mount", "bash", "-euc", script, "bash", root}, args...)...)
	}
	const configFile = "/etc/pointsman/pointsman.yaml"
	serve := inside("/pointsman", "serve", "--config", configFile)
	var log strings.Builder
	serve.Stderr = &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()
	var text []byte
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if text, err = inside("/pointsman", "healthcheck", "--config", configFile).CombinedOutput(); err == nil || time.Since(begun) > 30*time.Second {
			break
		}
	}
	if err != nil {
		t.Errorf("the health check says %s, %v", text, err)
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", serve.Process.Pid))
	if !strings.Contains(string(status), "Uid:\t65532\t65532") || !strings.Contains(string(status), "CapEff:\t0000000000000000") {
		t.Errorf("it has rights:\n%s", status)
	}
	if mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", serve.Process.Pid)); !strings.Contains(string(mounts), " / ro") {
		t.Errorf("its root can be written:\n%s", mounts)
	}
	if err := serve.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v:\n%s", err, log.String())
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
