// Package telemetry shows what the service does without showing what it was asked:
// traces and metrics through OpenTelemetry, and the log's trace ids, run-time level
// and rate limit.
//
// A [Telemetry] is made once and handed to whoever observes: it makes the observers
// that packages cache and probe declare, takes the server's decisions and calls, and
// serves /metrics. Every name of a metric, span or attribute stands in names.go.
//
// Two rules hold throughout. No text of a task, token id, key, path or free text of a
// remote server is in any of it. And every label of a metric comes from a closed set:
// the configuration's names, or the constants of an enumeration.
//
// Export is set by the standard OTEL_* variables; without an endpoint nothing leaves
// the process. The package writes no decision record; package record does.
package telemetry
