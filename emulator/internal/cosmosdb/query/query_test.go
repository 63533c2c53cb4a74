package query

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/sluice-go/sluice/internal/jsonscan"
)

func FuzzQuery(f *testing.F) {
	for _, q := range []string{
		"SELECT * FROM c", "SELECT VALUE COUNT(1) FROM c WHERE c.a = @p AND NOT (c.b[\"x\"] < 5 OR c.n IN (1, 'a', null)) ORDER BY c.a DESC, c.b OFFSET 1 LIMIT 2",
		"SELECT TOP 5 c.a AS b, [1, {'x': c.y}] FROM root AS c WHERE IS_DEFINED(c.x) AND c.x BETWEEN -1 AND 1.5e3", "SELECT c FROM c WHERE", "SELECT '\\u0041", "-- x\nSELECT 1",
	} {
		f.Add(q, `{"id":"1","a":1,"b":{"x":[1,2]},"n":"a"}`)
	}
	f.Fuzz(func(t *testing.T, text, document string) {
		q, err := Parse(text, map[string]json.RawMessage{"@p": json.RawMessage(`{"x":1}`)})
		s := jsonscan.New([]byte(document), 128)
		if _, bad := s.Value(); err != nil || bad != nil || s.End() != nil {
			return
		}
		doc := bytes.TrimSpace([]byte(document))
		_, _ = q.Matches(doc)
		q.IDs()
		_ = q.Gather(doc)
		if out, _ := q.Project(nil, doc); out != nil && !json.Valid(out) {
			t.Fatalf("%q of %q is %q", text, doc, out)
		}
	})
}
