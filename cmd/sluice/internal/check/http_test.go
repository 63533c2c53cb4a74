package check

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/pipeline"
)

const endpointKey = "0123456789abcdef01234567"

// receiver is an endpoint that checks signatures, and what is wrong with it.
type receiver struct {
	unsigned bool // it does not check them
	status   int  // of each answer; 0: 200
	posted   bytes.Buffer
}

func (e *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	e.posted.Write(body)
	mac := hmac.New(sha256.New, []byte(endpointKey))
	io.WriteString(mac, r.Header.Get("Webhook-Id")+"."+r.Header.Get("Webhook-Timestamp")+".")
	mac.Write(body)
	if !e.unsigned && r.Header.Get("Webhook-Signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if e.status != 0 {
		w.WriteHeader(e.status)
	}
}

// openEndpoint returns the target of a pipeline file as a system.
func openEndpoint(t *testing.T, e *receiver, key string) System {
	t.Helper()
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	signature := ""
	if key != "" {
		signature = "    signature: {key: \"${KEY}\"}\n"
	}
	env := map[string]string{"URL": srv.URL + "/api?code=topsecret", "KEY": key, "SOURCE": "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"}
	p, err := pipeline.Parse("p.yaml", []byte("source: {eventhub: {hub: flights, connection: \"${SOURCE}\"}}\npartitions: all\nleases: {sql: \"sqlite:x.db\"}\ntarget:\n  http:\n    url: ${URL}\n"+signature),
		func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	targets := NewTargets(Options{}, func(string) string { return "" })
	c := pipeline.Connections{HTTP: p.Connections().HTTP}
	if err := targets.AddPipeline(c, "sluice-check"); err != nil || len(targets.Systems) != 1 {
		t.Fatalf("%d systems, %v", len(targets.Systems), err)
	}
	t.Cleanup(targets.Close)
	if s := strings.Join(targets.Secrets, " "); !strings.Contains(s, "topsecret") || key != "" && !strings.Contains(s, key) {
		t.Errorf("secrets that a report must not show: %q", s)
	}
	if name := targets.Systems[0].Name(); strings.Contains(name, "topsecret") || !strings.HasSuffix(name, "/api") {
		t.Errorf("the system is %s", name)
	}
	return targets.Systems[0]
}

func TestHTTPHolds(t *testing.T) {
	t.Parallel()
	e := &receiver{}
	allHold(t, openEndpoint(t, e, endpointKey), nil)
	if e.posted.String() != "[][]" {
		t.Errorf("posted %q, want requests without events", e.posted.String())
	}
	allHold(t, openEndpoint(t, &receiver{unsigned: true}, ""), map[string]State{"http.signature": Skipped})
}

func TestHTTPDiffers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		e     *receiver
		key   string
		check string
		want  State
	}{
		{"another key", &receiver{}, strings.Repeat("x", 24), "http.empty", Failed},
		{"no check of signatures", &receiver{unsigned: true}, endpointKey, "http.signature", Failed},
		{"nothing at the URL", &receiver{status: http.StatusNotFound}, endpointKey, "http.empty", Failed},
		{"a refusal of empty batches", &receiver{status: http.StatusBadRequest}, endpointKey, "http.empty", Warning},
	} {
		t.Run(c.what, func(t *testing.T) { expect(t, openEndpoint(t, c.e, c.key), c.check, c.want) })
	}
}
