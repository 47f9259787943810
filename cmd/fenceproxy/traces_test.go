package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/samples"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// A receiver is a collector: it takes OTLP over HTTP.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	spans    []*otlp.Span
	resource []string
	bodies   bytes.Buffer
	paths    []string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		var request collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			t.Errorf("got %q, which is no OTLP: %v", body, err)
		}
		r.bodies.Write(body)
		r.paths = append(r.paths, q.Header.Get("X-Token")+q.URL.Path)
		for _, of := range request.GetResourceSpans() {
			r.resource = attributes(of.GetResource().GetAttributes())
			for _, in := range of.GetScopeSpans() {
				r.spans = append(r.spans, in.GetSpans()...)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func attributes(all []*common.KeyValue) (words []string) {
	for _, a := range all {
		v := a.GetValue()
		text := v.GetStringValue()
		if v.GetIntValue() != 0 {
			text = fmt.Sprint(v.GetIntValue())
		}
		for _, item := range v.GetArrayValue().GetValues() {
			text += item.GetStringValue() + fmt.Sprint(item.GetIntValue()) + ";"
		}
		words = append(words, a.GetKey()+"="+text)
	}
	return words
}

// span returns the first one whose parent is in a trace, or "" for a trace of its own.
func (r *receiver) span(name, trace string) *otlp.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.GetName() == name && (hex.EncodeToString(s.GetTraceId()) == trace || trace == "" && len(s.GetParentSpanId()) == 0) {
			return s
		}
	}
	return nil
}

// Claims and fenced transactions join the trace that the statement names, and
// tell what came of them without a word of SQL.
func TestServe_Traces(t *testing.T) {
	s := stack.New(t, "app")
	r := newReceiver(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	p := serveOn(t, s, "--otlp-endpoint", r.URL)
	lease := hold(t, s.Client, "order:1")
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
	const traceOne, traceTwo, parentID = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736", "b7ad6b7169203331"
	joins := func(trace, flags string) string {
		return " /*traceparent='00-" + trace + "-" + parentID + "-" + flags + "'*/"
	}
	exec1(t, conn, fmt.Sprintf("SET fence.key = 'order:1'; SET fence.token = %d", lease.Token())+joins(traceOne, "01"))
	exec1(t, conn, "CREATE TABLE sesame (i int)"+joins(traceOne, "01"))
	exec1(t, conn, "INSERT INTO sesame VALUES (1)"+joins("ffffffffffffffffffffffffffffffff", "00")) // not sampled by its client
	exec1(t, conn, "INSERT INTO sesame VALUES (1) /*traceparent='00-zz'*/")                         // no parent
	if _, err := conn.Exec(t.Context(), fmt.Sprintf("SET fence.token = %d", lease.Token()+1000)+joins(traceTwo, "01")); code(err) != "LF002" {
		t.Errorf("got %v, want LF002", err)
	}
	poll.Until(t, "the spans", func() bool {
		return r.span("fence.claim", traceOne) != nil && r.span("fence.transaction", traceOne) != nil &&
			r.span("fence.transaction", "") != nil && r.span("fence.claim", traceTwo) != nil
	})
	claim, write, refused := r.span("fence.claim", traceOne), r.span("fence.transaction", traceOne), r.span("fence.claim", traceTwo)
	if got := hex.EncodeToString(claim.GetParentSpanId()); got != parentID {
		t.Errorf("the claim's parent: got %s, want %s", got, parentID)
	}
	token := fmt.Sprintf("fence.tokens=%d;", lease.Token())
	for name, c := range map[string]struct {
		span *otlp.Span
		want []string
	}{
		"claim":   {claim, []string{"db.namespace=app", "fence.keys=order:10;", token}},
		"write":   {write, []string{"fence.checks=1", token}},
		"refused": {refused, []string{"error.type=LF002", "db.system.name=postgresql"}},
	} {
		for _, want := range c.want {
			if got := attributes(c.span.GetAttributes()); !slices.Contains(got, want) {
				t.Errorf("%s: got %q, want %s", name, got, want)
			}
		}
		if c.span.GetEndTimeUnixNano() < c.span.GetStartTimeUnixNano() || c.span.GetStartTimeUnixNano() == 0 {
			t.Errorf("%s: got %d to %d", name, c.span.GetStartTimeUnixNano(), c.span.GetEndTimeUnixNano())
		}
	}
	if got := refused.GetStatus(); got.GetCode() != otlp.Status_STATUS_CODE_ERROR || got.GetMessage() != "LF002" {
		t.Errorf("the refusal: got %v", got)
	}
	if r.span("fence.transaction", "ffffffffffffffffffffffffffffffff") != nil {
		t.Error("got a span that its client doesn't sample")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.resource, "service.name=fenceproxy") || !slices.Contains(r.resource, "deployment.environment.name=test") {
		t.Errorf("the resource: got %q", r.resource)
	}
	if got := r.paths[0]; got != "secret/v1/traces" {
		t.Errorf("got %s, want the path with the header of the variable", got)
	}
	for _, word := range []string{"sesame", "INSERT", "SET ", "traceparent"} {
		if bytes.Contains(r.bodies.Bytes(), []byte(word)) {
			t.Errorf("a span has %q, a word of the statements", word)
		}
	}
	if _, metrics := get(t, p, "/metrics"); !strings.Contains(metrics, `fenceproxy_trace_spans_total{result="exported"} `) {
		t.Error("/metrics lacks the spans")
	}
}

// A collector that is away costs nobody more than a line of the log.
func TestServe_TracesAway(t *testing.T) {
	s := stack.New(t, "app")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	p := serveOn(t, s, "--otlp-endpoint", "http://127.0.0.1:"+freePort(t))
	lease := hold(t, s.Client, "order:1")
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...)
	exec1(t, conn, "CREATE TABLE t (i int)")
	conn.Close(t.Context())
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status, err := p.Wait(); status != 0 || err != nil {
		t.Errorf("got exit %d, %v, want 0", status, err)
	}
	if !strings.Contains(p.Log(), "export traces") {
		t.Errorf("got %s, want a line about it", p.Log())
	}
}

// While the collector hangs nobody waits: what is too much is dropped and counted,
// and the end of the proxy gives up the rest.
func TestTraces_Hanging(t *testing.T) {
	hold := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer hanging.Close()
	defer close(hold)
	registry := prometheus.NewRegistry()
	traces, err := openTraces(t.Context(), collectorURL(hanging.URL), slog.New(slog.DiscardHandler), registry)
	if err != nil {
		t.Fatal(err)
	}
	const all = 20000
	for range all {
		traces.Record(proxy.Span{Kind: proxy.SpanClaim, Begin: time.Now(), End: time.Now(), Parent: "nonsense"})
	}
	if got := samples.Gather(t, registry)["trace_spans_total dropped"]; got == 0 {
		t.Error("got none dropped, want most of them")
	}
	traces.close()
	got := samples.Gather(t, registry)
	if sum := got["trace_spans_total dropped"] + got["trace_spans_total failed"]; sum != all {
		t.Errorf("got %v dropped and %v failed, want %d in all", got["trace_spans_total dropped"], got["trace_spans_total failed"], all)
	}
}

func TestCollectorURL_Set(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:4318":              "http://127.0.0.1:4318/v1/traces",
		"https://otel.example/":              "https://otel.example/v1/traces",
		"https://otel.example/tenant/traces": "https://otel.example/tenant/traces",
		"otel.example:4318":                  "",
		"grpc://otel.example:4317":           "",
		"http://":                            "",
		"http://user:secret@otel.example":    "",
		"http://otel.example/?token=secret":  "",
	} {
		var c collectorURL
		if err := c.Set(text); (err == nil) != (want != "") || err == nil && c.full() != want {
			t.Errorf("%s: got %s, %v, want %q", text, c.full(), err, want)
		}
	}
}
