package probe

import (
	"sync"
	"sync/atomic"
)

// watch wakes those who wait for an artifact when its writer has closed the file or the lock, so that they look at once
// rather than when their pause is over. It only hints. A file that is written on another machine is never told of, and
// neither is any where the system has no such thing: looking again and again is what finds an artifact. A watch that has
// told of the last one is trusted with the next: a look costs some 80 µs, and thirty of them the time of a small probe.
//
// The nil *watch never wakes anybody.
type watch struct {
	events events
	told   atomic.Bool // of the artifact that was last waited for

	mu      sync.Mutex
	waiting map[string]chan struct{} // by the artifact's name; each holds one wake
}

// newWatch starts to watch the folder, which need not be there yet. [watch.close] ends it.
func newWatch(dir string) (*watch, error) {
	w := &watch{waiting: map[string]chan struct{}{}}
	if err := w.events.start(dir, w.closed); err != nil {
		return nil, err
	}
	return w, nil
}

// expect returns a channel that gets a value when the artifact of that name, or its lock, was closed by its writer. The
// caller calls stop when it no longer waits.
func (w *watch) expect(name string) (written <-chan struct{}, stop func()) {
	if w == nil {
		return nil, func() {}
	}
	wake := make(chan struct{}, 1)
	w.mu.Lock()
	w.waiting[name], w.waiting[name+lockSuffix] = wake, wake
	w.mu.Unlock()
	w.events.follow()
	return wake, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.waiting[name] == wake { // not somebody else's who waits for the same name
			delete(w.waiting, name)
			delete(w.waiting, name+lockSuffix)
		}
	}
}

// trusted says whether it is enough to look now and then.
func (w *watch) trusted() bool { return w != nil && w.told.Load() }

// trust notes whether an artifact that was waited for was told of.
func (w *watch) trust(told bool) {
	if w != nil {
		w.told.Store(told)
	}
}

// closed is told the name of a file that its writer has closed.
func (w *watch) closed(name []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.waiting[string(name)] <- struct{}{}:
	default: // nobody waits, or is awake already
	}
}

// close ends the watch and waits for it. Closing again does nothing more.
func (w *watch) close() {
	if w != nil {
		w.events.stop()
	}
}
