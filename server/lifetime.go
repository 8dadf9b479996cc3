package server

import "sync/atomic"

// lifetime counts the users of something that a reload replaces, so that it is
// closed when the last of them is done and never under one. The zero value and nil
// are lifetimes without end, for what nobody replaces.
type lifetime struct {
	// users counts the owner too; 0: over.
	users atomic.Int64
	end   func()
}

// newLifetime begins a lifetime with its owner as its only user. end is called once,
// by whoever leaves last.
func newLifetime(end func()) *lifetime {
	l := &lifetime{end: end}
	l.users.Store(1)
	return l
}

// use adds a user, unless the lifetime is over.
func (l *lifetime) use() bool {
	if l == nil || l.end == nil {
		return true
	}
	for {
		n := l.users.Load()
		if n == 0 {
			return false
		}
		if l.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave removes a user.
func (l *lifetime) leave() {
	if l == nil || l.end == nil {
		return
	}
	if l.users.Add(-1) == 0 {
		l.end()
	}
}
