// Package record writes the decision record: one JSON object a line for every
// decision, with what is needed to compute later what another trade-off would have
// chosen. It knows no task: of that it gets a keyed digest, so that decisions about
// the same task can be found together and nothing else can be learned.
//
// A [Writer] has a bounded queue and one goroutine that owns the file. It never makes
// a decision wait: what does not fit the queue is dropped, and counted.
package record
