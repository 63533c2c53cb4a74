package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestTraces takes spans as a collector does, over OTLP.
func TestTraces(t *testing.T) {
	t.Parallel()
	var spans atomic.Value
	spans.Store("")
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if r.URL.Path == "/v1/traces" && err == nil {
			spans.Store(spans.Load().(string) + string(body))
		}
	}))
	defer collector.Close()
	_, connection := serve(t, 1)
	env := environment(connection, "sqlite:"+filepath.Join(t.TempDir(), "flights.db"), "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_SERVICE_NAME=flights-consumer")
	must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:100]))
	must(t, "", env, "run", example(t), "--until-caught-up", "--within", "1m")
	for _, want := range []string{"process flights", "messaging.batch.message_count", "flights-consumer"} {
		if got := spans.Load().(string); !strings.Contains(got, want) {
			t.Errorf("%q is not in the %d bytes of spans", want, len(got))
		}
	}
}
