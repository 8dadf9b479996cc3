package main

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// preciseSleep returns a sleep for the calling goroutine that ends on time: Go's own
// rounds what is left up to a millisecond when a process has nothing else to do.
func preciseSleep() func(time.Duration) {
	runtime.LockOSThread() // ends with the goroutine; the slack is the thread's own
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	return func(d time.Duration) {
		left := unix.NsecToTimespec(d.Nanoseconds())
		_ = unix.Nanosleep(&left, nil) // cut short by a signal: the caller looks at the clock
	}
}
