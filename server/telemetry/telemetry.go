package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	goruntime "go.opentelemetry.io/contrib/instrumentation/runtime"
	"go.opentelemetry.io/otel/attribute"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pointsman-dev/pointsman/cache"
	"github.com/pointsman-dev/pointsman/server/internal/memo"
)

// Config is what a [Telemetry] is made of.
type Config struct {
	// Version of the program; empty: the module's.
	Version string
	// Log gets what goes wrong with it.
	Log *slog.Logger
	// Offline exports nothing, whatever the environment says.
	Offline bool
	// SpanExporter gets all spans at once, beside those the environment names. It is
	// for tests.
	SpanExporter sdktrace.SpanExporter
	// MetricReader reads all metrics, beside those the environment names. It is for
	// tests.
	MetricReader sdkmetric.Reader
}

// Telemetry is the way of everything that is observed. It is safe for concurrent use.
type Telemetry struct {
	log      *slog.Logger
	build    buildInfo
	tracing  bool
	tracer   trace.Tracer
	tracers  trace.TracerProvider
	meter    metric.Meter
	in       *instruments
	registry *prometheus.Registry
	// shutdown ends the providers, in this order.
	shutdown []func(context.Context) error

	decisions memo.Memo[decisionKey, *decisionLabels]
	heads     memo.Memo[headKey, labels]
	shadows   memo.Memo[shadowKey, labels]
	rpcs      memo.Memo[rpcKey, labels]
	panicked  memo.Memo[string, labels]
	records   memo.Memo[string, labels]
	redis     memo.Memo[redisKey, labels]
	scored    [outcomeCount]labels
	lookups   [cacheLayers][cacheOutcomes]tally
}

// New makes the providers and what the standard OTEL_* variables ask to export to.
// [Telemetry.Shutdown] ends them.
func New(ctx context.Context, cfg Config) (*Telemetry, error) {
	t := &Telemetry{log: cfg.Log, build: readBuildInfo(cfg.Version), registry: prometheus.NewRegistry()}
	about, err := describe(ctx, t.build)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	exports, err := exportsFromEnv(ctx, cfg.Offline)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	if err := t.startMetrics(about, exports, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("telemetry: %w", err), t.Shutdown(ctx))
	}
	t.startTracing(about, exports, cfg)
	for layer := range cacheLayers {
		for found := range cacheOutcomes {
			t.lookups[layer][found].labels = newLabels(
				labelLayer, cache.Layer(layer).String(), labelOutcome, cache.Outcome(found).String())
		}
	}
	for o := range outcomeCount {
		t.scored[o] = newLabels(labelOutcome, o.String())
	}
	return t, nil
}

// startMetrics makes the meter, its instruments, and what reads them.
func (t *Telemetry) startMetrics(about *resource.Resource, exports exports, cfg Config) (err error) {
	if exports.disabled {
		t.meter = metricnoop.NewMeterProvider().Meter(scope)
		t.in, err = newInstruments(t.meter)
		return err
	}
	scraped, err := promexporter.New(
		promexporter.WithRegisterer(t.registry),
		promexporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
		promexporter.WithoutScopeInfo(), // one scope; its labels would stand on every line
	)
	if err != nil {
		return err
	}
	options := []sdkmetric.Option{
		sdkmetric.WithResource(about), sdkmetric.WithReader(scraped),
		// The conventions' name ends in _count, which Prometheus keeps for histograms.
		sdkmetric.WithView(sdkmetric.NewView(
			sdkmetric.Instrument{Name: "go.goroutine.count"}, sdkmetric.Stream{Name: "go.goroutines"})),
	}
	for _, reader := range []sdkmetric.Reader{exports.metrics, cfg.MetricReader} {
		if reader != nil {
			options = append(options, sdkmetric.WithReader(reader))
		}
	}
	if exports.spans == nil && cfg.SpanExporter == nil {
		// Without traces there is nothing to name as an exemplar.
		options = append(options, sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter))
	}
	provider := sdkmetric.NewMeterProvider(options...)
	t.shutdown = append(t.shutdown, provider.Shutdown)
	t.meter = provider.Meter(scope)
	if t.in, err = newInstruments(t.meter); err != nil {
		return err
	}
	if err := t.reportTallies(); err != nil {
		return err
	}
	if err := goruntime.Start(goruntime.WithMeterProvider(provider)); err != nil {
		return err
	}
	return t.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// startTracing makes the tracer. Sampler and limits are those of the environment, by
// default a parent's decision and else everything.
func (t *Telemetry) startTracing(about *resource.Resource, exports exports, cfg Config) {
	t.tracers = noop.NewTracerProvider()
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(about)}
	if exports.spans != nil {
		options = append(options, sdktrace.WithBatcher(exports.spans))
		t.tracing = true
	}
	if cfg.SpanExporter != nil {
		options = append(options, sdktrace.WithSyncer(cfg.SpanExporter))
		t.tracing = true
	}
	if t.tracing {
		provider := sdktrace.NewTracerProvider(options...)
		t.shutdown = append(t.shutdown, provider.Shutdown)
		t.tracers = provider
	}
	t.tracer = t.tracers.Tracer(scope)
}

// MetricsHandler serves /metrics, with exemplars to those who ask for OpenMetrics.
func (t *Telemetry) MetricsHandler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true,
		// What can be read is better than nothing.
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(t.log.Handler(), slog.LevelWarn),
	})
}

// Shutdown exports what is left and ends the exporters, until ctx ends.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var errs []error
	for _, end := range t.shutdown {
		if err := end(ctx); err != nil {
			errs = append(errs, fmt.Errorf("telemetry: what was left could not be exported: %s", exportProblem(err)))
		}
	}
	t.shutdown = nil
	return errors.Join(errs...)
}

// propagator carries W3C trace context and baggage. It is the same everywhere, so that
// a gateway needs no configuration.
func propagator() propagation.TextMapPropagator {
	return propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
}

// buildInfo says what this program is.
type buildInfo struct{ version, commit, goVersion string }

func readBuildInfo(version string) buildInfo {
	const unknown = "unknown"
	b := buildInfo{version: version, commit: unknown, goVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	b.version = cmp.Or(version, info.Main.Version, unknown)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.commit = s.Value
		}
	}
	return b
}

// describe makes the resource; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
func describe(ctx context.Context, build buildInfo) (*resource.Resource, error) {
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithAttributes(
			attribute.String("service.name", "pointsman"),
			attribute.String("service.version", build.version),
		),
		resource.WithFromEnv(),
	)
	if errors.Is(err, resource.ErrPartialResource) || errors.Is(err, resource.ErrSchemaURLConflict) {
		err = nil // what is known is enough
	}
	return about, err
}
