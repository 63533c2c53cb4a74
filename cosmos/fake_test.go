package cosmos

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/freeport"
)

const testKey = "c2VjcmV0LWNhbmFyeS1rZXktb2YtdGhlLXRlc3Q="

// fake is an account of one container, whose answers a test can replace. It
// does not look at keys or hashes: the emulator does.
type fake struct {
	*httptest.Server

	mu          sync.Mutex
	container   string // the container's own JSON
	ranges      string // the array of partition key ranges
	docs        map[string]fakeDoc
	versions    int
	connections int
	looks       int // at the ranges
	batches     [][]fakeOperation
	headers     []http.Header

	// answer replaces the answer to a request about documents, if it returns
	// true. operation replaces the outcome of one operation of a batch, if it
	// returns one. Neither holds the lock.
	answer    func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool
	operation func(op fakeOperation) map[string]any
	wrote     func(key string, body map[string]any) // with the lock
}

type fakeDoc struct {
	body map[string]any
	etag string
}

type fakeOperation struct {
	OperationType, PartitionKey, ID, IfMatch string
	MinimalReturnPreference                  bool
	ResourceBody                             map[string]any
}

const (
	oneRange  = `[{"id":"0","minInclusive":"","maxExclusive":"FF"}]`
	twoRanges = `[{"id":"1","minInclusive":"","maxExclusive":"1FFF","parents":["0"]},{"id":"2","minInclusive":"1FFF","maxExclusive":"FF","parents":["0"]}]`
)

func newFake(t testing.TB) *fake {
	f := &fake{docs: map[string]fakeDoc{}, ranges: oneRange, container: `{"_rid":"r1","partitionKey":{"paths":["/key"],"kind":"Hash","version":2}}`}
	f.Server = freeport.Unstarted(t, http.HandlerFunc(f.serve))
	f.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			f.mu.Lock()
			f.connections++
			f.mu.Unlock()
		}
	}
	f.Start()
	t.Cleanup(f.Close)
	return f
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.URL.Path == "/" || r.URL.Path == "":
		fmt.Fprintf(w, `{"id":"fake","writableLocations":[{"name":"here","databaseAccountEndpoint":"%[1]s/"}],"readableLocations":[{"name":"here","databaseAccountEndpoint":"%[1]s/"}]}`, f.URL)
	case r.URL.Path == "/dbs/db/colls/docs":
		f.mu.Lock()
		defer f.mu.Unlock()
		io.WriteString(w, f.container)
	case r.URL.Path == "/dbs/db/colls/docs/pkranges":
		f.mu.Lock()
		defer f.mu.Unlock()
		f.looks++
		fmt.Fprintf(w, `{"_rid":"r1","PartitionKeyRanges":%s}`, f.ranges)
	case strings.HasPrefix(r.URL.Path, "/dbs/db/colls/docs/docs"):
		f.documents(w, r, body)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (f *fake) documents(w http.ResponseWriter, r *http.Request, body []byte) {
	var batch []fakeOperation
	bulk := r.Header.Get("x-ms-cosmos-is-batch-request") != ""
	if bulk {
		if err := json.Unmarshal(body, &batch); err != nil {
			panic(err)
		}
	} else {
		op := fakeOperation{PartitionKey: r.Header.Get("x-ms-documentdb-partitionkey"), IfMatch: r.Header.Get("if-match")}
		json.Unmarshal(body, &op.ResourceBody)
		op.ID = strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/dbs/db/colls/docs/docs"), "/")
		switch {
		case r.Method == http.MethodPut:
			op.OperationType = "Replace"
		case r.Method == http.MethodGet:
			op.OperationType = "Read"
		case r.Header.Get("x-ms-documentdb-is-upsert") == "True":
			op.OperationType = "Upsert"
		default:
			op.OperationType = "Create"
		}
		batch = []fakeOperation{op}
	}
	f.mu.Lock()
	f.batches = append(f.batches, batch)
	f.headers = append(f.headers, r.Header.Clone())
	answer, operation := f.answer, f.operation
	f.mu.Unlock()
	if answer != nil && answer(w, r, batch) {
		return
	}
	results := make([]map[string]any, len(batch))
	for i, op := range batch {
		if operation != nil {
			results[i] = operation(op)
		}
		if results[i] == nil {
			results[i] = f.apply(op)
		}
	}
	if bulk {
		w.WriteHeader(http.StatusMultiStatus)
		json.NewEncoder(w).Encode(results)
		return
	}
	one := results[0]
	w.Header().Set("x-ms-request-charge", fmt.Sprint(one["requestCharge"]))
	if etag, ok := one["eTag"].(string); ok {
		w.Header().Set("etag", etag)
	}
	if sub, ok := one["subStatusCode"].(int); ok {
		w.Header().Set("x-ms-substatus", strconv.Itoa(sub))
	}
	w.WriteHeader(one["statusCode"].(int))
	if one["resourceBody"] != nil {
		json.NewEncoder(w).Encode(one["resourceBody"])
	}
}

// apply carries an operation out.
func (f *fake) apply(op fakeOperation) map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := op.ID
	if id == "" {
		id, _ = op.ResourceBody["id"].(string)
	}
	key := op.PartitionKey + "/" + id
	doc, found := f.docs[key]
	status, cost := 0, 10.0
	switch {
	case op.OperationType == "Create" && found:
		return map[string]any{"statusCode": 409, "requestCharge": 1.5}
	case (op.OperationType == "Replace" || op.OperationType == "Read") && !found:
		return map[string]any{"statusCode": 404, "requestCharge": 1.0}
	case op.IfMatch != "" && op.IfMatch != doc.etag:
		return map[string]any{"statusCode": 412, "requestCharge": 1.5}
	case op.OperationType == "Read":
		body := maps.Clone(doc.body)
		body["_etag"] = doc.etag
		return map[string]any{"statusCode": 200, "requestCharge": 1.0, "eTag": doc.etag, "resourceBody": body}
	case found:
		status = 200
	default:
		status, cost = 201, 6.0
	}
	f.versions++
	if f.wrote != nil {
		f.wrote(key, op.ResourceBody)
	}
	f.docs[key] = fakeDoc{op.ResourceBody, fmt.Sprintf(`"e-%d"`, f.versions)}
	return map[string]any{"statusCode": status, "requestCharge": cost, "eTag": f.docs[key].etag}
}

// replace sets what a test replaces.
func (f *fake) replace(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.docs)
}
