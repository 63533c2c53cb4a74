package cosmosdb

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Whatever an authorized client sends, it gets a JSON response, and the account keeps
// working.
func FuzzRequest(f *testing.F) {
	const upsert = `{"operationType":"Upsert","partitionKey":"[\"a\"]","resourceBody":{"id":"1","key":"a"}}`
	for _, seed := range [][4]string{
		{"GET", "", "", ""}, {"GET", "dbs", "", ""}, {"POST", "dbs", "", `{"id":"x"}`}, {"DELETE", "dbs/x", "", ""}, {"GET", "dbs/db/colls/docs", "", ""},
		{"POST", "dbs/db/colls", "X-Ms-Offer-Throughput: 400", `{"id":"y","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash"}}`},
		{"PUT", "dbs/db/colls/docs", "", `{"id":"docs","indexingPolicy":{"indexingMode":"none"}}`}, {"GET", "dbs/db/colls/docs/pkranges", "A-Im: x\nIf-None-Match: \"1\"", ""},
		{"POST", "dbs/db/colls/docs/docs", `X-Ms-Documentdb-Partitionkey: ["a"]`, `{"id":"1","key":"a"}`}, {"GET", "dbs/db/colls/docs/docs/1", `X-Ms-Documentdb-Partitionkey: ["a"]`, ""},
		{"PUT", "dbs/db/colls/docs/docs/1", "If-Match: x\n" + `X-Ms-Documentdb-Partitionkey: ["a"]`, `{"id":"1","key":"a"}`}, {"GET", "dbs/db/colls/docs/docs", "X-Ms-Max-Item-Count: 1", ""},
		{"POST", "dbs/db/colls/docs/docs", "X-Ms-Documentdb-Query: true\nX-Ms-Continuation: {\"parts\":[{\"min\":\"\",\"max\":\"FF\",\"after\":1}]}", `{"query":"SELECT * FROM c WHERE c.key = @p","parameters":[{"name":"@p","value":"a"}]}`},
		{"POST", "dbs/db/colls/docs/docs", "X-Ms-Cosmos-Is-Query-Plan-Request: true", `{"query":"SELECT VALUE COUNT(1) FROM c"}`},
		{"POST", "dbs/db/colls/docs/docs", "X-Ms-Cosmos-Is-Batch-Request: true\nX-Ms-Documentdb-Partitionkeyrangeid: 0", "[" + upsert + "]"},
		{"POST", "dbs/db/colls/docs/docs", "X-Ms-Cosmos-Is-Batch-Request: true\nX-Ms-Cosmos-Batch-Atomic: true\n" + `X-Ms-Documentdb-Partitionkey: ["a"]`, "[" + upsert + "]"},
		{"GET", "offers", "", ""}, {"PUT", "offers/off00002", "", `{"content":{"offerThroughput":400}}`}, {"PATCH", "dbs/db/colls/docs/docs/1", "", "{}"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	cfg := ContainerConfig{Database: "db", Name: "docs", Paths: []string{"/key"}, Partitions: 3}
	account, err := Open(nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { account.Close() })
	f.Fuzz(func(t *testing.T, method, path, header, body string) {
		if _, err := account.Container("db", "docs"); err != nil || len(account.listDatabases()) > 100 {
			for _, db := range account.listDatabases() {
				account.deleteDatabase(db.id)
			}
			if _, err := account.CreateContainer(cfg); err != nil {
				t.Fatal(err)
			}
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(body))
		r.Method = method
		for line := range strings.SplitSeq(header, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				r.Header.Set(name, value)
			}
		}
		c := &call{account: account, w: w, r: r, buffers: new(buffers)}
		if path != "" {
			c.path = strings.Split(path, "/")
		}
		if len(c.path) > 8 {
			return
		}
		c.resource()
		if fail := c.dispatch(); fail != nil {
			c.answerFailure(fail)
		}
		if out := w.Body.Bytes(); w.Code < 200 || len(out) > 0 && !json.Valid(out) || len(out) == 0 && w.Code != http.StatusNoContent && w.Code != http.StatusNotModified {
			if r.Header.Get("Prefer") == "" {
				t.Fatalf("%s %s: %d %q", method, path, w.Code, out)
			}
		}
	})
}
