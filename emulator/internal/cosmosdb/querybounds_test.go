package cosmosdb_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
)

// page sends a query for one page of results.
func (w *world) page(t testing.TB, text string, header map[string]string) answer {
	t.Helper()
	body, err := json.Marshal(map[string]string{"query": text})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"x-ms-documentdb-isquery": "True", "Content-Type": "application/query+json"}
	for k, v := range header {
		all[k] = v
	}
	return w.do(t, http.DefaultClient, http.MethodPost, docsLink+"/docs", "docs", docsLink, body, all)
}

// A page of results has at most 4 MiB, whatever the query selects.
func TestPageSize(t *testing.T) {
	w := serve(t, nil, docs)
	for i := range 6 {
		body := fmt.Appendf(nil, `{"id":"%d","key":"a","p":%q}`, i, strings.Repeat("x", 1<<20))
		if a := w.do(t, http.DefaultClient, http.MethodPost, docsLink+"/docs", "docs", docsLink, body, map[string]string{"x-ms-documentdb-partitionkey": `["a"]`}); a.status != http.StatusCreated {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
	}
	const limit = 4<<20 + 1<<10
	for text, want := range map[string]int{
		"SELECT * FROM c": 6, "SELECT * FROM c ORDER BY c.id": 6, "SELECT VALUE [c,c,c] FROM c": 6, "SELECT VALUE [c,c,c] FROM c ORDER BY c.id": 6,
		"SELECT VALUE [c,c,c,c] FROM c": -1, "SELECT VALUE [" + strings.Repeat("c,", 100_000) + "c] FROM c": -1, "SELECT VALUE MAX([c,c,c,c]) FROM c": -1, "SELECT VALUE [c,c,c,c] FROM c ORDER BY c.id": -1,
	} {
		n, header := 0, map[string]string{}
		for pages := 0; ; pages++ {
			a := w.page(t, text, header)
			if len(a.body) > limit {
				t.Fatalf("%.40s: a page of %d bytes", text, len(a.body))
			}
			if want < 0 {
				if a.status != http.StatusRequestEntityTooLarge || a.substatus() != "3402" {
					t.Errorf("%.40s: status %d, substatus %q, want 413 and 3402", text, a.status, a.substatus())
				}
				break
			}
			var page struct{ Documents []json.RawMessage }
			if err := json.Unmarshal(a.body, &page); err != nil || a.status != http.StatusOK {
				t.Fatalf("%.40s: status %d, %v", text, a.status, err)
			}
			n += len(page.Documents)
			header["x-ms-continuation"] = a.header.Get("x-ms-continuation")
			if header["x-ms-continuation"] == "" || pages > 10 {
				break
			}
		}
		if want > 0 && n != want {
			t.Errorf("%.40s: %d results, want %d", text, n, want)
		}
	}
}

// An aggregate that overflows leaves the answer JSON.
func TestOverflowingSum(t *testing.T) {
	w := serve(t, nil, cosmosdb.ContainerConfig{Database: "db", Name: "docs", Paths: []string{"/key"}})
	for i := range 2 {
		body := fmt.Appendf(nil, `{"id":"%d","key":"a","n":1e308}`, i)
		w.do(t, http.DefaultClient, http.MethodPost, docsLink+"/docs", "docs", docsLink, body, map[string]string{"x-ms-documentdb-partitionkey": `["a"]`})
	}
	for _, text := range []string{"SELECT VALUE SUM(c.n) FROM c", "SELECT SUM(c.n) AS s, COUNT(1) AS n FROM c"} {
		if a := w.page(t, text, nil); a.status != http.StatusOK || !json.Valid(a.body) {
			t.Errorf("%s: status %d: %s", text, a.status, a.body)
		}
	}
}
