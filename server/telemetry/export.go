package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/status"
)

// The variables that decide whether anything is exported. The exporters read the rest
// of OTEL_EXPORTER_OTLP_* themselves.
const (
	envDisabled = "OTEL_SDK_DISABLED"
	envEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
)

// exports are the ways out that the environment asks for; nil ones it does not.
type exports struct {
	disabled bool // by OTEL_SDK_DISABLED: nothing is measured at all
	spans    sdktrace.SpanExporter
	metrics  sdkmetric.Reader
}

// exportsFromEnv makes the exporters. The conventions would export to a default
// endpoint; here nothing leaves unless one is named.
func exportsFromEnv(ctx context.Context, offline bool) (exports, error) {
	var out exports
	if out.disabled = strings.EqualFold(os.Getenv(envDisabled), "true"); out.disabled || offline {
		return out, nil
	}
	var err error
	if wanted("TRACES") {
		if out.spans, err = autoexport.NewSpanExporter(ctx); err != nil {
			return exports{}, fmt.Errorf("OTEL_TRACES_EXPORTER: %w", err)
		}
	}
	if wanted("METRICS") {
		if out.metrics, err = autoexport.NewMetricReader(ctx); err != nil {
			return exports{}, fmt.Errorf("OTEL_METRICS_EXPORTER: %w", err)
		}
	}
	return out, nil
}

// wanted says whether a signal is to be exported: if an endpoint is named,
// or an exporter that needs none.
func wanted(signal string) bool {
	switch os.Getenv("OTEL_" + signal + "_EXPORTER") {
	case "none", "prometheus": // the admin port has the latter
		return false
	case "", "otlp":
		return os.Getenv(envEndpoint) != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
	default:
		return true
	}
}

// TellErrors sends what goes wrong with exports to the log. OpenTelemetry has one place
// for that in a process, so it is for the program to call, not for a library.
func TellErrors(log *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("an export of traces or metrics failed", "problem", exportProblem(err))
	}))
}

// exportProblem says what went wrong with an export, in words that are ours: an
// exporter's error may quote what the collector sent.
func exportProblem(err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "the collector did not answer in time"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &dns):
		return "host name not resolved"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "connection closed"
	}
	if s, ok := status.FromError(err); ok {
		return "status " + s.Code().String()
	}
	return "the export failed"
}
