// Package scorer turns one feature vector into the probability that each
// model answers a task correctly, and that into a choice.
//
// [Load] reads a router checkpoint (format 1: router.json beside a safetensors
// file) into a [Checkpoint], whose Score standardises the features, projects
// them on the checkpoint's principal components and runs every member of its
// ensemble. [Choose] weighs the resulting [Probabilities] against costs under a
// [TradeOff] and says how far the choice is from tipping and how stable it is
// over the members. [Save] writes a checkpoint.
//
// The package does not know where features come from, what a target is called
// or what is done with a choice. Its goroutines end before the call that started
// them. It keeps no global state and logs nothing. Its errors hold positions and
// names from the checkpoint, never a feature's value.
package scorer
