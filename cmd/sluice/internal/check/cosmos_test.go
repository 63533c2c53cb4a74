package check

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

func startCosmos(t *testing.T, ru int) *emulator.Cosmos {
	t.Helper()
	srv, err := emulator.StartCosmos([]emulator.CosmosContainer{
		{Database: "db", Name: "docs", KeyPaths: []string{"/key"}, Partitions: 3, Throughput: ru},
		{Database: "db", Name: "tree", KeyPaths: []string{"/tenant/name", "/user", "/id"}, Throughput: ru},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	return srv
}

// edits is what a transport does to requests and answers.
type edits struct {
	request func(*http.Request)
	answer  func(req *http.Request, resp *http.Response)
}

func (e edits) RoundTrip(req *http.Request) (*http.Response, error) {
	if e.request != nil {
		req = req.Clone(req.Context())
		e.request(req)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil && e.answer != nil {
		e.answer(req, resp)
	}
	return resp, err
}

// replaceBody edits the body of an answer.
func replaceBody(resp *http.Response, edit func(string) string) {
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	text := edit(string(body))
	resp.Body = io.NopCloser(bytes.NewReader([]byte(text)))
	resp.ContentLength = int64(len(text))
	resp.Header.Del("Content-Length")
}

func openCosmos(t *testing.T, srv *emulator.Cosmos, container string, opts Options, e edits) *cosmosSystem {
	t.Helper()
	opts.ID = "test"
	s, err := OpenCosmos(CosmosAddress{Endpoint: srv.Endpoint(), Key: srv.Key(), Database: "db", Container: container, Client: &http.Client{Transport: e, Timeout: 10 * time.Second}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	c := s.(*cosmosSystem)
	c.requests = 3
	return c
}

// documents is how many documents a container has.
func documents(t *testing.T, srv *emulator.Cosmos, container string) int {
	t.Helper()
	stats, err := srv.ContainerStats("db", container)
	if err != nil {
		t.Fatal(err)
	}
	return stats.Documents
}

func TestCosmosHolds(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	srv := startCosmos(t, 3000)
	for _, container := range []string{"docs", "tree"} {
		allHold(t, openCosmos(t, srv, container, Options{Load: true}, edits{}), nil)
		if n := documents(t, srv, container); n != 0 {
			t.Errorf("container %s: %d documents are left", container, n)
		}
	}
}

// Each interruption leaves nothing.
func TestInterruptedCosmos(t *testing.T) {
	t.Parallel()
	srv := startCosmos(t, 0)
	for at := range cosmosChecks {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		s := openCosmos(t, srv, "docs", Options{Load: true}, edits{answer: func(req *http.Request, _ *http.Response) {
			if req.Method != http.MethodPost {
				return
			}
			if n++; n == 5*at+1 { // somewhere in the checks
				cancel()
			}
		}})
		report, err := (&Runner{Systems: []System{s}}).Run(ctx)
		cancel()
		if stayed := documents(t, srv, "docs"); err != nil || stayed != 0 || len(left(report)) > 0 {
			t.Errorf("interrupted at write %d: error %v, %d documents, left %v", 5*at+1, err, stayed, left(report))
		}
	}
}

func TestCosmosRights(t *testing.T) {
	t.Parallel()
	srv := startCosmos(t, 0)
	denied := func(method string) edits {
		return edits{answer: func(req *http.Request, resp *http.Response) {
			if req.Method == method && strings.Contains(req.URL.Path, "/docs") {
				resp.StatusCode = http.StatusForbidden
			}
		}}
	}
	for method, want := range map[string]string{http.MethodGet: "read documents", http.MethodPut: "replace documents", http.MethodDelete: "delete documents"} {
		e := denied(method)
		s := openCosmos(t, srv, "docs", Options{}, e)
		if method == http.MethodGet {
			inner := e.answer
			s.client.Client.Transport = edits{answer: func(req *http.Request, resp *http.Response) {
				if strings.HasSuffix(req.URL.Path, "-rights") {
					inner(req, resp)
				}
			}}
		}
		var missing []string
		for _, r := range s.Rights(t.Context()) {
			if !r.Granted {
				missing = append(missing, r.Name)
			}
		}
		if len(missing) != 1 || missing[0] != want {
			t.Errorf("%s is denied: missing %q", method, missing)
		}
	}
	wrong := openCosmos(t, srv, "nosuch", Options{}, edits{})
	if rights := wrong.Rights(t.Context()); len(rights) != 1 || rights[0].Granted {
		t.Errorf("rights in a missing container: %+v", rights)
	}
	if n := documents(t, srv, "docs"); n != 0 {
		t.Errorf("asking for rights wrote %d documents", n)
	}
}

func breakCosmos(e edits) func(*cosmosSystem) {
	return func(s *cosmosSystem) { s.client.Client.Transport = e }
}

// answering edits the body of answers for a path's end.
func answering(suffix string, edit func(string) string) func(*cosmosSystem) {
	return breakCosmos(edits{answer: func(req *http.Request, resp *http.Response) {
		if strings.HasSuffix(req.URL.Path, suffix) && resp.StatusCode == http.StatusOK {
			replaceBody(resp, edit)
		}
	}})
}

func isBulk(req *http.Request) bool { return req.Header.Get("x-ms-cosmos-is-batch-request") != "" }

// stopAtError leaves the operations after the second one out of a bulk request.
func stopAtError(req *http.Request) {
	if !isBulk(req) {
		return
	}
	var ops []json.RawMessage
	if json.NewDecoder(req.Body).Decode(&ops) != nil || len(ops) < 2 {
		panic("no bulk request")
	}
	body, _ := json.Marshal(ops[:2])
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

// stopped answers for the operations that stopAtError left out.
func stopped(req *http.Request, resp *http.Response) {
	if isBulk(req) {
		replaceBody(resp, func(body string) string {
			return strings.TrimSuffix(strings.TrimSpace(body), "]") + strings.Repeat(`,{"statusCode":424}`, 3) + "]"
		})
	}
}

var brokenCosmos = []broken[*cosmosSystem]{
	{"several regions accept writes", "cosmos.regions", Failed, answering("/", func(body string) string {
		return strings.Replace(body, `"enableMultipleWriteLocations":false`, `"enableMultipleWriteLocations":true`, 1)
	})},
	{"an unknown hash of keys", "cosmos.container", Failed, func(s *cosmosSystem) { s.definition.PartitionKey.Version = 3 }},
	{"documents expire", "cosmos.container", Warning, func(s *cosmosSystem) { s.definition.DefaultTTL = ptr(3600) }},
	{"a range is missing", "cosmos.ranges", Failed, answering("/pkranges", func(body string) string {
		return strings.Replace(body, `"minInclusive":""`, `"minInclusive":"05"`, 1)
	})},
	{"keys are hashed otherwise", "cosmos.ranges", Failed, func(s *cosmosSystem) { s.definition.PartitionKey.Version = 1 }},
	{"a bulk request stops at an error", "cosmos.bulk", Failed, breakCosmos(edits{request: stopAtError, answer: stopped})},
	{"a bulk request is refused as a whole", "cosmos.bulk", Failed, breakCosmos(edits{answer: func(req *http.Request, resp *http.Response) {
		if isBulk(req) {
			resp.StatusCode = http.StatusConflict
		}
	}})},
	{"a bulk request ignores versions", "cosmos.bulk", Failed, breakCosmos(edits{request: func(req *http.Request) {
		if isBulk(req) {
			body, _ := io.ReadAll(req.Body)
			body = bytes.Replace(body, []byte(`"ifMatch"`), []byte(`"nothing"`), 1)
			req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
	}})},
	{"versions are ignored", "cosmos.etag", Failed, breakCosmos(edits{request: func(req *http.Request) { req.Header.Del("If-Match") }})},
	{"a document has no version", "cosmos.etag", Failed, breakCosmos(edits{answer: func(_ *http.Request, resp *http.Response) { resp.Header.Del("Etag") }})},
	{"creating overwrites", "cosmos.create", Failed, breakCosmos(edits{request: func(req *http.Request) {
		req.Header.Set("x-ms-documentdb-is-upsert", "True")
	}})},
	{"answers without a charge", "cosmos.charge", Failed, breakCosmos(edits{answer: func(_ *http.Request, resp *http.Response) { resp.Header.Del("x-ms-request-charge") }})},
	{"operations without a charge", "cosmos.charge", Failed, breakCosmos(edits{answer: func(req *http.Request, resp *http.Response) {
		if isBulk(req) {
			replaceBody(resp, func(body string) string { return strings.ReplaceAll(body, `"requestCharge"`, `"nothing"`) })
		}
	}})},
	{"throttled without a time to wait", "cosmos.throttle", Failed, breakCosmos(edits{answer: func(_ *http.Request, resp *http.Response) { resp.Header.Del("x-ms-retry-after-ms") }})},
	{"slow answers", "cosmos.speed", Failed, breakCosmos(edits{request: func(req *http.Request) { _ = pause(req.Context(), 1100*time.Millisecond) }})},
}

func TestBrokenCosmos(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	every(t, "cosmos", brokenCosmos)
	eachRow(t, brokenCosmos, func(t *testing.T, c broken[*cosmosSystem]) {
		srv := startCosmos(t, 3000)
		s := openCosmos(t, srv, "docs", Options{Load: true}, edits{})
		granted(t, s)
		made := &Ledger{}
		if err := s.Prepare(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		c.damage(s)
		expect(t, s, c.check, c.want)
		if err := made.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if n := documents(t, srv, "docs"); n != 0 {
			t.Errorf("%d documents are left", n)
		}
	})
}
