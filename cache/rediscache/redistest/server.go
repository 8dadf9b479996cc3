// Package redistest starts real Redis servers for tests, on free loopback ports, and puts them into trouble. It needs redis-server on
// the PATH (Debian: apt-get install redis-server).
package redistest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is how long a server may take to do what it is asked; tests share their machine.
const patience = 20 * time.Second

// Server is a redis-server of the test's own. It is killed at the end of the test.
type Server struct {
	Addr string // host:port

	t       testing.TB
	args    []string
	process *exec.Cmd
	exited  chan struct{}
	output  bytes.Buffer
}

// Start starts a server with nothing persisted and waits until it answers. args are added to its command line.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	port := FreePort(tb)
	return startAt(tb, port, append([]string{"--port", strconv.Itoa(port)}, args...))
}

func startAt(tb testing.TB, port int, args []string) *Server {
	tb.Helper()
	s := &Server{
		Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), t: tb,
		args: append([]string{
			"--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", tb.TempDir(), "--daemonize", "no",
		}, args...),
	}
	s.run()
	tb.Cleanup(s.Kill)
	return s
}

func (s *Server) run() {
	s.t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatal("redis-server is not on the PATH: install it (Debian: apt-get install redis-server)")
	}
	s.process = exec.Command(path, s.args...) //nolint:gosec,noctx // a test's own server, ended by Kill
	s.process.Stdout, s.process.Stderr = &s.output, &s.output
	if err := s.process.Start(); err != nil {
		s.t.Fatalf("start redis-server: %v", err)
	}
	s.exited = make(chan struct{})
	go func(p *exec.Cmd, exited chan struct{}) {
		_ = p.Wait()
		close(exited)
	}(s.process, s.exited)

	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if conn, err := net.DialTimeout("tcp", s.Addr, time.Second); err == nil { //nolint:noctx // bounded
			_ = conn.Close()
			return
		}
		select {
		case <-s.exited:
			s.t.Fatalf("redis-server ended: %s", s.output.String())
		default:
		}
		if time.Now().After(deadline) {
			s.t.Fatal("redis-server does not listen")
		}
	}
}

// Signal sends the server a signal: SIGSTOP makes it hang, SIGCONT lets it go on.
func (s *Server) Signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.process.Process.Signal(sig); err != nil {
		s.t.Fatalf("signal redis-server: %v", err)
	}
}

// Kill kills the server and waits for its end. It may be called again.
func (s *Server) Kill() {
	_ = s.process.Process.Kill()
	<-s.exited
}

// Restart starts a killed server again, empty, at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.run()
}

// Client returns a client for looking behind the scenes.
func (s *Server) Client(options ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: s.Addr, Protocol: 2, DisableIdentity: true}
	for _, set := range options {
		set(o)
	}
	c := redis.NewClient(o)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Calls returns how often the server was sent a command: what INFO commandstats says, so commands run by scripts count too.
func (s *Server) Calls(command string) int {
	s.t.Helper()
	text, err := s.Client().Info(context.Background(), "commandstats").Result()
	if err != nil {
		s.t.Fatalf("info: %v", err)
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
			n, _, _ := strings.Cut(rest, ",")
			calls, _ := strconv.Atoi(n)
			return calls
		}
	}
	return 0
}

// FreePort returns a port nobody listens on.
func FreePort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, text, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// StartCluster starts a cluster of so many masters, each with so many replicas, and waits until it is whole. The masters come first.
func StartCluster(tb testing.TB, masters, replicas int) []*Server {
	tb.Helper()
	nodes := make([]*Server, 0, masters*(1+replicas))
	for range masters * (1 + replicas) {
		port, bus := FreePort(tb), FreePort(tb)
		nodes = append(nodes, startAt(tb, port, []string{
			"--port", strconv.Itoa(port), "--cluster-port", strconv.Itoa(bus), "--cluster-enabled", "yes",
			"--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0",
		}))
	}
	args := append(make([]string, 0, len(nodes)+5), "--cluster", "create")
	for _, n := range nodes {
		args = append(args, n.Addr)
	}
	args = append(args, "--cluster-replicas", strconv.Itoa(replicas), "--cluster-yes")
	// The tool finds the bus ports by asking; redis-cli comes with redis-server.
	if out, err := exec.Command("redis-cli", args...).CombinedOutput(); err != nil { //nolint:gosec,noctx // our own nodes; ends by itself
		tb.Fatalf("create the cluster: %v\n%s", err, out)
	}
	for _, n := range nodes {
		c := n.Client()
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			info, err := c.ClusterInfo(context.Background()).Result()
			if err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d", masters)) {
				break
			}
			if time.Now().After(deadline) {
				tb.Fatalf("the cluster does not come up: %v\n%s", err, info)
			}
		}
	}
	return nodes
}
