package rediscache

// childMain is replaced below.
func childMain() bool { return false }
