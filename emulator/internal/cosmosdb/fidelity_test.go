package cosmosdb_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
)

// put upserts a document.
func (w *world) put(t testing.TB, body, key string, header map[string]string) answer {
	t.Helper()
	all := map[string]string{"x-ms-documentdb-partitionkey": key, "x-ms-documentdb-is-upsert": "True"}
	for k, v := range header {
		all[k] = v
	}
	return w.do(t, http.DefaultClient, http.MethodPost, docsLink+"/docs", "docs", docsLink, []byte(body), all)
}

// An upsert with If-Match of a document that doesn't exist creates it, as on Azure; one that
// exists must match.
func TestUpsertWithEtag(t *testing.T) {
	w := serve(t, nil, docs)
	old := map[string]string{"If-Match": `"00000000-0000-0000-0000-000000000000"`}
	if a := w.put(t, `{"id":"1","key":"a"}`, `["a"]`, old); a.status != http.StatusCreated {
		t.Errorf("missing: status %d", a.status)
	}
	if a := w.put(t, `{"id":"1","key":"a"}`, `["a"]`, old); a.status != http.StatusPreconditionFailed {
		t.Errorf("existing: status %d", a.status)
	}
}

// Headers have Azure's names to the letter: some clients compare case.
func TestHeaderNames(t *testing.T) {
	w := serve(t, nil, docs)
	w.put(t, `{"id":"1","key":"a"}`, `["a"]`, nil)
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(w.endpoint, "http://"), "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	date := time.Now().UTC().Format(http.TimeFormat)
	fmt.Fprintf(conn, "GET /%s/docs/1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-ms-date: %s\r\nx-ms-documentdb-partitionkey: [\"a\"]\r\nAuthorization: %s\r\n\r\n",
		docsLink, date, sign(cosmosdb.DevKey, http.MethodGet, "docs", docsLink+"/docs/1", date))
	text, err := io.ReadAll(bufio.NewReader(conn))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x-ms-request-charge", "x-ms-activity-id", "x-ms-session-token", "x-ms-gatewayversion", "etag", "lsn", "Content-Type", "Content-Length"} {
		if !strings.Contains(string(text), "\r\n"+name+": ") {
			t.Errorf("no header %s in\n%s", name, text)
		}
	}
}

// Each response has an id of its own, and queries report what they did if asked.
func TestActivityAndMetrics(t *testing.T) {
	w := serve(t, nil, docs)
	for i := range 3 {
		w.put(t, fmt.Sprintf(`{"id":"%d","key":"a"}`, i), `["a"]`, nil)
	}
	a, b := w.page(t, "SELECT * FROM c WHERE c.id != '0'", nil), w.page(t, "SELECT * FROM c WHERE c.id != '0'", map[string]string{"x-ms-documentdb-populatequerymetrics": "True"})
	if x, y := a.header.Get("x-ms-activity-id"), b.header.Get("x-ms-activity-id"); x == y || len(x) != 36 {
		t.Errorf("activity ids %q and %q", x, y)
	}
	if a.header.Get("x-ms-documentdb-query-metrics") != "" {
		t.Error("metrics that the client has not asked for")
	}
	metrics := ";" + b.header.Get("x-ms-documentdb-query-metrics") + ";"
	for _, m := range []string{";retrievedDocumentCount=3;", ";outputDocumentCount=2;", ";totalExecutionTimeInMs="} {
		if !strings.Contains(metrics, m) {
			t.Errorf("%s is not in %s", m, metrics)
		}
	}
}

// A partition key definition may state its version as V2, and its paths may be quoted.
func TestKeyDefinitions(t *testing.T) {
	w := serve(t, nil, docs)
	for i, c := range []struct{ key, document, want string }{
		{`{"paths":["/key"],"kind":"Hash","version":"V2"}`, `{"id":"1","key":"a"}`, `["a"]`},
		{`{"paths":["/\"a/b\"/c"],"kind":"Hash","version":1}`, `{"id":"1","a/b":{"c":"x"}}`, `["x"]`},
		{`{"paths":["/'a b'/c"],"kind":"Hash"}`, `{"id":"1","a b":{"c":"x"}}`, `["x"]`},
		{`{"paths":["/key"],"kind":"Hash"}`, `{"id":"1","key":{"a":1}}`, `[{}]`},
		{`{"paths":["/key"],"kind":"Hash"}`, `{"id":"1","key":[1]}`, `[{}]`},
	} {
		link := fmt.Sprint("dbs/db/colls/c", i)
		body := fmt.Appendf(nil, `{"id":"c%d","partitionKey":%s}`, i, c.key)
		if a := w.do(t, http.DefaultClient, http.MethodPost, "dbs/db/colls", "colls", "dbs/db", body, nil); a.status != http.StatusCreated {
			t.Errorf("%s: status %d: %s", c.key, a.status, a.body)
			continue
		}
		header := map[string]string{"x-ms-documentdb-partitionkey": c.want}
		if a := w.do(t, http.DefaultClient, http.MethodPost, link+"/docs", "docs", link, []byte(c.document), header); a.status != http.StatusCreated {
			t.Errorf("%s %s: status %d: %s", c.key, c.document, a.status, a.body)
		}
		if a := w.do(t, http.DefaultClient, http.MethodGet, link+"/docs/1", "docs", link+"/docs/1", nil, header); a.status != http.StatusOK {
			t.Errorf("%s %s: status %d: %s", c.key, c.document, a.status, a.body)
		}
	}
	for _, bad := range []string{`"V3"`, `3`, `true`} {
		body := fmt.Appendf(nil, `{"id":"bad","partitionKey":{"paths":["/key"],"version":%s}}`, bad)
		if a := w.do(t, http.DefaultClient, http.MethodPost, "dbs/db/colls", "colls", "dbs/db", body, nil); a.status != http.StatusBadRequest {
			t.Errorf("version %s: status %d", bad, a.status)
		}
	}
}

// Clients merge the results of the plan's query of each partition to those of the query.
func TestPlans(t *testing.T) {
	w := serve(t, nil, docs)
	for i := range 40 {
		k := fmt.Sprint("k", i%7)
		w.put(t, fmt.Sprintf(`{"id":"%d","key":%q,"n":%d}`, i, k, (i*7)%40), fmt.Sprintf("[%q]", k), nil)
	}
	ranges, _ := w.ranges(t, nil)
	for text, want := range map[string]string{
		"SELECT * FROM c WHERE c.n < 5 ORDER BY c.n":                                   `"orderBy":["Ascending"],"orderByExpressions":["c.n"]`,
		"SELECT c.id, c.n AS m FROM c ORDER BY c.n DESC":                               `"orderBy":["Descending"]`,
		"SELECT VALUE c.id FROM root AS c WHERE c.n < 9 OR c.n > 30 ORDER BY c.n -- x": `"hasSelectValue":true`,
		"SELECT TOP 3 * FROM c ORDER BY c.n":                                           `"top":3`,
		"SELECT * FROM c ORDER BY c.n OFFSET 2 LIMIT 5":                                `"offset":2,"limit":5`,
	} {
		plan := w.page(t, text, map[string]string{"x-ms-cosmos-is-query-plan-request": "True"})
		var p struct {
			QueryInfo struct {
				RewrittenQuery     string
				Top, Offset, Limit *int
				OrderBy            []string
			}
		}
		if err := json.Unmarshal(plan.body, &p); err != nil || plan.status != http.StatusOK || !strings.Contains(string(plan.body), want) {
			t.Errorf("%s: status %d: %s, want %s", text, plan.status, plan.body, want)
			continue
		}
		var merged []ordered
		for _, r := range ranges {
			rewritten := strings.ReplaceAll(p.QueryInfo.RewrittenQuery, "{documentdb-formattableorderbyquery-filter}", "true")
			a := w.page(t, rewritten, map[string]string{"x-ms-documentdb-partitionkeyrangeid": r.ID})
			var page struct{ Documents []ordered }
			if err := json.Unmarshal(a.body, &page); err != nil || a.status != http.StatusOK {
				t.Fatalf("%s: status %d: %s", rewritten, a.status, a.body)
			}
			merged = append(merged, page.Documents...)
		}
		slices.SortFunc(merged, func(x, y ordered) int {
			c := int(x.OrderByItems[0].Item - y.OrderByItems[0].Item)
			if p.QueryInfo.OrderBy[0] == "Descending" {
				return -c
			}
			return c
		})
		if q := p.QueryInfo; q.Limit != nil {
			merged = merged[*q.Offset:][:*q.Limit]
		} else if q.Top != nil {
			merged = merged[:*q.Top]
		}
		var got []json.RawMessage
		for _, m := range merged {
			if m.RID == "" {
				t.Fatalf("%s: a result has no _rid", text)
			}
			got = append(got, m.Payload)
		}
		var direct struct{ Documents []json.RawMessage }
		if err := json.Unmarshal(w.page(t, text, nil).body, &direct); err != nil {
			t.Fatal(err)
		}
		if x, y := fmt.Sprintf("%s", got), fmt.Sprintf("%s", direct.Documents); x != y {
			t.Errorf("%s: merged %s, want %s", text, x, y)
		}
	}
	for text, want := range map[string]string{
		"SELECT TOP 3 * FROM c": `"top":3`, "SELECT * FROM c OFFSET 1 LIMIT 2": `OFFSET 0 LIMIT 3`, "SELECT VALUE AVG(c.n) FROM c": `"aggregates":["Average"]`,
		"SELECT VALUE MIN(c.n) FROM c WHERE c.n > 3": `[{\"item\": MIN(c.n), \"item2\": {\"min\": MIN(c.n), \"count\": COUNT(c.n)}}]`, "SELECT VALUE COUNT(1) -- FROM\n FROM c": `[{\"item\": COUNT(1)}] FROM c`,
	} {
		if plan := w.page(t, text, map[string]string{"x-ms-cosmos-is-query-plan-request": "True"}); !strings.Contains(string(plan.body), want) {
			t.Errorf("%s: status %d: %s, want %s", text, plan.status, plan.body, want)
		}
	}
	if plan := w.page(t, "SELECT VALUE [COUNT(1)] FROM c", map[string]string{"x-ms-cosmos-is-query-plan-request": "True"}); plan.status != http.StatusBadRequest {
		t.Errorf("a list of counts can't be merged: %s", plan.body)
	}
}

// ordered is a result of the query of a plan with ORDER BY.
type ordered struct {
	RID          string `json:"_rid"`
	OrderByItems []struct{ Item float64 }
	Payload      json.RawMessage
}

// What the emulator doesn't have is refused in words.
func TestRefusals(t *testing.T) {
	w := serve(t, nil, docs)
	for text, want := range map[string]string{
		"SELECT DISTINCT c.a FROM c": "DISTINCT", "SELECT c.a FROM c GROUP BY c.a": "GROUP BY", "SELECT * FROM c JOIN x IN c.a": "JOIN", "SELECT * FROM x IN c.a": "IN", "SELECT VALUE c.a + 1 FROM c": "arithmetic",
	} {
		if a := w.page(t, text, nil); a.status != http.StatusBadRequest || !strings.Contains(string(a.body), want) || !strings.Contains(string(a.body), "emulator") {
			t.Errorf("%s: status %d: %s", text, a.status, a.body)
		}
	}
	patch := `{"operations":[{"op":"move","from":"/a","path":"/b"}]}`
	if a := w.do(t, http.DefaultClient, http.MethodPatch, docsLink+"/docs/1", "docs", docsLink+"/docs/1", []byte(patch), map[string]string{"X-Ms-Documentdb-Partitionkey": `["a"]`}); a.status != http.StatusBadRequest || !strings.Contains(string(a.body), "move") || !strings.Contains(string(a.body), "emulator") {
		t.Errorf("move: status %d: %s", a.status, a.body)
	}
}
