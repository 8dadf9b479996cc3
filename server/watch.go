package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/pointsman-dev/pointsman/scorer/train"
	"github.com/pointsman-dev/pointsman/server/config"
)

const (
	// settle is how long files must stay as they are before they are read: those who
	// replace several do not do it at once.
	settle = 100 * time.Millisecond
	// lookAnyway finds changes on file systems that do not tell of them.
	lookAnyway = 30 * time.Second
)

// reloader reloads a server when its files change, or when it is told to.
type reloader struct {
	path   string // of the configuration
	server *Server
	log    *slog.Logger
	// tried is how the files were when they were last read.
	tried string
}

// run reloads until ctx ends. A value in demand, such as a SIGHUP, reloads whether
// anything changed or not.
func (r *reloader) run(ctx context.Context, demand <-chan os.Signal) {
	watched := r.server.now.Load().cfg
	var events chan fsnotify.Event
	var failures chan error // must be read, or no further event comes
	var tick <-chan time.Time
	watcher := r.newWatcher()
	if watcher != nil {
		defer func() { _ = watcher.Close() }()
		events, failures = watcher.Events, watcher.Errors
	}
	if watched.Reload.Watch {
		ticker := time.NewTicker(lookAnyway)
		defer ticker.Stop()
		tick = ticker.C
	}
	r.tried = fingerprint(r.files(watched))
	r.watch(watcher, watched)

	check := time.NewTimer(settle)
	check.Stop()
	seen := r.tried
	for {
		select {
		case <-ctx.Done():
			return
		case <-demand:
		case <-events:
			check.Reset(settle)
			continue
		case err := <-failures:
			r.log.WarnContext(ctx, "watching files had trouble; they are looked at again", "error", err)
			check.Reset(0)
			continue
		case <-tick:
			check.Reset(0)
			continue
		case <-check.C:
			found := fingerprint(r.files(watched))
			if found == r.tried {
				continue
			}
			if found != seen { // still changing
				seen = found
				check.Reset(settle)
				continue
			}
		}
		watched = r.reload(ctx, watched)
		seen = r.tried
		r.watch(watcher, watched)
	}
}

// reload reads the files and lets the server take them over. It returns the
// configuration whose files are to be watched: a refused one too, so that mending a
// file that only it names is seen.
func (r *reloader) reload(ctx context.Context, watched *config.Config) *config.Config {
	// Before reading: what changes meanwhile is another change.
	before := fingerprint(r.files(watched))
	cfg, err := config.Load(r.path)
	if err != nil {
		r.tried = before
		r.server.ReloadFailed(ctx, err)
		return watched
	}
	r.tried = fingerprint(r.files(cfg))
	if err := r.server.Reload(ctx, cfg); err == nil { // else it has said so itself
		r.server.tuneGarbage()
	}
	return cfg
}

func (r *reloader) newWatcher() *fsnotify.Watcher {
	if !r.server.cfg.Reload.Watch {
		return nil
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		r.log.Warn("files cannot be watched; they are looked at now and then", "error", err, "every", lookAnyway.String())
		return nil
	}
	return watcher
}

// watch watches the folders of the files. Folders rather than files, since whoever
// replaces a file puts another in its place: Kubernetes swaps a link beside it.
func (r *reloader) watch(watcher *fsnotify.Watcher, cfg *config.Config) {
	if watcher == nil {
		return
	}
	want := folders(r.files(cfg))
	for _, dir := range watcher.WatchList() {
		if !slices.Contains(want, dir) {
			_ = watcher.Remove(dir) // it may be gone, which removes it too
		}
	}
	for _, dir := range want {
		// Adding again is no mistake, and finds a folder that took another's place.
		if err := watcher.Add(dir); err != nil {
			r.log.Debug("a folder cannot be watched; it is looked at now and then", "error", err)
		}
	}
}

// files are the files that a configuration is made of, itself included.
func (r *reloader) files(cfg *config.Config) []string {
	files := []string{r.path}
	add := func(paths ...string) {
		for _, p := range paths {
			if p != "" {
				files = append(files, p)
			}
		}
	}
	if t := cfg.GRPC.TLS; t != nil {
		add(t.CertFile, t.KeyFile, t.ClientCAFile)
	}
	if a := cfg.GRPC.Auth; a != nil {
		add(a.TokensFile)
	}
	for _, p := range cfg.Probes {
		add(p.APIKeyFile)
	}
	addCheckpoint := func(dir string) {
		for _, name := range []string{"router.json", "router.safetensors", train.RecordFile} {
			add(filepath.Join(dir, name))
		}
	}
	for _, route := range cfg.Routes {
		addCheckpoint(route.Checkpoint)
		if route.Backup != nil {
			addCheckpoint(route.Backup.Checkpoint)
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// folders are where a change of the files shows: the folder of each, and the folder
// of each link on the way to it.
func folders(files []string) []string {
	var dirs []string
	for _, file := range files {
		absolute, err := filepath.Abs(file)
		if err != nil {
			continue
		}
		dirs = append(dirs, filepath.Dir(absolute))
		for at := filepath.Dir(absolute); at != filepath.Dir(at); at = filepath.Dir(at) {
			if info, err := os.Lstat(at); err == nil && info.Mode()&os.ModeSymlink != 0 {
				dirs = append(dirs, filepath.Dir(at))
			}
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// fingerprint tells two states of files apart without reading them: where each really
// is, its number, size and time.
func fingerprint(files []string) string {
	var b strings.Builder
	for _, file := range files {
		target, err := filepath.EvalSymlinks(file)
		if err != nil {
			fmt.Fprintf(&b, "%s missing\n", file)
			continue
		}
		info, err := os.Stat(target)
		if err != nil {
			fmt.Fprintf(&b, "%s missing\n", file)
			continue
		}
		var number uint64
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			number = stat.Ino
		}
		fmt.Fprintf(&b, "%s %d %d %d\n", target, number, info.Size(), info.ModTime().UnixNano())
	}
	return b.String()
}
