package probe

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOutstandingFollowsTheFileSystem(t *testing.T) {
	dir := t.TempDir()
	size := fileSystemOf(dir).size
	if size <= 0 {
		t.Fatal("the size of the test's file system is not known")
	}
	later := Endpoint{HiddenStatesDir: filepath.Join(dir, "made", "later")}
	here := Endpoint{HiddenStatesDir: dir}
	for _, tt := range []struct {
		name string
		all  []Endpoint
		want int64
	}{
		{"alone", []Endpoint{later}, min(mostOutstanding, size/2)},
		{"two that share it", []Endpoint{later, here}, min(mostOutstanding, size/4)},
		{"many", slices.Repeat([]Endpoint{here}, 1000), min(mostOutstanding, size/2000)},
		{"another elsewhere", []Endpoint{later, {HiddenStatesDir: "/proc"}}, min(mostOutstanding, size/2)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := outstandingFor(later, tt.all); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
	t.Run("not known", func(t *testing.T) {
		file := filepath.Join(dir, "file")
		writeFile(t, file, nil)
		if got := outstandingFor(Endpoint{HiddenStatesDir: filepath.Join(file, "below")}, nil); got != mostOutstanding {
			t.Errorf("%d, want %d", got, int64(mostOutstanding))
		}
	})
}

// TestRoomIsWarnedOfOnlyIfConfigured: what follows from the folder fits it by itself, on a small file system too.
func TestRoomIsWarnedOfOnlyIfConfigured(t *testing.T) {
	for name, tt := range map[string]struct {
		configured int64
		warnings   int
	}{
		"by the folder":  {0, 0},
		"small":          {1 << 20, 0},
		"more than fits": {1 << 60, 1},
	} {
		t.Run(name, func(t *testing.T) {
			fakes := []*fakeVLLM{newFake(t, serveFile(twoTokens())), newFake(t, serveFile(twoTokens()))}
			for _, f := range fakes {
				if err := os.Chmod(f.dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			g := newGroup(t, func(c *Config) { c.MaxOutstandingBytes = tt.configured }, fakes...)
			for _, v := range g.Endpoints() {
				got, err := v.Check(t.Context(), "canary", Shape{})
				if err != nil || len(got.Warnings) != tt.warnings {
					t.Fatalf("%v; warnings %q", err, got.Warnings)
				}
				if tt.warnings > 0 && !strings.Contains(got.Warnings[0], "max_outstanding_bytes is") {
					t.Errorf("%q", got.Warnings)
				}
				if want := fileSystemOf(os.TempDir()).size / 4; tt.configured == 0 && got.Room != min(want, mostOutstanding) {
					t.Errorf("room for %d, want %d", got.Room, want)
				}
			}
		})
	}
}
