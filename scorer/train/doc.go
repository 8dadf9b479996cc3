// Package train makes a router checkpoint from judged examples and their
// features.
//
// [Load] joins a file of features with judged examples into a [Data] and splits
// it; [Train] runs the recipe on it: standardise, project on principal components,
// train an ensemble of small networks, keep the best, calibrate. The [Result]
// holds a checkpoint of format 1 and a [Record] of how it came about, and
// [Result.Save] writes both, whole or not at all.
//
// The recipe and its defaults are those of the trainers in the field (NVIDIA's
// llm-router, version 3): a shared trunk of dense layers with ReLU and dropout,
// one output a model, binary cross-entropy on the logits, Adam. The same data,
// recipe and version give the same checkpoint, however many processors there are.
//
// The package knows no probe and prints nothing: progress goes to a function.
package train
