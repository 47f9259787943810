package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// maxWaiting is how many spans wait to be exported before more are dropped.
const maxWaiting = 2048

// lastExport is how long the last spans may take at the end of the proxy.
const lastExport = 2 * time.Second

// What becomes of a span.
const (
	spanExported = "exported"
	spanFailed   = "failed"  // the collector didn't take it
	spanDropped  = "dropped" // too many were waiting
)

// traces turns what sessions record into OpenTelemetry's spans and exports them. It
// is a proxy.Tracer. The sessions' side only puts into a channel; a goroutine
// takes them out, and is all that ever waits for the collector.
type traces struct {
	waiting  chan proxy.Span
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	spans    *prometheus.CounterVec
	done     sync.WaitGroup
	stop     chan struct{}
	giveUp   context.CancelFunc // ends the exports that are under way
}

// openTraces starts to export to an endpoint. The variables of OpenTelemetry's
// specification say the rest: headers, certificates, sampling, the service's name.
func openTraces(ctx context.Context, to collectorURL, logger *slog.Logger, registry prometheus.Registerer) (*traces, error) {
	client, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to.full()))
	if err != nil {
		return nil, fmt.Errorf("--otlp-endpoint: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "fenceproxy"), attribute.String("service.version", buildVersion())),
		resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	life, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	t := &traces{waiting: make(chan proxy.Span, maxWaiting), stop: make(chan struct{}), spans: newSpanCounter(registry), giveUp: giveUp}
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithResource(about),
		sdktrace.WithBatcher(&countedExporter{client, life, t.spans, logger}, sdktrace.WithBlocking()))
	t.tracer = t.provider.Tracer("github.com/fenceproxy/fenceproxy", trace.WithInstrumentationVersion(buildVersion()))
	t.done.Go(t.run)
	return t, nil
}

func newSpanCounter(registry prometheus.Registerer) *prometheus.CounterVec {
	spans := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fenceproxy_trace_spans_total", Help: "Spans by what became of them: exported, failed (the collector didn't take them), dropped (too many were waiting).",
	}, []string{"result"})
	for _, result := range []string{spanExported, spanFailed, spanDropped} {
		spans.WithLabelValues(result)
	}
	registry.MustRegister(spans)
	return spans
}

// Record is proxy.Tracer's.
func (t *traces) Record(s proxy.Span) {
	select {
	case t.waiting <- s:
	default:
		t.spans.WithLabelValues(spanDropped).Inc()
	}
}

// run passes spans on until close.
func (t *traces) run() {
	for {
		select {
		case s := <-t.waiting:
			t.pass(s)
		case <-t.stop:
			for {
				select {
				case s := <-t.waiting:
					t.pass(s)
				default:
					return
				}
			}
		}
	}
}

// close exports what is waiting, as far as that goes within lastExport. No session
// records any more.
func (t *traces) close() {
	defer time.AfterFunc(lastExport, t.giveUp).Stop()
	defer t.giveUp()
	close(t.stop)
	t.done.Wait()
	_ = t.provider.Shutdown(context.Background()) // what failed was counted
}

// pass makes a span of what was recorded. Its parent is the client's span, if that
// is one, and that decides whether it is sampled.
func (t *traces) pass(s proxy.Span) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": s.Parent})
	_, span := t.tracer.Start(ctx, "fence."+s.Kind.String(), trace.WithTimestamp(s.Begin),
		trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(attributesOf(s)...))
	if s.Code != "" {
		span.SetAttributes(attribute.String("error.type", s.Code))
		span.SetStatus(codes.Error, s.Code)
	}
	span.End(trace.WithTimestamp(s.End))
}

// attributesOf names the session as the log does, and never says anything of SQL.
func attributesOf(s proxy.Span) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("db.system.name", "postgresql"), attribute.String("db.namespace", asLabel(s.Database)),
		attribute.String("fence.session", strconv.FormatUint(s.Session, 10)),
	}
	var keys []string
	var tokens []int64
	for _, p := range s.Tag {
		keys, tokens = append(keys, p.Key), append(tokens, int64(p.Token))
	}
	if len(keys) > 0 {
		all = append(all, attribute.StringSlice("fence.keys", keys), attribute.Int64Slice("fence.tokens", tokens))
	}
	if s.Kind == proxy.SpanTransaction {
		all = append(all, attribute.Int("fence.checks", s.Checks))
	}
	return all
}

// A countedExporter counts what becomes of spans, and has the log tell of errors,
// which the library would print.
type countedExporter struct {
	sdktrace.SpanExporter
	life   context.Context // of all exports
	spans  *prometheus.CounterVec
	logger *slog.Logger
}

func (e *countedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	result, err := spanExported, e.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		result = spanFailed
		e.logger.Warn("export traces", "error", err)
	}
	e.spans.WithLabelValues(result).Add(float64(len(spans)))
	return nil
}

// A collectorURL is where OTLP over HTTP is taken; "" is nowhere.
type collectorURL string

func (c *collectorURL) Set(text string) error {
	u, err := url.Parse(text)
	if text != "" && (err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		!slices.Contains([]string{"http", "https"}, u.Scheme)) {
		return fmt.Errorf("a URL without a password is expected, such as http://127.0.0.1:4318")
	}
	*c = collectorURL(text)
	return nil
}
func (c *collectorURL) String() string { return string(*c) }
func (*collectorURL) Type() string     { return "URL" }

// full has the path that OTLP is taken at, unless another was given.
func (c collectorURL) full() string {
	u, err := url.Parse(string(c))
	if err == nil && strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
		return u.String()
	}
	return string(c)
}
