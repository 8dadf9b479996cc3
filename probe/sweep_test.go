package probe

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// testSweeper returns a sweeper of a new folder in which files of age 0 are young and those of old() are stale.
func testSweeper(t *testing.T) *sweeper {
	t.Helper()
	return &sweeper{
		folder:   testFolder(t),
		cfg:      Sweep{Interval: time.Minute, MinAge: time.Hour},
		observer: NopObserver{},
		log:      slog.New(slog.DiscardHandler),
	}
}

func makeOld(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		old := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSweep(t *testing.T) {
	const ours, theirs = "chatcmpl-pm-0-", "chatcmpl-0-"
	tests := []struct {
		name       string
		old, young []string // files
		held       string   // a lock that is held, stale too
		all        bool
		left       []string
		want       SweepReport
	}{
		{
			name: "stale with and without lock", old: []string{ours + "1.safetensors", ours + "1.safetensors.lock", ours + "2.safetensors"},
			want: SweepReport{Removed: 3},
		},
		{name: "orphan lock", old: []string{ours + "1.safetensors.lock"}, want: SweepReport{Removed: 1}},
		{
			name: "young", young: []string{ours + "1.safetensors", ours + "1.safetensors.lock", ours + "2.safetensors.lock"},
			left: []string{ours + "1.safetensors", ours + "1.safetensors.lock", ours + "2.safetensors.lock"},
		},
		{
			name: "stale lock of a young artifact", old: []string{ours + "1.safetensors.lock"}, young: []string{ours + "1.safetensors"},
			left: []string{ours + "1.safetensors", ours + "1.safetensors.lock"},
		},
		{
			name: "held lock", old: []string{ours + "1.safetensors"}, held: ours + "1.safetensors.lock",
			left: []string{ours + "1.safetensors", ours + "1.safetensors.lock"}, want: SweepReport{Held: 1},
		},
		{name: "held orphan lock", held: ours + "1.safetensors.lock", left: []string{ours + "1.safetensors.lock"}, want: SweepReport{Held: 1}},
		{
			name: "others", old: []string{theirs + "1.safetensors", theirs + "1.safetensors.lock", "keep.txt", "keep.lock"},
			left: []string{theirs + "1.safetensors", theirs + "1.safetensors.lock", "keep.lock", "keep.txt"}, want: SweepReport{Foreign: 2},
		},
		{name: "ours under a wrong extension", old: []string{ours + "1.bin", ours + "1.bin.lock"}, want: SweepReport{Removed: 2}},
		{
			name: "all", all: true, old: []string{theirs + "1.safetensors", theirs + "1.safetensors.lock", ours + "1.safetensors", "keep.txt", "keep.lock"},
			left: []string{"keep.lock", "keep.txt"}, want: SweepReport{Removed: 3},
		},
		{
			name: "all, but held", all: true, old: []string{theirs + "1.safetensors"}, held: theirs + "1.safetensors.lock",
			left: []string{theirs + "1.safetensors", theirs + "1.safetensors.lock"}, want: SweepReport{Held: 1},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := testSweeper(t)
			s.cfg.All = tt.all
			for _, name := range slices.Concat(tt.old, tt.young) {
				writeFile(t, filepath.Join(s.folder.dir, name), nil)
			}
			release := func() {}
			if tt.held != "" {
				release = holdLock(t, filepath.Join(s.folder.dir, tt.held))
				makeOld(t, filepath.Join(s.folder.dir, tt.held))
			}
			for _, name := range tt.old {
				makeOld(t, filepath.Join(s.folder.dir, name))
			}
			got, err := s.sweep(t.Context())
			if err != nil || got != tt.want {
				t.Errorf("report %+v, error %v; want %+v", got, err, tt.want)
			}
			slices.Sort(tt.left)
			wantNames(t, s.folder.dir, tt.left...)
			if tt.held == "" {
				return
			}
			release()
			if _, err := s.sweep(t.Context()); err != nil {
				t.Error(err)
			}
			wantNames(t, s.folder.dir)
		})
	}
}

// TestSweepOddFiles: whatever has an artifact's name goes, but nothing a link leads to and nothing in a directory.
func TestSweepOddFiles(t *testing.T) {
	s := testSweeper(t)
	s.cfg.MinAge = 0
	outside := filepath.Join(t.TempDir(), "outside.safetensors")
	writeFile(t, outside, twoTokens())
	path := func(name string) string { return filepath.Join(s.folder.dir, "chatcmpl-pm-0-"+name) }
	err := errors.Join(
		os.Symlink(outside, path("link.safetensors")),
		os.Symlink(outside, path("linked-lock.safetensors.lock")),
		syscall.Mkfifo(path("fifo.safetensors"), 0o600),
		syscall.Mkfifo(path("fifo-lock.safetensors.lock"), 0o600),
		os.Mkdir(path("empty.safetensors"), 0o700),
		os.MkdirAll(path("full.safetensors")+"/x", 0o700),
	)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path("linked-lock.safetensors"), nil)
	report, err := s.sweep(t.Context())
	if err == nil || report.Errors != 1 || report.Removed != 6 {
		t.Errorf("report %+v, error %v; want one error, 6 removed", report, err)
	}
	wantNames(t, s.folder.dir, "chatcmpl-pm-0-full.safetensors")
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

func TestSweepErrorsAreLoggedOnce(t *testing.T) {
	s := testSweeper(t)
	o := &recorder{}
	var log bytes.Buffer
	s.observer, s.log = o, slog.New(slog.NewTextHandler(&log, nil))
	if err := os.Remove(s.folder.dir); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.once(t.Context())
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines, want 1: %s", n, &log)
	}
	if len(o.sweeps) != 3 || o.sweeps[2].Errors != 1 {
		t.Errorf("reports %+v", o.sweeps)
	}
	if err := os.Mkdir(s.folder.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.once(t.Context())
	if err := os.Remove(s.folder.dir); err != nil {
		t.Fatal(err)
	}
	s.once(t.Context())
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines after it worked and failed again, want 2", n)
	}
}

func TestSweeperRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testSweeper(t)
		o := &recorder{}
		s.observer = o
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.run(ctx)
		}()
		synctest.Wait()
		if n := o.sweepCount(); n != 1 {
			t.Errorf("%d sweeps at the start, want 1", n)
		}
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if n := o.sweepCount(); n != 11 {
			t.Errorf("%d sweeps after ten minutes, want 11", n)
		}
		cancel()
		<-done
	})
}

// TestSweepErrorsDoNotFailExtractions: the sweep and the requests do not know each other.
func TestSweepErrorsDoNotFailExtractions(t *testing.T) {
	f := newFake(t, serveFile(twoTokens()))
	if err := os.MkdirAll(filepath.Join(f.dir, "chatcmpl-pm-full.safetensors", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	makeOld(t, filepath.Join(f.dir, "chatcmpl-pm-full.safetensors"))
	cfg := f.config()
	cfg.Sweep.Interval = time.Millisecond
	o := &recorder{}
	v := newProbe(t, cfg, WithObserver(o))
	for range 20 {
		if _, err := v.Extract(t.Context(), Request{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(o.sweeps) == 0 || o.sweeps[0].Errors != 1 {
		t.Errorf("sweeps %+v, want some with an error", o.sweeps)
	}
	wantNames(t, f.dir, "chatcmpl-pm-full.safetensors")
}
