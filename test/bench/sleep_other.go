//go:build !linux

package main

import "time"

// preciseSleep returns the ordinary sleep.
func preciseSleep() func(time.Duration) { return time.Sleep }
