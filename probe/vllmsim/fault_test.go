package vllmsim_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

// exchange sends one request over a real connection, which some faults break.
// The response's body is still to be read.
func exchange(ctx context.Context, t *testing.T, srv *vllmsim.Server) (*http.Response, error) {
	t.Helper()
	web := httptest.NewServer(srv.Handler())
	t.Cleanup(web.Close)
	client := &http.Client{
		Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, web.URL+"/v1/chat/completions", strings.NewReader(ask(task)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err == nil {
		t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

func TestStatusFaults(t *testing.T) {
	tests := []struct {
		fault       vllmsim.Fault
		status      int
		contentType string
		body        string // what it must contain
	}{
		{vllmsim.Status(503, vllmsim.BodyJSON), 503, "application/json", `{"error":{"code":503,"message":"Service Unavailable","param":null,"type":"Service Unavailable"}}`},
		{vllmsim.Status(401, vllmsim.BodyString), 401, "application/json", `{"error":"Unauthorized"}`},
		{vllmsim.Status(502, vllmsim.BodyHTML), 502, "text/html", "<h1>Bad Gateway</h1>"},
		{vllmsim.Status(429, vllmsim.BodyEmpty), 429, "", ""},
		{vllmsim.Status(204, vllmsim.BodyJSON), 204, "", ""},
		{vllmsim.NotJSON(), 200, "text/html", "<h1>Welcome</h1>"},
		{vllmsim.PathNull(), 200, "application/json", `"kv_transfer_params":null`},
		{vllmsim.PathNumber(), 200, "application/json", `"kv_transfer_params":{"hidden_states_path":42}`},
	}
	for _, test := range tests {
		t.Run(test.fault.String(), func(t *testing.T) {
			srv := start(t, config(t))
			srv.SetFault(test.fault)
			resp, err := exchange(t.Context(), t, srv)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != test.status || resp.Header.Get("Content-Type") != test.contentType {
				t.Errorf("status %d, type %q", resp.StatusCode, resp.Header.Get("Content-Type"))
			}
			if !strings.Contains(string(body), test.body) || test.body == "" && len(body) > 0 {
				t.Errorf("body %s", body)
			}
		})
	}
}

func TestRefusedRequestsLeaveNothingAndSpoiltAnswersLeaveAnArtifact(t *testing.T) {
	for fault, want := range map[vllmsim.Fault]seen{
		vllmsim.Status(500, vllmsim.BodyJSON): {false, lockAbsent},
		vllmsim.Redirect():                    {false, lockAbsent},
		vllmsim.DropEarly():                   {true, lockFree},
		vllmsim.DropMidAnswer():               {true, lockFree},
		vllmsim.PathMissing():                 {true, lockFree},
		vllmsim.CompressedBody():              {true, lockFree},
	} {
		t.Run(fault.String(), func(t *testing.T) {
			cfg := config(t)
			srv := start(t, cfg)
			srv.SetFault(fault)
			if resp, err := exchange(t.Context(), t, srv); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body) // some break off here
			}
			if err := srv.Close(); err != nil {
				t.Fatal(err)
			}
			if got := look(t, cfg.Dir); got != want {
				t.Errorf("found %v, want %v", got, want)
			}
		})
	}
}

func TestRedirectLeadsToAGoodAnswer(t *testing.T) {
	srv := start(t, config(t))
	srv.SetFault(vllmsim.Redirect())
	w := serve(srv, request(t, ask(task)))
	if w.Code != http.StatusTemporaryRedirect {
		t.Fatalf("status %d", w.Code)
	}
	r := request(t, ask(task))
	r.URL.Path = w.Header().Get("Location")
	if path := decode(t, serve(srv, r)).path(t); path == "" {
		t.Error("no path")
	}
}

func TestPathMissingHasNoField(t *testing.T) {
	srv := start(t, config(t))
	srv.SetFault(vllmsim.PathMissing())
	if answer := decode(t, serve(srv, request(t, ask(task)))); answer.KV != nil {
		t.Errorf("kv_transfer_params %s", answer.KV)
	}
}

func TestDropsBreakTheConnection(t *testing.T) {
	t.Run("early", func(t *testing.T) {
		srv := start(t, config(t))
		srv.SetFault(vllmsim.DropEarly())
		if _, err := exchange(t.Context(), t, srv); !errors.Is(err, io.EOF) {
			t.Errorf("error %v, want EOF", err)
		}
	})
	t.Run("mid-answer", func(t *testing.T) {
		srv := start(t, config(t))
		srv.SetFault(vllmsim.DropMidAnswer())
		resp, err := exchange(t.Context(), t, srv)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if !errors.Is(err, io.ErrUnexpectedEOF) || len(body) == 0 {
			t.Errorf("%d bytes, error %v, want some and unexpected EOF", len(body), err)
		}
	})
}

func TestHangLastsUntilTheClientLeaves(t *testing.T) {
	srv := start(t, config(t))
	srv.SetFault(vllmsim.Hang())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := exchange(ctx, t, srv); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	for srv.Stats().Aborted == 0 { // the server learns of it a moment later
		if t.Context().Err() != nil {
			t.Fatal("never counted as aborted")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestHangAndEndlessBodyEndWithClose(t *testing.T) {
	for _, fault := range []vllmsim.Fault{vllmsim.Hang(), vllmsim.EndlessBody()} {
		t.Run(fault.String(), func(t *testing.T) {
			srv := start(t, config(t))
			srv.SetFault(fault)
			asked := make(chan error, 1)
			go func() {
				resp, err := exchange(t.Context(), t, srv)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
				}
				asked <- err
			}()
			for srv.Stats().Requests == 0 {
				time.Sleep(time.Millisecond)
			}
			if err := srv.Close(); err != nil {
				t.Error(err)
			}
			if err := <-asked; err == nil {
				t.Error("the client had a whole answer")
			}
			if aborted := srv.Stats().Aborted; aborted != 0 {
				t.Errorf("%d aborted, though no client left", aborted)
			}
		})
	}
}

func TestEndlessBodyGoesOn(t *testing.T) {
	srv := start(t, config(t))
	srv.SetFault(vllmsim.EndlessBody())
	resp, err := exchange(t.Context(), t, srv)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.CopyN(io.Discard, resp.Body, 32<<20); err != nil {
		t.Errorf("ended after %d bytes: %v", n, err)
	}
	resp.Body.Close() // web.Close waits for the server to notice
}

func TestCompressedBodyIsAGoodAnswerOf64MiB(t *testing.T) {
	srv := start(t, config(t))
	srv.SetFault(vllmsim.CompressedBody())
	resp, err := exchange(t.Context(), t, srv)
	if err != nil {
		t.Fatal(err)
	}
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "gzip" {
		t.Errorf("encoding %q", encoding)
	}
	packed, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if len(packed) > 1<<20 {
		t.Errorf("%d bytes compressed", len(packed))
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	var counted counter
	var answer completion
	if err := json.NewDecoder(io.TeeReader(unpacked, &counted)).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if counted < 64<<20 || answer.path(t) == "" {
		t.Errorf("%d bytes, answer %+v", counted, answer)
	}
}

type counter int

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// play answers one request with the fault in the regime, lets all writers
// finish and returns the answer.
func play(t *testing.T, cfg vllmsim.Config, fault vllmsim.Fault) completion {
	t.Helper()
	srv := start(t, cfg)
	srv.SetFault(fault)
	answer := decode(t, serve(srv, request(t, ask(task))))
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestPathFaults(t *testing.T) {
	base := t.TempDir()
	outside := base + "/outside"
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := vllmsim.Config{Dir: base + "/hs", Model: model, Layers: 2, HiddenSize: 8}
	for fault, pattern := range map[vllmsim.Fault]string{
		vllmsim.PathOutside(outside): outside + "/*.safetensors",
		vllmsim.PathDotDot(outside):  cfg.Dir + "/../outside/*.safetensors",
		vllmsim.PathNested():         cfg.Dir + "/nested/*.safetensors",
		vllmsim.WrongExtension():     cfg.Dir + "/*.bin",
	} {
		t.Run(fault.String(), func(t *testing.T) {
			path := play(t, cfg, fault).path(t)
			if ok, err := filepath.Match(pattern, path); !ok || err != nil {
				t.Errorf("path %q is not %q", path, pattern)
			}
			if p := read(t, path); p.missing != 0 || lockOf(t, path) != lockFree {
				t.Errorf("the artifact there lacks %d bytes, lock %s", p.missing, lockOf(t, path))
			}
		})
	}
}

func TestLockFaults(t *testing.T) {
	for fault, want := range map[vllmsim.Fault]fs.FileMode{
		vllmsim.LockFIFO():                fs.ModeNamedPipe,
		vllmsim.LockDir():                 fs.ModeDir,
		vllmsim.LockSymlink(t.TempDir()):  fs.ModeSymlink,
		vllmsim.None():                    0,
		vllmsim.LockKept(time.Nanosecond): 0,
	} {
		t.Run(fault.String(), func(t *testing.T) {
			path := play(t, config(t), fault).path(t)
			info, err := os.Lstat(path + ".lock")
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Type() != want {
				t.Errorf("lock has type %v, want %v", info.Mode().Type(), want)
			}
			if p := read(t, path); p.missing != 0 {
				t.Errorf("the artifact lacks %d bytes", p.missing)
			}
		})
	}
	t.Run("no-lock", func(t *testing.T) {
		cfg := config(t)
		play(t, cfg, vllmsim.NoLock())
		if got := look(t, cfg.Dir); got != (seen{true, lockAbsent}) {
			t.Errorf("found %v", got)
		}
	})
}

func TestFaultsOverTime(t *testing.T) {
	const d = 2 * time.Second
	type at struct {
		after time.Duration
		want  seen
		half  bool // the file has half of its data
	}
	A, B, C := vllmsim.RegimeA, vllmsim.RegimeB, vllmsim.RegimeC
	tests := []struct {
		fault  vllmsim.Fault
		regime vllmsim.Regime
		at     []at
	}{
		{vllmsim.LockKept(d), A, []at{{0, seen{true, lockHeld}, false}, {d - 1, seen{true, lockHeld}, false}, {d, seen{true, lockFree}, false}}},
		{vllmsim.LockKept(d), B, []at{{0, seen{true, lockHeld}, false}, {d, seen{true, lockFree}, false}}},
		{vllmsim.LockKept(d), C, []at{{0, seen{true, lockHeld}, false}, {d, seen{true, lockFree}, false}}},
		{vllmsim.LockKept(0), C, []at{{time.Hour, seen{true, lockHeld}, false}}},
		{vllmsim.FileLate(d), A, []at{{0, seen{false, lockAbsent}, false}, {d, seen{true, lockAbsent}, false}}},
		{vllmsim.FileLate(d), B, []at{{d - 1, seen{false, lockHeld}, false}, {d, seen{true, lockFree}, false}}},
		{vllmsim.FileLate(d), C, []at{{d - 1, seen{false, lockHeld}, false}, {d, seen{true, lockFree}, false}}},
		{vllmsim.FileMissing(), A, []at{{time.Hour, seen{false, lockAbsent}, false}}},
		{vllmsim.FileMissing(), C, []at{{0, seen{false, lockFree}, false}, {time.Hour, seen{false, lockFree}, false}}},
		{vllmsim.Truncated(), A, []at{{time.Hour, seen{true, lockAbsent}, true}}},
		{vllmsim.Truncated(), C, []at{{time.Hour, seen{true, lockFree}, true}}},
		{vllmsim.TruncatedFor(d), A, []at{{d - 1, seen{true, lockAbsent}, true}, {d, seen{true, lockAbsent}, false}}},
		{vllmsim.TruncatedFor(d), B, []at{{d - 1, seen{true, lockHeld}, true}, {d, seen{true, lockFree}, false}}},
		{vllmsim.TruncatedFor(d), C, []at{{d - 1, seen{true, lockHeld}, true}, {d, seen{true, lockFree}, false}}},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%v/%v", test.fault, test.regime), func(t *testing.T) {
			cfg := config(t)
			cfg.Regime = test.regime
			synctest.Test(t, func(t *testing.T) {
				srv := start(t, cfg)
				srv.SetFault(test.fault)
				began := time.Now()
				path := decode(t, serve(srv, request(t, ask(task)))).path(t)
				for _, at := range test.at {
					time.Sleep(at.after - time.Since(began))
					synctest.Wait()
					if got := look(t, cfg.Dir); got != at.want {
						t.Errorf("after %v: %v, want %v", at.after, got, at.want)
					}
					if at.want.file {
						if p := read(t, path); p.missing > 0 != at.half || at.half && len(p.values) == 0 {
							t.Errorf("after %v: %d bytes are missing, %d values", at.after, p.missing, len(p.values))
						}
					}
				}
			})
		})
	}
}

func TestReleaseLocks(t *testing.T) {
	cfg := config(t)
	synctest.Test(t, func(t *testing.T) {
		srv := start(t, cfg)
		srv.QueueFaults(vllmsim.LockKept(0), vllmsim.LockKept(time.Hour))
		first := decode(t, serve(srv, request(t, ask(task)))).path(t)
		second := decode(t, serve(srv, request(t, ask(task)))).path(t)
		srv.ReleaseLocks()
		srv.SetFault(vllmsim.LockKept(0))
		third := decode(t, serve(srv, request(t, ask(task)))).path(t)
		synctest.Wait()
		got := []lockState{lockOf(t, first), lockOf(t, second), lockOf(t, third)}
		if want := []lockState{lockFree, lockFree, lockHeld}; !slices.Equal(got, want) {
			t.Errorf("locks %v, want %v", got, want)
		}
	})
}

func TestFaultsOfTheArtifactsKind(t *testing.T) {
	outside := t.TempDir()
	for fault, want := range map[vllmsim.Fault]fs.FileMode{
		vllmsim.ArtifactSymlink(outside): fs.ModeSymlink,
		vllmsim.ArtifactFIFO():           fs.ModeNamedPipe,
		vllmsim.ArtifactDir():            fs.ModeDir,
		vllmsim.Garbage():                0,
	} {
		t.Run(fault.String(), func(t *testing.T) {
			path := play(t, config(t), fault).path(t)
			info, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Type() != want {
				t.Errorf("type %v, want %v", info.Mode().Type(), want)
			}
			if want == fs.ModeSymlink {
				if p := read(t, path); p.missing != 0 {
					t.Errorf("the artifact it points to lacks %d bytes", p.missing)
				}
			}
		})
	}
}

func TestHugeFilesAreSparse(t *testing.T) {
	const size = 64 << 30
	for _, fault := range []vllmsim.Fault{vllmsim.HugeSparse(size), vllmsim.HugeZeros(size)} {
		t.Run(fault.String(), func(t *testing.T) {
			path := play(t, config(t), fault).path(t)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() < size-1024 || info.Size() > size+1024 {
				t.Errorf("%d bytes, want about %d", info.Size(), size)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			head, err := bufio.NewReader(f).Peek(512)
			if err != nil {
				t.Fatal(err)
			}
			if fault == vllmsim.HugeSparse(size) {
				if !bytes.Equal(head, make([]byte, len(head))) {
					t.Error("does not begin with zeros")
				}
				return
			}
			var tensors map[string]tensor
			if err := json.NewDecoder(bytes.NewReader(head[8:])).Decode(&tensors); err != nil {
				t.Fatalf("header: %v", err)
			}
			states := tensors["hidden_states"]
			if got := 8 + int64(head[0]) + states.Offsets[1]; got != info.Size() {
				t.Errorf("header promises %d bytes, file has %d", got, info.Size())
			}
			if rows := int64(states.Shape[0]); rows*2*8*2 != states.Offsets[1]-states.Offsets[0] {
				t.Errorf("shape %v with offsets %v", states.Shape, states.Offsets)
			}
		})
	}
}

func TestFaultsOfTheArtifactsContent(t *testing.T) {
	const layers, hidden = 2, 8
	tokens := vllmsim.Tokens(task)
	n := len(tokens)
	good := []int{n, layers, hidden}
	nonFinite := func(is func(float64) bool) func(parsed) bool {
		return func(p parsed) bool {
			return len(slices.DeleteFunc(slices.Clone(p.values), func(v float64) bool { return !is(v) })) == 1
		}
	}
	zeros := func(p parsed) (n int) {
		for _, v := range p.values {
			if v == 0 {
				n++
			}
		}
		return n
	}
	tests := []struct {
		fault vllmsim.Fault
		shape []int
		ok    func(parsed) bool
	}{
		{vllmsim.None(), good, func(p parsed) bool { return zeros(p) == 0 && p.headerSize < 200 }},
		{vllmsim.HeaderTooLong(), good, func(p parsed) bool { return p.headerSize == 2<<20 }},
		{vllmsim.AxesSwapped(), []int{layers, n, hidden}, nil},
		{vllmsim.LayerTooMany(), []int{n, layers + 1, hidden}, nil},
		{vllmsim.TooWide(), []int{n, layers, hidden + 1}, nil},
		{vllmsim.Rank2(), []int{n, layers * hidden}, nil},
		{vllmsim.NoTokens(), []int{0, layers, hidden}, func(p parsed) bool { return len(p.tokens) == 0 }},
		{vllmsim.RowsMissing(), []int{n - 1, layers, hidden}, func(p parsed) bool { return len(p.tokens) == n }},
		{vllmsim.NaN(), good, nonFinite(math.IsNaN)},
		{vllmsim.Inf(), good, nonFinite(func(v float64) bool { return math.IsInf(v, 0) })},
		{vllmsim.AllZero(), good, func(p parsed) bool { return zeros(p) == n*layers*hidden }},
		{vllmsim.ZeroVector(), good, func(p parsed) bool { return zeros(p) == hidden }},
		{vllmsim.OtherTokens(), good, func(p parsed) bool { return len(p.tokens) == n && !slices.Equal(p.tokens, tokens) }},
	}
	for _, test := range tests {
		for _, dtype := range []vllmsim.DType{vllmsim.BF16, vllmsim.F16, vllmsim.F32} {
			t.Run(fmt.Sprintf("%v/%s", test.fault, dtype), func(t *testing.T) {
				cfg := config(t)
				cfg.DType = dtype
				answer := play(t, cfg, test.fault)
				p := read(t, answer.path(t))
				if !slices.Equal(p.states.Shape, test.shape) || p.states.DType != string(dtype) {
					t.Errorf("%s %v, want %s %v", p.states.DType, p.states.Shape, dtype, test.shape)
				}
				count := 1
				for _, axis := range test.shape {
					count *= axis
				}
				if p.missing != 0 || len(p.values) != count {
					t.Errorf("%d values, %d bytes missing, want %d and none", len(p.values), p.missing, count)
				}
				if test.ok != nil && !test.ok(p) {
					t.Error("the artifact is not what the fault says")
				}
				if !slices.Equal(answer.PromptTokenIDs, tokens) {
					t.Errorf("the answer's tokens are %v, want %v", answer.PromptTokenIDs, tokens)
				}
			})
		}
	}
}

func TestAllFaultsAreDifferentAndClassed(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range vllmsim.AllFaults(t.TempDir()) {
		if seen[c.Name()] || c.Name() == vllmsim.None().String() {
			t.Errorf("%s is listed twice or is no fault", c.Name())
		}
		seen[c.Name()] = true
	}
}
