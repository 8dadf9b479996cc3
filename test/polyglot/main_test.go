package polyglot

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// repoRoot is the repository, seen from this package.
const repoRoot = "../.."

// startTimeout is how long a program may take to listen: a JVM on a busy machine
// takes seconds.
const startTimeout = time.Minute

// needE2E skips a test that needs more than Go.
func needE2E(t *testing.T) {
	t.Helper()
	if os.Getenv("POINTSMAN_E2E") == "" {
		t.Skip("needs language toolchains and package registries: run make e2e-polyglot")
	}
}

// need fails a test for a program that is missing, and says how to get it.
func need(t *testing.T, program, how string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("%s is missing: %s", program, how)
	}
}

// binary builds the real program once a test run.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs(filepath.Join(repoRoot, "dist", "e2e"))
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "pointsman")
	cmd := exec.Command("go", "build", "-o", path, "./server/cmd/pointsman")
	cmd.Dir, cmd.Env = repoRoot, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build pointsman: %w\n%s", err, out)
	}
	return path, nil
})

var (
	grpcLine   = regexp.MustCompile(`^gRPC\s+(\S+)`)
	listenLine = regexp.MustCompile(`^listening on (\S+)`)
)

// startDemo runs `pointsman demo` and returns its gRPC address.
func startDemo(t *testing.T) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, exec.Command(path, "demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"), grpcLine)
}

// ask asks a server directly: what the programs under test are compared with, so
// that they follow whatever the demo serves.
func ask(t *testing.T, address, task string) *pointsmanv1.DecideResponse {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answer, err := pointsmanv1.NewDecisionServiceClient(conn).Decide(t.Context(), &pointsmanv1.DecideRequest{
		Input: &pointsmanv1.DecideRequest_Task{Task: task},
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// start runs a program until the test ends and returns what the pattern finds in
// the first line of its output that matches.
func start(t *testing.T, cmd *exec.Cmd, pattern *regexp.Regexp) string {
	t.Helper()
	lines, ended := launch(t, cmd)
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	for {
		select {
		case line := <-lines:
			if m := pattern.FindStringSubmatch(line); m != nil {
				return m[1]
			}
		case <-ended:
			t.Fatalf("%s ended before it listened", cmd)
		case <-timeout.C:
			t.Fatalf("%s does not listen after %v", cmd, startTimeout)
		}
	}
}

// launch runs a program until the test ends. It returns the first lines of its
// output, and what is closed when the output ends.
func launch(t *testing.T, cmd *exec.Cmd) (lines <-chan string, ended <-chan struct{}) {
	t.Helper()
	// A group of its own, so that what a wrapper starts ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const most = 100 // lines before the one that is waited for
	first, read := make(chan string, most), make(chan struct{})
	go func() {
		defer close(read)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			_, _ = log.Write(append(scanner.Bytes(), '\n'))
			select {
			case first <- scanner.Text():
			default:
			}
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		kill := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		<-read
		_ = cmd.Wait()
		kill.Stop()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(cmd.Path), log.String())
		}
	})
	return first, read
}

// run runs a command to its end in a folder, and fails the test with its output.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	// The last pipes may be held by what the command has started.
	cmd.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, tail(stdout.String()), tail(stderr.String()))
	}
	return stdout.String()
}

// tail keeps the end of an output that may be endless.
func tail(s string) string {
	const most = 8 << 10
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// copyDir copies a folder of the repository into a fresh one, so that building it
// leaves nothing behind.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(filepath.Join(repoRoot, from))); err != nil {
		t.Fatal(err)
	}
}

// mavenEnv gives Maven a repository of this checkout: what the tests install is
// nobody else's.
func mavenEnv(t *testing.T) []string {
	t.Helper()
	repository, err := filepath.Abs(filepath.Join(repoRoot, "dist", "e2e", "m2"))
	if err != nil {
		t.Fatal(err)
	}
	return []string{"MAVEN_OPTS=-Dmaven.repo.local=" + repository}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

var _ io.Writer = (*lockedBuffer)(nil)

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
