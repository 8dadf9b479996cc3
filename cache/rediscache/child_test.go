package rediscache

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/cachetest"
	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
)

// The test binary plays a whole process when this is set, to a Redis URL.
const childVariable = "POINTSMAN_TEST_CHILD_REDIS"

const computation = 2 * time.Second

// childMain is a process of a fleet: for each line of its input it asks for that task with 100 callers at once. It writes "computing"
// when it computes and the origin of each answer.
func childMain() bool {
	url := os.Getenv(childVariable)
	if url == "" {
		return false
	}
	cfg := DefaultConfig()
	cfg.URL, cfg.OpTimeout = url, 100*time.Millisecond
	var out sync.Mutex
	say := func(text string) {
		out.Lock()
		defer out.Unlock()
		fmt.Println(text)
	}
	shared, err := New(cfg, WithObserver(trouble{say}))
	if err != nil {
		panic(err)
	}
	ladder, err := cache.New(cache.DefaultConfig(), cache.Deps[string]{Shared: shared, Codec: cachetest.Codec{}})
	if err != nil {
		panic(err)
	}
	for !shared.Status().Ready {
		time.Sleep(time.Millisecond)
	}
	say("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		task := in.Text()
		for range 100 {
			go func() {
				r, err := ladder.Get(context.Background(), keyOf(task), cache.Options{}, func(context.Context) (string, error) {
					say("computing")
					time.Sleep(computation)
					return "scores of " + task, nil
				})
				switch {
				case err != nil:
					say("error")
				case r.Value != "scores of "+task:
					say("wrong value")
				default:
					say(fmt.Sprint("origin ", r.Origin))
				}
			}()
		}
	}
	return true
}

// trouble says when an exchange failed that was tried. Then the callers do without Redis, as they should, and compute too.
type trouble struct{ say func(string) }

func (f trouble) Exchange(_ string, _ time.Duration, err error) {
	if err != nil && !errors.Is(err, ErrUnavailable) {
		f.say(redisFailed)
	}
}

func (trouble) StateChanged(Status) {}

const redisFailed = "redis failed"

// undisturbed runs a case until Redis answered every exchange in time, which a busy machine may keep it from, or gives up.
func undisturbed(t *testing.T, run func(t *testing.T) map[string]int) map[string]int {
	t.Helper()
	const attempts = 5
	var counts map[string]int
	for range attempts {
		if counts = run(t); counts[redisFailed] == 0 {
			return counts
		}
		t.Logf("the machine is too busy for Redis to answer in time: %v", counts)
	}
	t.Skipf("Redis did not answer in time in any of %d attempts", attempts)
	return nil
}

// child is another process, running childMain.
type child struct {
	command *exec.Cmd
	ask     func(task string)
	lines   chan string
}

func startChildren(t *testing.T, n int, url string) []*child {
	t.Helper()
	var children []*child
	for range n {
		c := &child{command: exec.Command(os.Args[0]), lines: make(chan string, 1000)}
		c.command.Env = append(os.Environ(), childVariable+"="+url)
		in, err := c.command.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.command.Start(); err != nil {
			t.Fatal(err)
		}
		var reading sync.WaitGroup
		reading.Go(func() {
			defer close(c.lines)
			for s := bufio.NewScanner(out); s.Scan(); {
				c.lines <- s.Text()
			}
		})
		t.Cleanup(func() {
			_ = in.Close()
			_ = c.command.Process.Kill()
			reading.Wait()
			_ = c.command.Wait()
		})
		c.ask = func(task string) { _, _ = fmt.Fprintln(in, task) }
		if line := <-c.lines; line != "ready" {
			t.Fatalf("child said %q", line)
		}
		children = append(children, c)
	}
	return children
}

// fleetSays gathers what the children say until the wanted number of answers has come. seen is called for each line.
func fleetSays(t *testing.T, children []*child, answers int, seen func(c *child, line string)) map[string]int {
	t.Helper()
	type said struct {
		c    *child
		line string
	}
	all := make(chan said)
	stop := make(chan struct{})
	var forwarding sync.WaitGroup
	defer forwarding.Wait()
	defer close(stop)
	for _, c := range children {
		forwarding.Go(func() {
			for {
				select {
				case line, ok := <-c.lines:
					if !ok {
						return
					}
					select {
					case all <- said{c, line}:
					case <-stop:
						return
					}
				case <-stop:
					return
				}
			}
		})
	}
	counts := map[string]int{}
	patience := time.NewTimer(30 * time.Second)
	defer patience.Stop()
	for n := 0; n < answers; {
		select {
		case s := <-all:
			counts[s.line]++
			if strings.HasPrefix(s.line, "origin") || s.line == "error" || s.line == "wrong value" {
				n++
			}
			seen(s.c, s.line)
		case <-patience.C:
			t.Fatalf("only %d of %d answers: %v", n, answers, counts)
		}
	}
	return counts
}

func TestThreeProcessesComputeOnce(t *testing.T) {
	counts := undisturbed(t, func(t *testing.T) map[string]int {
		t.Helper()
		server := redistest.Start(t)
		children := startChildren(t, 3, "redis://"+server.Addr)
		for _, c := range children {
			c.ask("a task")
		}
		return fleetSays(t, children, 300, func(*child, string) {})
	})
	if counts["computing"] != 1 || counts["origin 0"] != 1 || counts["error"] != 0 || counts["wrong value"] != 0 {
		t.Errorf("300 callers in three processes: %v; want one computation and good answers", counts)
	}
}

// layercache 59: the leader dies, and all waiters compute at once.
func TestKilledLeaderIsReplacedOnce(t *testing.T) {
	var server *redistest.Server
	var took time.Duration
	counts := undisturbed(t, func(t *testing.T) map[string]int {
		t.Helper()
		server = redistest.Start(t)
		children := startChildren(t, 3, "redis://"+server.Addr)
		for _, c := range children {
			c.ask("a task")
		}
		var killed time.Time
		counts := fleetSays(t, children, 200, func(c *child, line string) {
			if line == "computing" && killed.IsZero() {
				killed = time.Now()
				_ = c.command.Process.Kill()
			}
		})
		took = time.Since(killed)
		return counts
	})
	if counts["computing"] != 2 || counts["error"] != 0 || counts["wrong value"] != 0 {
		t.Errorf("after the leader was killed: %v; want exactly one more computation and good answers", counts)
	}
	// What was left of the lease, a waiter's pauses, the computation.
	if took > cache.DefaultConfig().LeaseTTL+computation+2*time.Second {
		t.Errorf("the survivors were answered after %v", took)
	}
	eventually(t, "no lease is left", func() bool { return len(leases(t, server)) == 0 })
}

// leases returns the names of all leases.
func leases(t *testing.T, server *redistest.Server) (held []string) {
	t.Helper()
	for _, k := range names(t, server.Client()) {
		if strings.HasSuffix(k, ":l") {
			held = append(held, k)
		}
	}
	return held
}
