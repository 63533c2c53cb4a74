package cosmosdb_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
)

// create creates or replaces the container "docs" with a definition.
func (w *world) define(t testing.TB, method, more string) answer {
	t.Helper()
	path, link := "dbs/db/colls", "dbs/db"
	if method == http.MethodPut {
		path, link = docsLink, docsLink
	}
	return w.do(t, http.DefaultClient, method, path, "colls", link, []byte(`{"id":"docs","partitionKey":{"paths":["/key"],"kind":"Hash","version":2}`+more+`}`), nil)
}

var otherContainer = cosmosdb.ContainerConfig{Database: "db", Name: "other", Paths: []string{"/key"}}

// Documents are gone when their time to live has passed: their own, or the container's.
func TestTimeToLive(t *testing.T) {
	now := &clock{now: time.Now()}
	w := serve(t, &cosmosdb.Config{Now: now.Now}, otherContainer)
	if a := w.define(t, http.MethodPost, `,"defaultTtl":100`); a.status != http.StatusCreated {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	count := func() int {
		t.Helper()
		var page struct{ Documents []int }
		if a := w.page(t, "SELECT VALUE COUNT(1) FROM c", nil); json.Unmarshal(a.body, &page) != nil || len(page.Documents) != 1 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		return page.Documents[0]
	}
	read := func(id string) int {
		t.Helper()
		return w.do(t, http.DefaultClient, http.MethodGet, docsLink+"/docs/"+id, "docs", docsLink+"/docs/"+id, nil, map[string]string{"x-ms-documentdb-partitionkey": `["a"]`}).status
	}
	for id, more := range map[string]string{"default": "", "short": `,"ttl":10`, "never": `,"ttl":-1`, "long": `,"ttl":200`} {
		if a := w.put(t, fmt.Sprintf(`{"id":%q,"key":"a"%s}`, id, more), `["a"]`, nil); a.status != http.StatusCreated {
			t.Fatalf("%s: status %d: %s", id, a.status, a.body)
		}
	}
	for _, bad := range []string{`0`, `-2`, `1.5`, `"1"`, `2147483648`} {
		if a := w.put(t, `{"id":"bad","key":"a","ttl":`+bad+`}`, `["a"]`, nil); a.status != http.StatusBadRequest {
			t.Errorf("ttl %s: status %d", bad, a.status)
		}
	}
	written := now.Now()
	for _, step := range []struct {
		age  time.Duration
		left string
	}{{0, "default,short,never,long"}, {15 * time.Second, "default,never,long"}, {105 * time.Second, "never,long"}, {250 * time.Second, "never"}} {
		now.advance(step.age - now.Now().Sub(written))
		if n := count(); n != strings.Count(step.left, ",")+1 {
			t.Errorf("after %v: %d documents", step.age, n)
		}
		for _, id := range []string{"default", "short", "never", "long"} {
			want := http.StatusNotFound
			if strings.Contains(step.left, id) {
				want = http.StatusOK
			}
			if got := read(id); got != want {
				t.Errorf("%s after %v: status %d, want %d", id, step.age, got, want)
			}
		}
	}
	if a := w.put(t, `{"id":"short","key":"a"}`, `["a"]`, nil); a.status != http.StatusCreated {
		t.Errorf("again: status %d", a.status)
	}
	// Without a time to live of the container, the documents' own are ignored.
	w.put(t, `{"id":"brief","key":"a","ttl":10}`, `["a"]`, nil)
	if a := w.define(t, http.MethodPut, ""); a.status != http.StatusOK {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	now.advance(10 * time.Minute)
	if read("brief") != http.StatusOK || count() != 3 {
		t.Errorf("%d documents without time to live", count())
	}
}

// Expired documents that nobody touches don't take memory for ever.
func TestExpiredDocumentsAreFreed(t *testing.T) {
	now := &clock{now: time.Now()}
	w := serve(t, &cosmosdb.Config{Now: now.Now}, otherContainer)
	w.define(t, http.MethodPost, `,"defaultTtl":10`)
	for i := range 3000 {
		now.advance(time.Second / 4)
		if a := w.put(t, fmt.Sprintf(`{"id":"%d","key":"a"}`, i), `["a"]`, nil); a.status != http.StatusCreated {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
	}
	c, err := w.account.Container("db", "docs")
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Stats().Documents; n > 1100 {
		t.Errorf("%d documents", n)
	}
}

// A unique key holds within a logical partition, whatever changes the documents.
func TestUniqueKeys(t *testing.T) {
	w := serve(t, &cosmosdb.Config{Partitions: 2}, otherContainer)
	if a := w.define(t, http.MethodPost, `,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/mail"]},{"paths":["/a/b","/c"]}]}`); a.status != http.StatusCreated || !strings.Contains(string(a.body), `"/a/b"`) {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	put := func(want int, key, id, more string) {
		t.Helper()
		if a := w.put(t, fmt.Sprintf(`{"id":%q,"key":%q,%s}`, id, key, more), fmt.Sprintf("[%q]", key), nil); a.status != want {
			t.Errorf("%s/%s %s: status %d, want %d: %s", key, id, more, a.status, want, a.body)
		}
	}
	remove := func(key, id string) {
		w.do(t, http.DefaultClient, http.MethodDelete, docsLink+"/docs/"+id, "docs", docsLink+"/docs/"+id, nil, map[string]string{"x-ms-documentdb-partitionkey": fmt.Sprintf("[%q]", key)})
	}
	put(201, "a", "1", `"mail":"x","a":{"b":1},"c":1`)
	put(409, "a", "2", `"mail":"x","a":{"b":2},"c":1`)
	put(201, "b", "2", `"mail":"x","a":{"b":2},"c":1`)
	put(201, "a", "2", `"mail":"y","a":{"b":1},"c":2`)
	put(409, "a", "3", `"mail":"z","c":1.0,"a":{"b":1}`)
	put(200, "a", "2", `"mail":"y","a":{"b":1},"c":3`)
	put(409, "a", "2", `"mail":"x","a":{"b":1},"c":3`)
	put(201, "a", "3", `"mail":"z","a":{"b":1},"c":2`)
	put(201, "a", "4", `"q":1`)
	put(409, "a", "5", `"q":2`)
	put(200, "a", "4", `"mail":"m"`)
	put(409, "a", "5", `"mail":"n"`)
	remove("a", "1")
	put(201, "a", "6", `"mail":"x","a":{"b":1},"c":1`)
	batch := `[{"operationType":"Delete","id":"6"},{"operationType":"Create","resourceBody":{"id":"7","key":"a","mail":"x","c":9}},{"operationType":"Create","resourceBody":{"id":"8","key":"a","mail":"x","c":10}}]`
	a := w.do(t, http.DefaultClient, http.MethodPost, docsLink+"/docs", "docs", docsLink, []byte(batch), map[string]string{
		"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True", "x-ms-documentdb-partitionkey": `["a"]`,
	})
	if r := results(t, a); r[2].StatusCode != http.StatusConflict {
		t.Errorf("batch: %+v", r)
	}
	put(409, "a", "9", `"mail":"x","c":11`)
	c, err := w.account.Container("db", "docs")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Stats().Ranges {
		if err := c.Split(r.ID); err != nil {
			t.Fatal(err)
		}
	}
	put(409, "a", "9", `"mail":"x","c":11`)
	put(201, "a", "9", `"mail":"w","c":11`)
	if a := w.define(t, http.MethodPut, `,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/other"]}]}`); a.status != http.StatusBadRequest {
		t.Errorf("changed: status %d", a.status)
	}
	if a := w.define(t, http.MethodPut, ``); a.status != http.StatusOK || !strings.Contains(string(a.body), `"/a/b"`) {
		t.Errorf("unchanged: status %d: %s", a.status, a.body)
	}
}

// Policies that the emulator doesn't carry out are refused, not ignored.
func TestPolicies(t *testing.T) {
	w := serve(t, nil, otherContainer)
	for _, bad := range []string{
		`,"conflictResolutionPolicy":{"mode":"Custom"}`, `,"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/n"}`, `,"computedProperties":[{"name":"x","query":"SELECT 1"}]`,
		`,"vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v"}]}`, `,"analyticalStorageTtl":-1`, `,"changeFeedPolicy":{"retentionDuration":5}`, `,"whatever":true`,
		`,"defaultTtl":0`, `,"defaultTtl":-2`, `,"defaultTtl":"1"`, `,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":[]}]}`, `,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["x"]}]}`,
		`,"uniqueKeyPolicy":{"uniqueKeys":[` + strings.Repeat(`{"paths":["/x"]},`, 10) + `{"paths":["/y"]}]}`,
	} {
		if a := w.define(t, http.MethodPost, bad); a.status != http.StatusBadRequest {
			t.Errorf("%s: status %d", bad, a.status)
			w.do(t, http.DefaultClient, http.MethodDelete, docsLink, "colls", docsLink, nil, nil)
		}
	}
	good := `,"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""},"computedProperties":[],"geospatialConfig":{"type":"Geography"},"uniqueKeyPolicy":{"uniqueKeys":[]},` +
		`"defaultTtl":null,"vectorEmbeddingPolicy":null,"_self":"x"`
	if a := w.define(t, http.MethodPost, good); a.status != http.StatusCreated {
		t.Errorf("%s: status %d: %s", good, a.status, a.body)
	}
	if a := w.define(t, http.MethodPut, `,"changeFeedPolicy":{"retentionDuration":5}`); a.status != http.StatusBadRequest || !strings.Contains(string(a.body), "changeFeedPolicy") {
		t.Errorf("replaced: status %d: %s", a.status, a.body)
	}
}

// A container with autoscale says so in its offer.
func TestAutoscaleOffers(t *testing.T) {
	w := serve(t, nil, otherContainer)
	header := map[string]string{"x-ms-cosmos-offer-autopilot-settings": `{"maxThroughput":25000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":1}}}`}
	a := w.do(t, http.DefaultClient, http.MethodPost, "dbs/db/colls", "colls", "dbs/db", []byte(`{"id":"docs","partitionKey":{"paths":["/key"]}}`), header)
	if a.status != http.StatusCreated {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	if r, _ := w.ranges(t, nil); len(r) != 3 {
		t.Errorf("%d ranges", len(r))
	}
	offer := func(method, body string) string {
		return string(w.do(t, http.DefaultClient, method, "offers/off00003", "offers", "off00003", []byte(body), nil).body)
	}
	for _, c := range []struct{ method, body, want string }{
		{http.MethodGet, "", `{"offerThroughput":2500,"offerIsRUPerMinuteThroughputEnabled":false,"offerAutopilotSettings":{"maxThroughput":25000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":1}}}}`},
		{http.MethodPut, `{"content":{"offerThroughput":-1,"offerAutopilotSettings":{"maxThroughput":7000}}}`, `{"offerThroughput":700,"offerIsRUPerMinuteThroughputEnabled":false,"offerAutopilotSettings":{"maxThroughput":7000}}`},
		{http.MethodPut, `{"content":{"offerThroughput":5000}}`, `{"offerThroughput":5000,"offerIsRUPerMinuteThroughputEnabled":false}`},
	} {
		if got := offer(c.method, c.body); !strings.Contains(got, `"content":`+c.want) {
			t.Errorf("%s %s: %s", c.method, c.body, got)
		}
	}
}

// An indexing policy that leaves paths out has the default ones.
func TestIndexingDefaults(t *testing.T) {
	w := serve(t, nil, otherContainer)
	a := w.define(t, http.MethodPost, `,"indexingPolicy":{"indexingMode":"consistent"}`)
	if !strings.Contains(string(a.body), `"includedPaths":[{"path":"/*"}]`) || !strings.Contains(string(a.body), `"automatic":true`) || !strings.Contains(string(a.body), `_etag`) {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	a = w.define(t, http.MethodPut, `,"indexingPolicy":{"indexingMode":"none","automatic":false}`)
	if strings.Contains(string(a.body), `/*`) {
		t.Errorf("status %d: %s", a.status, a.body)
	}
}

// A hierarchical container needs at least one component for a query by partition key; the
// requests that there are not are refused as such, not as unauthorized.
func TestNoPartOfTheKey(t *testing.T) {
	w := serve(t, nil, cosmosdb.ContainerConfig{Database: "db", Name: "docs", Paths: []string{"/a", "/b"}})
	if a := w.page(t, "SELECT * FROM c", map[string]string{"x-ms-documentdb-partitionkey": "[]"}); a.status != http.StatusBadRequest {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	a := w.do(t, http.DefaultClient, http.MethodPost, docsLink+"/operations/partitionkeydelete", "partitionkey", docsLink, nil, map[string]string{"x-ms-documentdb-partitionkey": `["a","b"]`})
	if a.status != http.StatusBadRequest || !strings.Contains(string(a.body), "operations/partitionkeydelete") {
		t.Errorf("status %d: %s", a.status, a.body)
	}
}
