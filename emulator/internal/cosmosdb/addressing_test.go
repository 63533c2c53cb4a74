package cosmosdb_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
	"github.com/sluice-go/sluice/internal/partitionkey"
)

// resourceOf returns a resource's address by resource ids, and its own resource id.
func resourceOf(t testing.TB, a answer) (self, rid string) {
	t.Helper()
	var r struct {
		Self string `json:"_self"`
		RID  string `json:"_rid"`
	}
	if err := json.Unmarshal(a.body, &r); err != nil || r.Self == "" || r.RID == "" || a.status >= 300 {
		t.Fatalf("status %d: %s: %v", a.status, a.body, err)
	}
	return strings.Trim(r.Self, "/"), r.RID
}

// Clients for Java and .NET address what they have read by resource ids, and sign the last one
// in lower case; those for Python follow _self.
func TestResourceIDs(t *testing.T) {
	w := serve(t, nil, docs, cosmosdb.ContainerConfig{Database: "db", Name: "other", Paths: []string{"/key"}})
	send := func(method, path, kind, signed, body string, header map[string]string) answer {
		t.Helper()
		return w.do(t, http.DefaultClient, method, path, kind, strings.ToLower(signed), []byte(body), header)
	}
	key := map[string]string{"x-ms-documentdb-partitionkey": `["a"]`}
	db, dbRID := resourceOf(t, w.do(t, http.DefaultClient, http.MethodGet, "dbs/db", "dbs", "dbs/db", nil, nil))
	coll, collRID := resourceOf(t, w.do(t, http.DefaultClient, http.MethodGet, docsLink, "colls", docsLink, nil, nil))
	_, otherRID := resourceOf(t, w.do(t, http.DefaultClient, http.MethodGet, "dbs/db/colls/other", "colls", "dbs/db/colls/other", nil, nil))
	doc, docRID := resourceOf(t, send(http.MethodPost, coll+"/docs", "docs", collRID, `{"id":"x","key":"a"}`, key))

	for _, c := range []struct {
		name, method, path, kind, signed, body string
		want                                   int
	}{
		{"database", http.MethodGet, db, "dbs", dbRID, "", 200},
		{"container", http.MethodGet, coll, "colls", collRID, "", 200},
		{"list of containers", http.MethodGet, db + "/colls", "colls", dbRID, "", 200},
		{"ranges", http.MethodGet, coll + "/pkranges", "pkranges", collRID, "", 200},
		{"list of documents", http.MethodGet, coll + "/docs", "docs", collRID, "", 200},
		{"document", http.MethodGet, doc, "docs", docRID, "", 200},
		{"replace", http.MethodPut, doc, "docs", docRID, `{"id":"x","key":"a","n":1}`, 200},
		{"replace by another id", http.MethodPut, doc, "docs", docRID, `{"id":"y","key":"a"}`, 400},
		{"document of another container", http.MethodGet, strings.Replace(doc, collRID, otherRID, 1), "docs", docRID, "", 404},
		{"signed for another container", http.MethodGet, coll + "/docs", "docs", otherRID, "", 401},
		{"signed for the container", http.MethodGet, doc, "docs", collRID, "", 401},
		{"no such container", http.MethodGet, db + "/colls/" + "AAAAAYAAAAk=" + "/docs", "docs", "AAAAAYAAAAk=", "", 404},
		{"no such database", http.MethodGet, "dbs/AAAACQ==", "dbs", "AAAACQ==", "", 401},
		{"delete", http.MethodDelete, doc, "docs", docRID, "", 204},
		{"deleted", http.MethodGet, doc, "docs", docRID, "", 404},
	} {
		if a := send(c.method, c.path, c.kind, c.signed, c.body, key); a.status != c.want {
			t.Errorf("%s: status %d, want %d: %s", c.name, a.status, c.want, a.body)
		}
	}
	if a := send(http.MethodGet, docsLink, "colls", docsLink, "", nil); a.status != http.StatusOK {
		t.Errorf("by name: status %d", a.status)
	}
}

// A client that knows the container by an earlier resource id learns that it was recreated.
func TestIntendedContainer(t *testing.T) {
	w := serve(t, nil, docs)
	_, rid := resourceOf(t, w.do(t, http.DefaultClient, http.MethodGet, docsLink, "colls", docsLink, nil, nil))
	for intended, want := range map[string]string{rid: "200 ", "AAAAAYAAAAk=": "400 1024"} {
		a := w.do(t, http.DefaultClient, http.MethodGet, docsLink+"/docs", "docs", docsLink, nil, map[string]string{"x-ms-cosmos-intended-collection-rid": intended})
		if got := fmt.Sprint(a.status, " ", a.substatus()); got != want {
			t.Errorf("%s: %s, want %s", intended, got, want)
		}
	}
}

// Feed ranges divide a container's documents, also within a physical partition, and across a
// split; a hierarchical prefix is such a range, too.
func TestFeedRanges(t *testing.T) {
	w := serve(t, nil, docs)
	keys := make(map[string]string)
	for i := range 100 {
		k := fmt.Sprint("key", i)
		keys[k] = partitionkey.Definition{Version: 2}.Hash(partitionkey.String(k))
		w.do(t, http.DefaultClient, http.MethodPost, docsLink+"/docs", "docs", docsLink, item("1", k, ""), map[string]string{"x-ms-documentdb-partitionkey": fmt.Sprintf("[%q]", k)})
	}
	ranges, _ := w.ranges(t, nil)
	for _, text := range []string{"SELECT * FROM c", "SELECT VALUE COUNT(1) FROM c", ""} {
		total := 0
		for _, r := range ranges {
			bounds := partitionkey.Range{Min: r.MinInclusive, Max: r.MaxExclusive}
			middle, ok := partitionkey.Definition{Version: 2}.Middle(bounds)
			if !ok {
				t.Fatal("no middle")
			}
			for _, half := range []partitionkey.Range{{Min: bounds.Min, Max: middle}, {Min: middle, Max: bounds.Max}} {
				want := 0
				for _, hash := range keys {
					if half.Contains(hash) {
						want++
					}
				}
				if n := w.count(t, text, half, r.ID); n != want {
					t.Errorf("%q of %v in range %s: %d documents, want %d", text, half, r.ID, n, want)
				}
				if n := w.count(t, text, half, ""); n != want {
					t.Errorf("%q of %v: %d documents, want %d", text, half, n, want)
				}
				total += want
			}
		}
		if total != len(keys) {
			t.Errorf("%q: %d documents in all", text, total)
		}
	}
	for _, bad := range [][2]string{{"x", "FF"}, {"AA", "00"}, {"", strings.Repeat("A", 2000)}} {
		if a := w.page(t, "SELECT * FROM c", map[string]string{"x-ms-start-epk": bad[0], "x-ms-end-epk": bad[1]}); a.status != http.StatusBadRequest {
			t.Errorf("%.10q: status %d", bad, a.status)
		}
	}
}

// count counts documents in a range of effective partition keys; text is "" for a list.
func (w *world) count(t testing.TB, text string, r partitionkey.Range, rangeID string) int {
	t.Helper()
	header := map[string]string{"x-ms-start-epk": r.Min, "x-ms-end-epk": r.Max, "x-ms-read-key-type": "EffectivePartitionKeyRange"}
	if rangeID != "" {
		header["x-ms-documentdb-partitionkeyrangeid"] = rangeID
	}
	var a answer
	if text == "" {
		a = w.do(t, http.DefaultClient, http.MethodGet, docsLink+"/docs", "docs", docsLink, nil, header)
	} else {
		a = w.page(t, text, header)
	}
	var page struct{ Documents []json.RawMessage }
	if err := json.Unmarshal(a.body, &page); err != nil || a.status != http.StatusOK {
		t.Fatalf("status %d: %.200s", a.status, a.body)
	}
	if strings.Contains(text, "COUNT") {
		n := 0
		if err := json.Unmarshal(page.Documents[0], &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	return len(page.Documents)
}
