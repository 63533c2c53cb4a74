package main_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

// collector keeps the names of the metrics and spans that it gets by OTLP.
type collector struct {
	url string

	mu       sync.Mutex
	names    map[string]bool
	services map[string]bool // service.name of the resources, and another attribute of theirs
}

func collect(t *testing.T) *collector {
	c := &collector{names: map[string]bool{}, services: map[string]bool{}}
	server := httptest.NewServer(http.HandlerFunc(c.post))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *collector) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	switch r.URL.Path {
	case "/v1/traces":
		var spans collectortrace.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &spans)
		}
		c.spans(&spans)
	case "/v1/metrics":
		var request collectormetrics.ExportMetricsServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		c.metrics(&request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (c *collector) spans(r *collectortrace.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		c.resource(of.GetResource().GetAttributes())
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.names[s.GetName()] = true
			}
		}
	}
}

func (c *collector) metrics(r *collectormetrics.ExportMetricsServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.GetResourceMetrics() {
		c.resource(of.GetResource().GetAttributes())
		for _, scope := range of.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				c.names[m.GetName()] = true
			}
		}
	}
}

func (c *collector) resource(attributes []*commonv1.KeyValue) {
	for _, a := range attributes {
		if a.GetKey() == "service.name" || a.GetKey() == "team" {
			c.services[a.GetKey()+"="+a.GetValue().GetStringValue()] = true
		}
	}
}

// TestOTLP: the variables of OpenTelemetry say what is exported and in whose name.
func TestOTLP(t *testing.T) {
	t.Parallel()
	const span, metric, lag = "process flights", "sluice.committed.messages", "sluice.lag.messages"
	for name, c := range map[string]struct {
		env  func(*collector) []string
		want []string // all of span, metric and lag that arrive
	}{
		"http/protobuf": {func(c *collector) []string {
			return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_SERVICE_NAME=flights-consumer", "OTEL_RESOURCE_ATTRIBUTES=team=air"}
		}, []string{span, metric, lag}},
		"traces only, whose protocol precedes that for both": {func(c *collector) []string {
			return []string{"OTEL_METRICS_EXPORTER=none", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_SERVICE_NAME=flights-consumer", "OTEL_RESOURCE_ATTRIBUTES=team=air"}
		}, []string{span}},
		"metrics only": {func(c *collector) []string {
			return []string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=" + c.url + "/v1/metrics", "OTEL_SERVICE_NAME=flights-consumer", "OTEL_RESOURCE_ATTRIBUTES=team=air"}
		}, []string{metric, lag}},
		"disabled": {func(c *collector) []string {
			return []string{"OTEL_SDK_DISABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := collect(t)
			_, connection := serve(t, 1)
			env := environment(connection, "sqlite:"+filepath.Join(t.TempDir(), "flights.db"), append(c.env(to), "OTEL_METRIC_EXPORT_INTERVAL=100")...)
			must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:100]))
			got := func() (got []string) {
				to.mu.Lock()
				defer to.mu.Unlock()
				for _, n := range []string{span, metric, lag} {
					if to.names[n] {
						got = append(got, n)
					}
				}
				return got
			}
			p := start(t, "", env, "run", example(t))
			await(t, "the log line of its reading", func() bool { return strings.Contains(p.err.String(), "reading started") })
			await(t, "what the collector should get", func() bool { return len(got()) >= len(c.want) })
			p.stop()
			if got := got(); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("the collector got %v, want %v", got, c.want)
			}
			to.mu.Lock()
			defer to.mu.Unlock()
			if len(c.want) > 0 && fmt.Sprint(to.services) != "map[service.name=flights-consumer:true team=air:true]" {
				t.Errorf("the resources are %v", to.services)
			}
		})
	}
}

func TestOTLPMistakes(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	for variables, want := range map[string]string{
		"OTEL_TRACES_EXPORTER=console":     "OTEL_TRACES_EXPORTER=console: sluice run exports by otlp only: write otlp, or none",
		"OTEL_METRICS_EXPORTER=prometheus": "OTEL_METRICS_EXPORTER=prometheus: sluice run exports by otlp only: write otlp, or none (Prometheus reads the metrics at --metrics)",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_EXPORTER_OTLP_PROTOCOL=http/json":              "OTEL_EXPORTER_OTLP_PROTOCOL=http/json: sluice sends OTLP over HTTP alone: write http/protobuf, and in the endpoint",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_EXPORTER_OTLP_PROTOCOL=grpc":                   "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: sluice sends OTLP over HTTP alone: write http/protobuf, and in the endpoint the collector's port for HTTP (4318)",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=grpc":           "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=grpc: sluice sends OTLP over HTTP alone: write http/protobuf",
		"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc":                                 "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc: sluice sends OTLP over HTTP alone: write http/protobuf",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://secret@127.0.0.1:x":                                             "OTEL_EXPORTER_OTLP_ENDPOINT is not an HTTP URL: write http://HOST:PORT or https://HOST:PORT, with the collector's port for HTTP (4318)",
		"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318":                                                        "OTEL_EXPORTER_OTLP_ENDPOINT is not an HTTP URL: write",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://":                                                               "OTEL_EXPORTER_OTLP_ENDPOINT is not an HTTP URL: write",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=grpc://secret@collector:4317":                                  "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is not an HTTP URL: write",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_EXPORTER_OTLP_HEADERS=a=b,api-key:secret":      "OTEL_EXPORTER_OTLP_HEADERS: header 2 is wrong: write NAME=VALUE, with commas between",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_EXPORTER_OTLP_METRICS_HEADERS=api-key=%secret": "OTEL_EXPORTER_OTLP_METRICS_HEADERS: header 1 is wrong: write NAME=VALUE, with commas between",
	} {
		env := environment(connection, "sqlite:"+filepath.Join(t.TempDir(), "flights.db"), strings.Fields(variables)...)
		if code, _, errs := invoke(t, "", env, "run", example(t)); code != 1 || !strings.Contains(errs, want) || strings.Contains(errs, "secret") {
			t.Errorf("%s: exit code %d: %s", variables, code, errs)
		}
	}
}

// TestProbesWithoutACollector: a collector that refuses connections, or takes them and does not
// answer, changes nothing about probes, metrics and work. SIGTERM waits for it for a bounded time.
func TestProbesWithoutACollector(t *testing.T) {
	t.Parallel()
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused.Close()
	for name, at := range map[string]string{"refused": refused.Addr().String(), "no answer": deafCollector(t)} {
		for _, command := range []string{"run", "autoscale logic", "autoscale scaler"} {
			t.Run(name+" "+command, func(t *testing.T) {
				t.Parallel()
				env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + at, "OTEL_METRIC_EXPORT_INTERVAL=100", "OTEL_EXPORTER_OTLP_TIMEOUT=200", "OTEL_BSP_SCHEDULE_DELAY=100"}
				var args []string
				if kind, part, ok := strings.Cut(command, " "); ok {
					file, _ := autoscaler(t)
					args = []string{kind, "run", file, "--part", part}
				} else {
					_, connection := serve(t, 1)
					env = append(env, environment(connection, databases["sqlite"](t))...)
					must(t, "", env[4:], "send", "--hub", "flights", writeLines(t, flights20k(t)[:100]))
					args = []string{"run", example(t)}
				}
				p := start(t, "", env, append(args, "--metrics", "127.0.0.1:0")...)
				address := metricsOf(t, p)
				await(t, "an export that fails", func() bool { return strings.Contains(p.err.String(), "telemetry not sent") })
				await(t, "the process to be ready", func() bool { code, _ := get(address + "/readyz"); return code == http.StatusOK })
				for _, path := range []string{"/livez", "/metrics"} {
					if code, text := get(address + path); code != http.StatusOK {
						t.Errorf("%s answers %d: %s", path, code, text)
					}
				}
				if command == "run" {
					await(t, "all events in the metrics", func() bool {
						_, text := get(address + "/metrics")
						return strings.Contains(text, "sluice_committed_messages_total{") && hasLine(text, "sluice_committed_messages_total", "100")
					})
				}
				began := time.Now()
				p.stop()
				if took := time.Since(began); took > 30*time.Second {
					t.Errorf("the stop took %v", took)
				}
			})
		}
	}
}
