// Package server is Pointsman's program: the gRPC service, the [Decider] behind
// it, and the life of both.
//
// The path of a request stands in [Decider.Decide], top to bottom. The object
// graph is built in one place, [New]. Which fallback reason a failure becomes is
// the table in reason.go, which gRPC code an error becomes the one in errors.go.
//
// The package knows of files, time and the network only what is needed to
// serve: reading hidden states is package probe's business, scoring and choosing
// scorer's, storing and sharing scores cache's.
package server
