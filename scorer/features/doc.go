// Package features keeps the feature vectors of many tasks in one file, so that
// a router can be trained and judged without asking the probe again.
//
// A [Writer] appends one vector after another and survives a crash: what it had
// flushed is there when it is opened again. Closing it with Finish turns what it
// wrote into the finished file, which [Open] reads row by row.
//
// The file is a safetensors file, format "pointsman-features-1":
//
//	features  F32 [N, D]   a row a task, layer-major as the probe gives it: row[layer*hidden_size+h]
//	digests   U8  [N, 32]  SHA-256 of the task's text, a row a task
//
// with N rows of D = layers*hidden_size numbers and, in __metadata__ (all values
// strings, as safetensors wants): format, encoder, layers, hidden_size,
// probe_revision and, where it is known, vllm_layer_ids as a JSON list. The text
// of a task is not in it. Rows are read and written one by one, so that memory
// does not grow with D; a digest takes 32 bytes a row in memory.
package features
