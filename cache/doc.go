// Package cache finds a value by climbing a ladder, so that one value is computed once however many callers want it and
// whichever process they ask:
//
//	local cache -> computation already running in this process -> shared cache -> computation running elsewhere -> compute
//
// Its main type is [Ladder]; ladder.go assembles the rungs, and each rung is a file of its own. The package is generic over the
// value and knows nothing of tasks, probes or checkpoints: the caller names a value by a [Key], made by a [Keyer], and brings the
// function that computes it. What processes share sits behind [SharedLayer], and how a value becomes bytes behind [Codec].
//
// Two promises hold everywhere. Caches are for speed, never for correctness: trouble with one means computing, not failing. And a
// failure is stored nowhere: it reaches those who waited for it and is forgotten.
//
// The package does not retry, does not serve stale values, and never invalidates: everything a value depends on is in its key.
package cache
