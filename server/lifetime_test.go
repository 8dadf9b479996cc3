package server

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestLifetimeEndsOnceWithItsLastUser(t *testing.T) {
	var ended atomic.Int64
	l := newLifetime(func() { ended.Add(1) })
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 1000 {
				if l.use() {
					if ended.Load() != 0 {
						t.Error("over under a user")
					}
					l.leave()
				}
			}
		})
	}
	l.leave() // the owner
	users.Wait()
	if ended.Load() != 1 || l.use() {
		t.Errorf("ended %d times, or can still be used", ended.Load())
	}
}

func TestLifetimeWithoutEnd(t *testing.T) {
	var none *lifetime
	for range 2 {
		if !none.use() {
			t.Error("not usable")
		}
		none.leave()
	}
}
