package vllmsim_test

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman-dev/pointsman/probe/vllmsim"
)

const (
	latency    = 3 * time.Second
	writeDelay = 5 * time.Second
	instant    = time.Nanosecond // clocks are faked: it is enough
)

// seen is what a client finds at one moment.
type seen struct {
	file bool
	lock lockState
}

// look finds the only artifact and lock in dir, whatever they are called.
func look(t *testing.T, dir string) seen {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	locks, err := filepath.Glob(dir + "/*.lock")
	if err != nil {
		t.Fatal(err)
	}
	s := seen{file: len(files) > 0, lock: lockAbsent}
	if len(locks) > 0 {
		s.lock = lockOf(t, locks[0][:len(locks[0])-len(".lock")])
	}
	return s
}

func TestRegimesOrderLockAnswerAndFile(t *testing.T) {
	tests := []struct {
		regime                vllmsim.Regime
		running, answered, at seen // while the model runs, with the answer, WriteDelay later
	}{
		{vllmsim.RegimeA, seen{false, lockAbsent}, seen{true, lockAbsent}, seen{true, lockAbsent}},
		{vllmsim.RegimeB, seen{false, lockAbsent}, seen{false, lockHeld}, seen{true, lockFree}},
		{vllmsim.RegimeC, seen{false, lockHeld}, seen{false, lockHeld}, seen{true, lockFree}},
	}
	for _, test := range tests {
		t.Run(test.regime.String(), func(t *testing.T) {
			cfg := config(t)
			cfg.Regime, cfg.Latency, cfg.WriteDelay = test.regime, latency, writeDelay
			synctest.Test(t, func(t *testing.T) {
				srv := start(t, cfg)
				began := time.Now()
				var answer completion
				go func() {
					answer = decode(t, serve(srv, request(t, ask("What is 2+2?"))))
					if took := time.Since(began); took != latency {
						t.Errorf("answered after %v, want %v", took, latency)
					}
				}()
				time.Sleep(latency - instant)
				synctest.Wait()
				if got := look(t, cfg.Dir); got != test.running {
					t.Errorf("while it runs: %v, want %v", got, test.running)
				}
				time.Sleep(instant)
				synctest.Wait()
				if got := look(t, cfg.Dir); got != test.answered {
					t.Errorf("with the answer: %v, want %v", got, test.answered)
				}
				time.Sleep(writeDelay)
				synctest.Wait()
				if got := look(t, cfg.Dir); got != test.at {
					t.Errorf("in the end: %v, want %v", got, test.at)
				}
				p := read(t, answer.path(t))
				if p.missing != 0 || !slices.Equal(p.tokens, answer.PromptTokenIDs) {
					t.Errorf("artifact lacks %d bytes, tokens %v, answer %v", p.missing, p.tokens, answer.PromptTokenIDs)
				}
			})
		})
	}
}

func TestLockIsReadableByAllAndEmpty(t *testing.T) {
	srv := start(t, config(t))
	path := decode(t, serve(srv, request(t, ask("x")))).path(t)
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	// The umask may take away more, never from the owner.
	if mode := info.Mode(); !mode.IsRegular() || mode&^0o644 != 0 || mode&0o600 != 0o600 || info.Size() != 0 {
		t.Errorf("lock has mode %v and %d bytes", info.Mode(), info.Size())
	}
}

func TestArtifactNames(t *testing.T) {
	tests := []struct {
		name           string
		noSuffix       bool
		header, bodyID string
		id, file       string
	}{
		{"header", false, "pm-a_1", "", `chatcmpl-pm-a_1`, `chatcmpl-pm-a_1-[0-9a-f]{8}`},
		{"header without suffix", true, "pm-a_1", "", `chatcmpl-pm-a_1`, `chatcmpl-pm-a_1`},
		{"header before body", true, "pm-h", "pm-b", `chatcmpl-pm-h`, `chatcmpl-pm-h`},
		{"body", true, "", "pm-b", `chatcmpl-pm-b`, `chatcmpl-pm-b`},
		{"neither", false, "", "", `chatcmpl-[0-9a-f]{16}`, `chatcmpl-[0-9a-f]{16}-[0-9a-f]{8}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := config(t)
			cfg.NoRandomSuffix, cfg.ReportedDir = test.noSuffix, "/seen/by/vllm"
			srv := start(t, cfg)
			r := request(t, `{"request_id":"`+test.bodyID+`","messages":[{"role":"user","content":"x"}]}`)
			r.Header.Set("X-Request-ID", test.header)
			answer := decode(t, serve(srv, r))
			if !regexp.MustCompile(`^` + test.id + `$`).MatchString(answer.ID) {
				t.Errorf("id %q", answer.ID)
			}
			if !regexp.MustCompile(`^/seen/by/vllm/` + test.file + `\.safetensors$`).MatchString(answer.path(t)) {
				t.Errorf("path %q", answer.path(t))
			}
			if err := srv.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(cfg.Dir, filepath.Base(answer.path(t)))); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRequestIDsThatWouldChangeThePathAreRefused(t *testing.T) {
	for _, id := range []string{"../x", "a/b", ".", "a b", string(make([]byte, 300))} {
		cfg := config(t)
		srv := start(t, cfg)
		r := request(t, ask("x"))
		r.Header.Set("X-Request-ID", id)
		if w := serve(srv, r); w.Code != 400 {
			t.Errorf("id %q: status %d", id, w.Code)
		}
		if _, err := os.Stat(cfg.Dir); !os.IsNotExist(err) {
			t.Errorf("id %q: the folder was made", id)
		}
	}
}

func TestClientLeavingWhileTheModelRuns(t *testing.T) {
	tests := []struct {
		regime vllmsim.Regime
		want   seen
	}{
		{vllmsim.RegimeA, seen{false, lockAbsent}},
		{vllmsim.RegimeB, seen{false, lockAbsent}},
		{vllmsim.RegimeC, seen{true, lockFree}}, // a file that nobody was told of
	}
	for _, test := range tests {
		t.Run(test.regime.String(), func(t *testing.T) {
			cfg := config(t)
			cfg.Regime, cfg.Latency = test.regime, latency
			synctest.Test(t, func(t *testing.T) {
				srv := start(t, cfg)
				ctx, cancel := context.WithTimeout(t.Context(), latency/2)
				defer cancel()
				serve(srv, request(t, ask("x")).WithContext(ctx))
				synctest.Wait()
				if got := look(t, cfg.Dir); got != test.want {
					t.Errorf("found %v, want %v", got, test.want)
				}
				if stats := srv.Stats(); stats.Aborted != 1 || stats.InFlight != 0 {
					t.Errorf("stats %+v", stats)
				}
			})
		})
	}
}

func TestQueuedRequestsWaitWithoutALock(t *testing.T) {
	cfg := config(t)
	cfg.MaxConcurrent, cfg.Latency = 1, latency
	synctest.Test(t, func(t *testing.T) {
		srv := start(t, cfg)
		began := time.Now()
		var took [2]time.Duration
		for i := range took {
			go func() {
				serve(srv, request(t, ask("x")))
				took[i] = time.Since(began)
			}()
		}
		synctest.Wait() // the third must not be the one that runs
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go serve(srv, request(t, ask("leaves while it waits")).WithContext(ctx))
		synctest.Wait()
		if locks, _ := filepath.Glob(cfg.Dir + "/*.lock"); len(locks) != 1 {
			t.Errorf("%d locks while one request runs", len(locks))
		}
		time.Sleep(2 * latency)
		synctest.Wait()
		if slices.Sort(took[:]); took != [2]time.Duration{latency, 2 * latency} {
			t.Errorf("answered after %v", took)
		}
		if locks, _ := filepath.Glob(cfg.Dir + "/*.lock"); len(locks) != 2 {
			t.Errorf("%d locks in the end, want 2: none for the one that left", len(locks))
		}
		if stats := srv.Stats(); stats.Requests != 3 || stats.Aborted != 1 || stats.MaxInFlight != 3 || stats.InFlight != 0 {
			t.Errorf("stats %+v", stats)
		}
	})
}

func TestCloseWritesWhatWasPromisedAtOnce(t *testing.T) {
	for _, fault := range []vllmsim.Fault{
		vllmsim.None(), vllmsim.LockKept(0), vllmsim.LockKept(time.Hour), vllmsim.FileLate(time.Hour), vllmsim.TruncatedFor(time.Hour),
	} {
		t.Run(fault.String(), func(t *testing.T) {
			cfg := config(t)
			cfg.WriteDelay = time.Hour
			synctest.Test(t, func(t *testing.T) {
				srv := start(t, cfg)
				srv.SetFault(fault)
				began := time.Now()
				path := decode(t, serve(srv, request(t, ask("x")))).path(t)
				for range 2 {
					if err := srv.Close(); err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("took %v", took)
				}
				if p := read(t, path); p.missing != 0 || lockOf(t, path) != lockFree {
					t.Errorf("%d bytes are missing, lock %s", p.missing, lockOf(t, path))
				}
				if w := serve(srv, request(t, ask("x"))); w.Code != 503 {
					t.Errorf("a closed server answers %d", w.Code)
				}
			})
		})
	}
}

func TestCloseReportsAWriteThatFailed(t *testing.T) {
	cfg := config(t)
	if err := os.WriteFile(cfg.Dir, nil, 0o600); err != nil { // a file where the folder should be
		t.Fatal(err)
	}
	srv, err := vllmsim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if w := serve(srv, request(t, ask("x"))); w.Code != 500 {
		t.Errorf("status %d", w.Code)
	}
	if srv.Close() == nil {
		t.Error("no error")
	}
}

// watched calls look before the first byte of an answer goes out.
type watched struct {
	*httptest.ResponseRecorder
	look func()
}

func (w watched) WriteHeader(code int) {
	w.look()
	w.ResponseRecorder.WriteHeader(code)
}

func TestWithoutDelaysTheOrderIsTheSame(t *testing.T) {
	for regime, want := range map[vllmsim.Regime]seen{
		vllmsim.RegimeA: {true, lockAbsent},
		vllmsim.RegimeB: {true, lockFree}, // its writers do not wait for the answer
		vllmsim.RegimeC: {false, lockHeld},
	} {
		t.Run(regime.String(), func(t *testing.T) {
			cfg := config(t)
			cfg.Regime = regime
			synctest.Test(t, func(t *testing.T) {
				srv := start(t, cfg)
				looked := false
				srv.Handler().ServeHTTP(watched{httptest.NewRecorder(), func() {
					synctest.Wait() // whatever can be written by now is
					looked = true
					if got := look(t, cfg.Dir); got != want {
						t.Errorf("before the answer: %v, want %v", got, want)
					}
				}}, request(t, ask("x")))
				synctest.Wait()
				if got := look(t, cfg.Dir); !looked || !got.file || got.lock == lockHeld {
					t.Errorf("in the end: %v, looked %t", got, looked)
				}
			})
		})
	}
}
