package redistest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Fault is what a [Proxy] does to the traffic.
type Fault int

// The faults.
const (
	Pass      Fault = iota // none
	Delay                  // everything arrives late, by Proxy.DelayBy
	Blackhole              // nothing arrives, nothing is closed
	Reset                  // every connection is reset, new ones too
)

// Proxy is a TCP proxy that does what networks do at their worst.
type Proxy struct {
	Addr    string
	DelayBy time.Duration // set before use

	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed at every change of fault
	conns   map[net.Conn]struct{}
	closed  bool
}

// StartProxy starts a proxy before target, which is closed at the end of the test.
func StartProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{
		Addr: l.Addr().String(), DelayBy: 200 * time.Millisecond,
		target: target, listener: l, changed: make(chan struct{}), conns: map[net.Conn]struct{}{},
	}
	p.running.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Set changes what happens to all connections, those that exist too.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
	if f == Reset {
		for c := range p.conns {
			reset(c)
		}
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	_ = p.listener.Close()
	for c := range p.conns {
		_ = c.Close()
	}
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	if !p.register(client) {
		return
	}
	defer p.forget(client)
	var d net.Dialer
	server, err := d.DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		return
	}
	if !p.register(server) {
		return
	}
	defer p.forget(server)
	var both sync.WaitGroup
	both.Go(func() { p.copy(server, client) })
	both.Go(func() { p.copy(client, server) })
	both.Wait()
}

// register takes note of a connection, or ends it if connections are to be ended.
func (p *Proxy) register(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.fault == Reset {
		reset(c)
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

func (p *Proxy) copy(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !p.hold() {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// hold keeps what was read for as long as the fault says, and returns false if it is never to arrive.
func (p *Proxy) hold() bool {
	for {
		p.mu.Lock()
		fault, changed, closed := p.fault, p.changed, p.closed
		p.mu.Unlock()
		switch {
		case closed || fault == Reset:
			return false
		case fault == Pass:
			return true
		case fault == Delay:
			timer := time.NewTimer(p.DelayBy)
			select {
			case <-timer.C:
				return true
			case <-changed:
				timer.Stop()
			}
		default:
			<-changed
		}
	}
}

// reset ends a connection so that the other side sees a reset and no orderly end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
