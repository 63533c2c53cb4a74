package cosmosdb_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
)

// sendAs sends a request with an access token instead of a key.
func (w *world) sendAs(t testing.TB, token, method, path, body string, header map[string]string) answer {
	t.Helper()
	all := map[string]string{"Authorization": "type=aad&ver=1.0&sig=" + token}
	for k, v := range header {
		all[k] = v
	}
	return w.do(t, http.DefaultClient, method, path, "", "", []byte(body), all)
}

// Access tokens have rights to documents and metadata only, not to what the management API does.
func TestDataPlaneRights(t *testing.T) {
	key := map[string]string{"x-ms-documentdb-partitionkey": `["a"]`}
	for _, c := range []struct {
		method, path, body string
		header             map[string]string
		allowed            int
	}{
		{http.MethodPost, "dbs", `{"id":"new"}`, nil, 0},
		{http.MethodPost, "dbs/db/colls", `{"id":"new","partitionKey":{"paths":["/k"]}}`, nil, 0},
		{http.MethodPut, docsLink, `{"id":"docs"}`, nil, 0},
		{http.MethodGet, "offers", "", nil, 0},
		{http.MethodPost, "offers", `{"query":"SELECT * FROM c"}`, map[string]string{"x-ms-documentdb-isquery": "True"}, 0},
		{http.MethodPut, "offers/off00002", `{"content":{"offerThroughput":500}}`, nil, 0},
		{http.MethodGet, "", "", nil, 200},
		{http.MethodGet, "dbs/db", "", nil, 200},
		{http.MethodGet, docsLink, "", nil, 200},
		{http.MethodGet, docsLink + "/pkranges", "", nil, 200},
		{http.MethodPost, docsLink + "/docs", `{"id":"1","key":"a"}`, key, 201},
		{http.MethodDelete, docsLink + "/docs/1", "", key, 204},
		{http.MethodDelete, docsLink, "", nil, 0},
		{http.MethodDelete, "dbs/db", "", nil, 0},
	} {
		for _, strict := range []bool{false, true} {
			w := serve(t, &cosmosdb.Config{Tokens: []string{"secret"}, AsAzure: cosmosdb.AsAzure{DataPlaneRights: strict}}, docs)
			if strings.HasSuffix(c.path, "docs/1") {
				w.sendAs(t, "secret", http.MethodPost, docsLink+"/docs", `{"id":"1","key":"a"}`, key)
			}
			a := w.sendAs(t, "secret", c.method, c.path, c.body, c.header)
			if refused := a.status == http.StatusForbidden && a.substatus() == "5300"; refused != (strict && c.allowed == 0) || c.allowed != 0 && a.status != c.allowed || a.status == http.StatusUnauthorized {
				t.Errorf("strict %v: %s %s: status %d, substatus %q", strict, c.method, c.path, a.status, a.substatus())
			}
		}
	}
}

// A batch whose answer would be too large leaves operations out with 413 and 3402; alone, they
// succeed.
func TestAnswerSize(t *testing.T) {
	w := serve(t, &cosmosdb.Config{AsAzure: cosmosdb.AsAzure{AnswerSize: 4 << 20}}, cosmosdb.ContainerConfig{Database: "db", Name: "docs", Paths: []string{"/key"}})
	for i := range 5 {
		w.put(t, fmt.Sprintf(`{"id":"%d","key":"a","p":%q}`, i, strings.Repeat("x", 1<<20)), `["a"]`, nil)
	}
	operation := func(i int) string {
		return fmt.Sprintf(`{"operationType":"Read","id":"%d","partitionKey":"[\"a\"]"}`, i)
	}
	all := "[" + operation(0) + "," + operation(1) + "," + operation(2) + "," + operation(3) + "," + operation(4) + "]"
	a := w.bulk(t, "0", []byte(all), nil)
	list := results(t, a)
	for i, r := range list {
		if i < 3 && r.StatusCode != 200 || i >= 3 && (r.StatusCode != 413 || r.SubStatusCode != 3402) {
			t.Errorf("operation %d: %d/%d", i, r.StatusCode, r.SubStatusCode)
		}
	}
	if len(a.body) > 4<<20 {
		t.Errorf("an answer of %d bytes", len(a.body))
	}
	if r := results(t, w.bulk(t, "0", []byte("["+operation(4)+"]"), nil))[0]; r.StatusCode != 200 {
		t.Errorf("alone: %d", r.StatusCode)
	}
	// A write that isn't answered wasn't carried out.
	writes := all[:len(all)-1] + `,{"operationType":"Upsert","partitionKey":"[\"a\"]","resourceBody":{"id":"new","key":"a","p":"` + strings.Repeat("x", 1<<20) + `"}}]`
	if r := results(t, w.bulk(t, "0", []byte(writes), nil))[5]; r.StatusCode != 413 || r.SubStatusCode != 3402 {
		t.Errorf("write: %d/%d", r.StatusCode, r.SubStatusCode)
	}
	c, _ := w.account.Container("db", "docs")
	if n := c.Stats().Documents; n != 5 {
		t.Errorf("%d documents", n)
	}
	a = w.do(t, http.DefaultClient, http.MethodPost, docsLink+"/docs", "docs", docsLink, []byte(all), map[string]string{
		"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True", "x-ms-documentdb-partitionkey": `["a"]`,
	})
	if r := results(t, a); a.status != 207 || r[3].StatusCode != 413 || r[0].StatusCode != 424 {
		t.Errorf("transaction: status %d, %d %d", a.status, r[0].StatusCode, r[3].StatusCode)
	}
}

// A request has at most 2 MB; by default the emulator takes a little more.
func TestRequestSize(t *testing.T) {
	for _, c := range []struct{ limit, size, want int }{{0, 2<<20 + 100<<10, 200}, {2 << 20, 2<<20 + 100<<10, 413}, {2 << 20, 2 << 20, 200}} {
		w := serve(t, &cosmosdb.Config{AsAzure: cosmosdb.AsAzure{RequestSize: c.limit}}, cosmosdb.ContainerConfig{Database: "db", Name: "docs", Paths: []string{"/key"}})
		half := strings.Repeat("x", c.size/2-200)
		body := "[" + upsert("1", "a", `,"p":"`+half+`"`) + "," + upsert("2", "a", `,"p":"`+half+`"`)
		body += strings.Repeat(" ", c.size-len(body)-1) + "]"
		if a := w.bulk(t, "0", []byte(body), map[string]string{"Prefer": "return=minimal"}); a.status != c.want {
			t.Errorf("limit %d: %d bytes: status %d, want %d", c.limit, len(body), a.status, c.want)
		}
	}
}

// Unless it asks to continue, a bulk batch ends at its first failure.
func TestStopOnError(t *testing.T) {
	for _, stops := range []bool{false, true} {
		w := serve(t, &cosmosdb.Config{AsAzure: cosmosdb.AsAzure{StopOnError: stops}}, cosmosdb.ContainerConfig{Database: "db", Name: "docs", Paths: []string{"/key"}})
		body := `[{"operationType":"Read","id":"none","partitionKey":"[\"a\"]"},` + upsert("1", "a", "") + "]"
		for header, want := range map[string]int{"": map[bool]int{false: 201, true: 424}[stops], "true": 200, "false": 424} {
			r := results(t, w.bulk(t, "0", []byte(body), map[string]string{"x-ms-cosmos-batch-continue-on-error": header}))
			if got := r[1].StatusCode; got != want && !(want == 200 && got == 201) && !(want == 201 && got == 200) {
				t.Errorf("stops %v, header %q: %d, want %d", stops, header, got, want)
			}
		}
	}
}

// More throughput than the physical partitions can serve comes later, and then with more
// partitions; meanwhile no other change is taken. Less, and what they can serve, comes at once.
func TestSlowThroughput(t *testing.T) {
	now := &clock{now: time.Now()}
	w := serve(t, &cosmosdb.Config{Now: now.Now, AsAzure: cosmosdb.AsAzure{SlowThroughput: time.Minute}},
		cosmosdb.ContainerConfig{Database: "db", Name: "docs", Paths: []string{"/key"}, Throughput: 1000})
	offer := func(method string, ru int) answer {
		t.Helper()
		return w.do(t, http.DefaultClient, method, "offers/off00002", "offers", "off00002", fmt.Appendf(nil, `{"content":{"offerThroughput":%d}}`, ru), nil)
	}
	is := func(a answer, pending string, ru int) {
		t.Helper()
		if a.status != http.StatusOK || a.header.Get("x-ms-offer-replace-pending") != pending || !strings.Contains(string(a.body), fmt.Sprintf(`"offerThroughput":%d,`, ru)) {
			t.Errorf("status %d, pending %q: %s, want %s and %d", a.status, a.header.Get("x-ms-offer-replace-pending"), a.body, pending, ru)
		}
	}
	is(offer(http.MethodPut, 10_000), "false", 10_000)
	is(offer(http.MethodPut, 25_000), "true", 10_000)
	if a := offer(http.MethodPut, 400); a.status != http.StatusBadRequest || a.substatus() != "3205" {
		t.Errorf("another change: status %d, substatus %q", a.status, a.substatus())
	}
	now.advance(59 * time.Second)
	is(offer(http.MethodGet, 0), "true", 10_000)
	if r, _ := w.ranges(t, nil); len(r) != 1 {
		t.Errorf("%d ranges", len(r))
	}
	now.advance(2 * time.Second)
	if r, _ := w.ranges(t, nil); len(r) < 3 {
		t.Errorf("%d ranges", len(r))
	}
	is(offer(http.MethodGet, 0), "false", 25_000)
	is(offer(http.MethodPut, 400), "false", 400)
}

// An account in two regions takes writes in one, and says so; a fail-over changes which.
func TestRegions(t *testing.T) {
	w := serve(t, nil, docs)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	second := w.account.ServeRegion(l)
	defer func() {
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	}()
	other := &world{w.account, "http://" + l.Addr().String() + "/"}
	for i := range 3 {
		primary, secondary := w, other
		if i%2 == 1 {
			primary, secondary = other, w
		}
		for _, at := range []*world{w, other} {
			body := string(at.do(t, http.DefaultClient, http.MethodGet, "", "", "", nil, nil).body)
			writable := body[strings.Index(body, "writableLocations"):strings.Index(body, "readableLocations")]
			readable := body[strings.Index(body, "readableLocations"):]
			if !strings.Contains(writable, primary.endpoint) || strings.Contains(writable, secondary.endpoint) || !strings.Contains(readable, secondary.endpoint) || !strings.Contains(readable, primary.endpoint) ||
				!strings.Contains(body, "West Europe") || !strings.Contains(body, "North Europe") {
				t.Errorf("after %d fail-overs: %s", i, body)
			}
		}
		if a := primary.put(t, fmt.Sprintf(`{"id":"%d","key":"a"}`, i), `["a"]`, nil); a.status != http.StatusCreated {
			t.Errorf("after %d fail-overs: status %d: %s", i, a.status, a.body)
		}
		if a := secondary.put(t, `{"id":"x","key":"a"}`, `["a"]`, nil); a.status != http.StatusForbidden || a.substatus() != "3" {
			t.Errorf("after %d fail-overs: status %d, substatus %q", i, a.status, a.substatus())
		}
		if a := secondary.bulk(t, "0", []byte("["+upsert("1", "a", "")+"]"), nil); a.status != http.StatusForbidden || a.substatus() != "3" {
			t.Errorf("bulk after %d fail-overs: status %d, substatus %q", i, a.status, a.substatus())
		}
		if a := secondary.page(t, "SELECT * FROM c", nil); a.status != http.StatusOK || !strings.Contains(string(a.body), fmt.Sprintf(`"_count":%d}`, i+1)) {
			t.Errorf("after %d fail-overs: status %d: %s", i, a.status, a.body)
		}
		if err := w.account.Failover(); err != nil {
			t.Fatal(err)
		}
	}
	if err := serve(t, nil, docs).account.Failover(); err == nil {
		t.Error("an account in one region failed over")
	}
}
