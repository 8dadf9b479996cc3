package rediscache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/cache/cachetest"
	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
)

func linesOf(text string) iter.Seq[string] { return strings.Lines(text) }

func TestClusterIsASharedLayer(t *testing.T) {
	nodes := redistest.StartCluster(t, 3, 0)
	var hosts []string
	for _, n := range nodes {
		hosts = append(hosts, n.Addr)
	}
	c := connect(t, config("redis+cluster://"+strings.Join(hosts, ",")))
	cachetest.RunShared(t, func(*testing.T) cache.SharedLayer { return c })
	cachetest.RunLadder(t, true, func(t *testing.T, n int) (ladders []*cache.Ladder[string]) {
		for range n {
			ladders = append(ladders, ladder(t, c, nil))
		}
		return ladders
	})
	for i, n := range nodes {
		if len(names(t, n.Client())) == 0 {
			t.Errorf("node %d holds nothing: keys are not spread", i)
		}
	}
}

func TestClusterFailoverLosesNoAnswer(t *testing.T) {
	nodes := redistest.StartCluster(t, 3, 1)
	cfg := config("redis+cluster://" + nodes[0].Addr + "," + nodes[1].Addr)
	cfg.OpenFor = 100 * time.Millisecond
	c := connect(t, cfg)
	load := startLoad(t, 8, ladder(t, c, nil), ladder(t, c, nil))
	time.Sleep(300 * time.Millisecond)
	nodes[2].Kill()
	survivors := slices.Delete(slices.Clone(nodes), 2, 3)
	eventually(t, "a replica has taken over", func() bool {
		info, err := nodes[0].Client().ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_fail:0") &&
			strings.Contains(info, "cluster_slots_pfail:0")
	})
	a, b := ladder(t, c, nil), ladder(t, c, nil)
	for i := range 30 { // over all slots
		key := keyOf(fmt.Sprint("after ", i))
		eventually(t, "values are shared again in every slot", func() bool {
			_, err := a.Get(t.Context(), key, cache.Options{Policy: cache.Refresh}, compute("v"))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
			r, err := b.Get(t.Context(), key, cache.Options{Policy: cache.OnlyIfCached}, nil)
			return err == nil && r.Value == "v"
		})
	}
	load.end(t)
	eventually(t, "no lease is left", func() bool {
		for _, n := range survivors {
			if len(leases(t, n)) != 0 {
				return false
			}
		}
		return true
	})
}

func TestSentinelFindsTheMasterAndItsSuccessor(t *testing.T) {
	master := redistest.Start(t, "--requirepass", "pw", "--masterauth", "pw")
	_, masterPort, _ := strings.Cut(master.Addr, ":")
	replica := redistest.Start(t, "--requirepass", "pw", "--masterauth", "pw", "--replicaof", "127.0.0.1 "+masterPort)
	sentinel := startSentinel(t, masterPort)

	cfg := config("redis+sentinel://" + sentinel + "/main")
	cfg.Password, cfg.OpenFor = "pw", 100*time.Millisecond
	c := connect(t, cfg)
	if err := c.Store(t.Context(), cache.Lease{Key: keyOf("a")}, []byte("v"), time.Minute); err != nil {
		t.Fatal(err)
	}
	withPassword := func(o *redis.Options) { o.Password = "pw" }
	eventually(t, "the replica has the value", func() bool { return len(names(t, replica.Client(withPassword))) > 0 })

	load := startLoad(t, 4, ladder(t, c, nil))
	master.Kill()
	for range cfg.Failures { // its death is noticed
		_, _ = c.Read(t.Context(), keyOf("a"))
	}
	eventually(t, "the successor is in use", func() bool {
		return c.Store(context.Background(), cache.Lease{Key: keyOf("b")}, []byte("v"), time.Minute) == nil
	})
	if got, err := c.Read(t.Context(), keyOf("a")); err != nil || string(got.Value) != "v" {
		t.Errorf("the successor has %q, %v", got.Value, err)
	}
	load.end(t)
}

// startSentinel starts a sentinel that watches the master "main" and returns its address.
func startSentinel(t *testing.T, masterPort string) string {
	t.Helper()
	port := strconv.Itoa(redistest.FreePort(t))
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "port " + port + "\nbind 127.0.0.1\n" +
		"sentinel monitor main 127.0.0.1 " + masterPort + " 1\nsentinel auth-pass main pw\n" +
		"sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("redis-server", file, "--sentinel")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	client := redis.NewSentinelClient(&redis.Options{Addr: "127.0.0.1:" + port, Protocol: 2})
	t.Cleanup(func() { _ = client.Close() })
	eventually(t, "the sentinel knows the replica", func() bool {
		replicas, err := client.Replicas(context.Background(), "main").Result()
		return err == nil && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok"
	})
	return "127.0.0.1:" + port
}

func TestNoSentinelIsNoConnection(t *testing.T) {
	c, err := New(config(fmt.Sprintf("redis+sentinel://127.0.0.1:%d/main", redistest.FreePort(t))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Check(t.Context()); !errors.Is(err, ErrConnect) {
		t.Errorf("check: %v, want ErrConnect", err)
	}
}
