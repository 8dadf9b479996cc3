// Command bench measures Pointsman on the machine it runs on, in one run: reading and
// pooling artifacts, scoring, and serving, each beside what the machine can do at most.
// It prints a table for people and writes JSON for programs. Ratios between its rows
// travel to other machines; the numbers do not.
//
// How it measures:
//
//   - Servers, the stand-in for vLLM and Redis run in processes of their own; this one
//     is the load. Whatever is compared takes turns, round after round, and the median
//     of the rounds counts.
//   - A closed loop (a fixed number of callers, each waiting for its answer) gives the
//     throughput. An open loop gives the latency: calls arrive at random at a fixed
//     rate, whether or not earlier ones were answered, and each one's time counts from
//     when it should have been sent, so that a stall shows in all calls it delayed. The
//     closed loop uses grpc-go's client; the open loop has a light one of its own (see
//     wire.go), since both share the machine with the server.
//   - The echo is a bare grpc-go server that answers the same request with the same
//     response, kept ready. No deciding server can be faster than that. A second one
//     also sends the contract's trailers and logs each call, which every server of the
//     contract with an access log has to: what lies between that one and Pointsman is
//     the decision and its metrics.
//
// `bench scale` is something else: a simulation of many replicas, with the constants
// that a run measured.
package main
