package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// startPatience is how long a process may take until it accepts connections.
const startPatience = 20 * time.Second

// processes are those of one run. They end with it.
type processes struct {
	dir     string // for their output
	self    string // this program; empty: the running one
	server  string // the build that plays Pointsman; empty: the same
	mu      sync.Mutex
	running []*process
	conns   []io.Closer // to them
}

// process is one process of the run.
type process struct {
	name  string
	addr  string // where it listens
	stats string // where it tells of itself, if it is one of ours
	cmd   *exec.Cmd
	stdin io.Closer
	log   string
}

// child starts a part of this program, which will listen at addr, in a process of its
// own.
func (p *processes) child(ctx context.Context, name, addr, part string, args ...string) (*process, error) {
	self := p.self
	if part == partServe && p.server != "" {
		self = p.server
	}
	if self == "" {
		var err error
		if self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	statsAddr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	return p.start(ctx, process{name: name, addr: addr, stats: statsAddr},
		exec.Command(self, append([]string{"child", part, "--stats", statsAddr}, args...)...)) //nolint:gosec,noctx // this program; ended by stop
}

// start starts a process and waits until it accepts connections.
func (p *processes) start(ctx context.Context, started process, cmd *exec.Cmd) (*process, error) {
	started.cmd, started.log = cmd, filepath.Join(p.dir, started.name+".log")
	output, err := os.Create(started.log)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the process has its own
	cmd.Stdout, cmd.Stderr = output, output
	if started.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", started.name, err)
	}
	p.mu.Lock()
	p.running = append(p.running, &started)
	p.mu.Unlock()
	for deadline := time.Now().Add(startPatience); ; time.Sleep(10 * time.Millisecond) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", started.addr)
		if err == nil {
			return &started, conn.Close()
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return nil, fmt.Errorf("%s does not listen: %w; it said: %s", started.name, err, tail(started.log))
		}
	}
}

// stop ends all processes and waits for them.
func (p *processes) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, conn := range p.conns {
		errs = append(errs, conn.Close())
	}
	p.conns = nil
	for _, one := range p.running {
		_ = one.stdin.Close()
		if one.stats == "" { // not one of ours: it does not look at its input
			_ = one.cmd.Process.Signal(os.Interrupt)
		}
	}
	for _, one := range p.running {
		kill := time.AfterFunc(startPatience, func() { _ = one.cmd.Process.Kill() })
		if err := one.cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("%s ended with %w; it said: %s", one.name, err, tail(one.log)))
		}
		kill.Stop()
	}
	p.running = nil
	return errors.Join(errs...)
}

// read asks a child for its stats, after a garbage collection if gc is set.
func (p *process) read(ctx context.Context, gc bool) (stats, error) {
	url := "http://" + p.stats + "/stats"
	if gc {
		url += "?gc=1"
	}
	var s stats
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return s, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, fmt.Errorf("stats of %s: %w", p.name, err)
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// profile writes a CPU profile of a child over the given time.
func (p *process) profile(ctx context.Context, path string, d time.Duration) error {
	url := fmt.Sprintf("http://%s/profile?seconds=%d", p.stats, max(1, int(d.Seconds())))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("profile of %s: %w", p.name, err)
	}
	defer resp.Body.Close()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, resp.Body)
	return errors.Join(err, file.Close())
}

// freeAddr returns a loopback address that nothing listens on.
func freeAddr(ctx context.Context) (string, error) {
	listener, err := listen(ctx, "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// tail returns the end of a log.
func tail(path string) string {
	const most = 2000
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(data[max(0, len(data)-most):]))
}
