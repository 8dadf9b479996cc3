package test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

// besieged is a process of the real program, for those who have no token.
func besieged(t *testing.T) (w *world, r *replica) {
	t.Helper()
	w = start(t, setup{}) // for its stand-in and its checkpoint
	ports := [2]int{redistest.FreePort(t), redistest.FreePort(t)}
	text := strings.Replace(w.yaml, `listen: "127.0.0.1:0"`, fmt.Sprintf("listen: \"127.0.0.1:%d\"\n    reflection: false\n    auth: { tokens_file: %q }", ports[0], writeTokens(t)), 1)
	text = strings.Replace(text, `"127.0.0.1:0"`, fmt.Sprintf(`"127.0.0.1:%d"`, ports[1]), 1)
	file := filepath.Join(w.root, "besieged.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r = startBare(t, buildProgram(t), file, ports)
	eventually(t, func() string {
		if !strings.Contains(r.log.String(), `"msg":"serving"`) {
			return "not serving"
		}
		return ""
	})
	w.addr = fmt.Sprintf("127.0.0.1:%d", ports[0])
	return w, r
}

// resident is how much memory a process holds.
func (r *replica) resident(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.process.Process.Pid))
	if err != nil {
		t.Skip("memory is read from Linux's /proc")
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return kib << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// TestAStrangerCostsNothing: connections, headers and messages of somebody without a
// token cost neither a probe nor memory, and do not keep a caller from being answered.
func TestAStrangerCostsNothing(t *testing.T) {
	w, r := besieged(t)
	friend := dial(t, w.addr)
	ask := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(withToken(t.Context(), plainToken), 5*time.Second)
		defer cancel()
		if resp, err := friend.Decide(ctx, task("a friend")); err != nil || resp.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED {
			t.Errorf("%v %v", resp, err)
		}
	}
	ask()
	idle := r.resident(t)
	const allowed = 128 << 20 // 1024 connections, and a collector that has not come round yet
	grown := func(what string) {
		t.Helper()
		more := r.resident(t) - idle
		if more > allowed {
			t.Errorf("%s took %d MiB", what, more>>20)
		}
		t.Logf("%s took %d KiB", what, max(more, 0)>>10)
	}

	t.Run("idle connections", func(t *testing.T) {
		const many = 10_000
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < many+500 {
			t.Skipf("this process may not open %d files", many)
		}
		conns := make([]net.Conn, 0, many)
		defer func() {
			for _, c := range conns {
				_ = c.Close()
			}
		}()
		for range many {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", w.addr)
			if err != nil {
				break // refused, which is as good
			}
			_, _ = io.WriteString(c, http2.ClientPreface)
			conns = append(conns, c)
		}
		ask()
		grown(fmt.Sprintf("%d idle connections", len(conns)))
	})
	ask()

	t.Run("slow headers", func(t *testing.T) {
		var attack sync.WaitGroup
		for range 200 {
			attack.Go(func() { dribble(t, w.addr) })
		}
		attack.Wait()
		ask()
		grown("200 connections with endless headers")
	})

	t.Run("refused calls", func(t *testing.T) {
		calls := 0
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
			sent, _ := importune(t, w.addr, 50_000)
			calls += sent
		}
		ask()
		grown(fmt.Sprintf("%d calls with time-outs of years", calls))
	})

	t.Run("large messages", func(t *testing.T) {
		large := task(strings.Repeat("x", 15<<20))
		var attack sync.WaitGroup
		for range 4 {
			stranger := dial(t, w.addr)
			for range 8 {
				attack.Go(func() {
					if _, err := stranger.Decide(t.Context(), large); status.Code(err) != codes.Unauthenticated {
						t.Errorf("%v", err)
					}
				})
			}
		}
		attack.Wait()
		ask()
		grown("32 messages of 15 MiB")
	})
	if n := w.sim.Stats().Requests; n != 1 {
		t.Errorf("%d probes; the friend needed 1", n)
	}
}

// dribble opens a stream whose headers never end, and sends what it may.
func dribble(t *testing.T, addr string) {
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	_, _ = io.WriteString(conn, http2.ClientPreface)
	frames := http2.NewFramer(conn, conn)
	_ = frames.WriteSettings()
	_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x40, 1, 'a', 1, 'b'}, EndHeaders: false})
	fragment := append([]byte{0x40, 1, 'a', 100}, bytes.Repeat([]byte("b"), 100)...) // a header of 100 bytes
	for range 100 {
		if frames.WriteContinuation(1, false, fragment) != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestAHostileVLLM lies in every way that could read or remove something outside of
// the folder, take memory, or keep a caller waiting.
func TestAHostileVLLM(t *testing.T) {
	const patience = 500 * time.Millisecond
	var elsewhere atomic.Int64 // requests that a redirect led to
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	_, _ = io.CopyN(zip, &zeros{}, 256<<20)
	_ = zip.Close()

	answers := map[string]http.HandlerFunc{
		"endless body": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, &zeros{})
		},
		"endless drip": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, " "); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		},
		"endless headers": func(w http.ResponseWriter, _ *http.Request) {
			for i := range 10_000 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1000))
			}
		},
		"compressed bomb": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/v1/chat/completions", http.StatusTemporaryRedirect)
		},
		"another protocol, and silence in it": func(w http.ResponseWriter, _ *http.Request) {
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
			_, _ = io.Copy(io.Discard, buffered)
		},
		"early hints without end": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				w.WriteHeader(http.StatusEarlyHints)
			}
		},
		"token ids without end": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"prompt_token_ids":[0`)
			_, _ = io.WriteString(w, strings.Repeat(",0", 7<<20)+`],"kv_transfer_params":{"hidden_states_path":"x.safetensors"}}`)
		},
		"deep JSON": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat(`{"kv_transfer_params":`, 100_000))
		},
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			w := start(t, setup{vllm: answer, grpcYAML: "deadline_margin: 100ms", probeYAML: "request_timeout: 5s\nhealth_interval: 0s", routeYAML: "decide_timeout: 5s"}) // the machine may be busy
			before := memory(t, "VmRSS")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			resp, err := w.client.Decide(ctx, task("Trust me."))
			if err != nil || resp.GetBasis() != pointsmanv1.Basis_BASIS_FALLBACK {
				t.Errorf("%v %v", resp, err)
			}
			grewAtMost(t, before, 96<<20)
			eventually(t, func() string { // nor does it hold its place in the gate for good
				if _, r := w.readyz(t); r.Probes["p"].InFlight > 0 {
					return "still under way"
				}
				return ""
			})
		})
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

// TestAHostileFolder has files that lie: a sparse one of 1 TiB, and names that turn
// into links to a file outside between the look and the opening. What is outside is a
// good artifact, so that an answer made from it would be seen.
func TestAHostileFolder(t *testing.T) {
	var w *world
	var swap atomic.Bool
	var swapping sync.WaitGroup
	ready := make(chan struct{})
	answer := func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-ready
		name := filepath.Join(w.dir, "chatcmpl-"+r.Header.Get("X-Request-Id")+"-0.safetensors")
		outside := filepath.Join(w.root, "secret.safetensors")
		if swap.Load() {
			// The name goes to and fro between an unusable file of the folder and the good
			// one outside, faster than any look.
			stop := time.After(60 * time.Millisecond)
			swapping.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						_ = os.Remove(name)
						return
					default:
					}
					next := name + ".next"
					if i%2 == 0 {
						_ = os.Symlink(outside, next)
					} else {
						_ = os.WriteFile(next, []byte("not ready"), 0o600)
					}
					_ = os.Rename(next, name)
				}
			})
		} else if err := hollow(name, 1<<40); err != nil {
			http.Error(rw, "", http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{"kv_transfer_params": map[string]any{"hidden_states_path": name}})
	}
	w = start(t, setup{vllm: http.HandlerFunc(answer), sim: vllmsim.Config{Layers: layers}, probeYAML: "artifact_timeout: 100ms\nhealth_interval: 0s"})
	secret := filepath.Join(w.root, "secret.safetensors")
	if err := os.WriteFile(secret, goodArtifact(), 0o600); err != nil {
		t.Fatal(err)
	}
	close(ready)
	before := memory(t, "VmRSS")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if resp, err := w.client.Decide(ctx, task("A terabyte of nothing.")); err != nil || reasonName(resp) != "PROBE_ARTIFACT" {
		t.Errorf("%v %v", resp, err)
	}
	grewAtMost(t, before, 64<<20)
	swap.Store(true)
	for i := range 40 {
		resp := w.decide(t, task(fmt.Sprintf("Follow me %d.", i)))
		if resp.GetBasis() != pointsmanv1.Basis_BASIS_FALLBACK {
			t.Fatalf("read what is outside of the folder: %v", resp)
		}
	}
	swapping.Wait()
	if content, err := os.ReadFile(secret); err != nil || !bytes.Equal(content, goodArtifact()) {
		t.Errorf("what is outside of the folder was touched: %v", err)
	}
}

// hollow makes a file of holes with a good header and one row of size bytes.
func hollow(name string, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	tokens := size / (layers * hiddenSize * 2)
	header := artifactHeader(tokens)
	_, err = f.Write(header)
	if err == nil {
		err = f.Truncate(int64(len(header)) + tokens*(layers*hiddenSize*2+8))
	}
	_ = f.Close()
	return err
}

func artifactHeader(tokens int64) []byte {
	states := tokens * layers * hiddenSize * 2
	text := fmt.Sprintf(`{"hidden_states":{"dtype":"BF16","shape":[%d,%d,%d],"data_offsets":[0,%d]},"token_ids":{"dtype":"I64","shape":[%d],"data_offsets":[%d,%d]}}`,
		tokens, layers, hiddenSize, states, tokens, states, states+8*tokens)
	for len(text)%8 != 0 {
		text += " "
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
}

// goodArtifact is a whole artifact of two tokens, every value 1.
func goodArtifact() []byte {
	const tokens = 2
	out := artifactHeader(tokens)
	for range tokens * layers * hiddenSize {
		out = binary.LittleEndian.AppendUint16(out, 0x3f80)
	}
	for i := range tokens {
		out = binary.LittleEndian.AppendUint64(out, uint64(i))
	}
	return out
}

// dial connects without a token, in plaintext.
func dial(t *testing.T, addr string) pointsmanv1.DecisionServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pointsmanv1.NewDecisionServiceClient(conn)
}
