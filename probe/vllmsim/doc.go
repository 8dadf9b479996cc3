// Package vllmsim plays vLLM's side of the hidden-states protocol, so that a
// client of that protocol can be built, tested and shown without a GPU.
//
// It is a stand-in. There is no model in it: the tokens come from a small
// rule-based tokeniser and the hidden states are pseudo-random numbers derived
// from those tokens. Nothing it returns says anything about a real encoder.
// What is real is the protocol around them: the HTTP contract, the names and
// bytes of the artifacts, and the order in which lock, answer and file appear
// in the three regimes vLLM has had (see [Regime]).
//
// [New] makes a [Server], whose Handler serves POST /v1/chat/completions,
// GET /v1/models, POST /tokenize and GET /health. Faults are switched on with
// [Server.SetFault], [Server.SetFaultFunc] and [Server.QueueFaults];
// [AllFaults] lists one of each with the class of failure a client should
// make of it. [Server.Stats] and [Server.Requests] tell what was asked.
//
// [Tokens], [HiddenStates], [Features] and [WriteArtifact] are the pure
// functions behind the server, for tests that need to know what a good answer
// looks like.
//
// What is not played: /v1/completions, streaming, n > 1, more than one output
// token in an artifact, prompt truncation, a save path chosen by the client
// (ignored, as vLLM does by default). One thing is deliberately not copied:
// vLLM puts X-Request-Id into the artifact's path as it comes, so that a value
// with a slash changes folders; here such a value is refused.
package vllmsim
