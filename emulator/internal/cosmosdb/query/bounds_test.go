package query

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// A word of the language is no name of a column, and the FROM that ends the columns is the one
// outside of brackets.
func TestKeywordsAreNoNames(t *testing.T) {
	for _, text := range []string{
		"SELECT 1 AS from FROM", "SELECT 1 from FROM", "SELECT 1 AS from FROM c", "SELECT 1 FROM", "SELECT 1 FROM c AS", "SELECT c.a AS where FROM c", "SELECT 1 FROM from", "SELECT 1 FROM c AS where",
		"SELECT {a: c.b FROM c", "SELECT (1 FROM c) FROM", "SELECT from FROM from from",
	} {
		if _, err := Parse(text, nil); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
	for text, want := range map[string]string{
		"SELECT VALUE {from: c.a, 'FROM': 2} FROM c": `{"from":1,"FROM":2}`, `SELECT VALUE "." FROM c`: `"."`, "SELECT VALUE c['from'] FROM c": `3`, "SELECT VALUE c.from FROM c": `3`,
	} {
		q, err := Parse(text, nil)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if out, err := q.Project(nil, []byte(`{"a":1,"from":3}`)); err != nil || string(out) != want {
			t.Errorf("%q is %s, %v, want %s", text, out, err, want)
		}
	}
}

// What a query builds out of a document is bounded, wherever it is built.
func TestResultsAreBounded(t *testing.T) {
	document := []byte(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`)
	list := "[" + strings.Repeat("c,", 50_000) + "c]"
	for _, text := range []string{
		"SELECT VALUE " + list + " FROM c", "SELECT " + strings.Repeat("c AS a,", 30_000) + "c FROM c", "SELECT VALUE {a: " + list + "} FROM c",
		"SELECT * FROM c WHERE ARRAY_CONTAINS(" + list + ", 1)", "SELECT VALUE COUNT(" + list + ") FROM c", "SELECT VALUE MAX([[c,c],[[c,c],[c,c]],[c,c]]) FROM c",
	} {
		q, err := Parse(text, nil)
		if err != nil {
			t.Fatalf("%.40q: %v", text, err)
		}
		_, err = q.Matches(document)
		if err == nil {
			err = q.Gather(document)
		}
		if err == nil {
			_, err = q.Project(nil, document)
		}
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%.40q: %v, want %v", text, err, ErrTooLarge)
		}
	}
}

// How much a query reads for a document is bounded, so that it ends soon: the partition is locked
// meanwhile.
func TestReadingIsBounded(t *testing.T) {
	document := []byte(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`)
	many := func(text string) string { return strings.Repeat(text+",", 2_000) + text }
	for _, text := range []string{
		"SELECT VALUE [" + many("c.z") + "] FROM c", "SELECT * FROM c WHERE c.a IN (" + many("@p") + ")", "SELECT VALUE COUNT([" + many("c.z") + "]) FROM c",
		"SELECT VALUE [" + many("CONTAINS(@p, 'y')") + "] FROM c", "SELECT VALUE [" + many("@p = @p") + "] FROM c", "SELECT VALUE c.a FROM c ORDER BY " + many("c.z"),
	} {
		q, err := Parse(text, map[string]json.RawMessage{"@p": json.RawMessage(`"` + strings.Repeat("x", 100<<10) + `"`)})
		if err != nil {
			t.Fatalf("%.40q: %v", text, err)
		}
		_, err = q.Matches(document)
		if err == nil {
			err = q.Gather(document)
		}
		if err == nil {
			_, err = q.SortKeys(document)
		}
		if err == nil {
			_, err = q.Project(nil, document)
		}
		if !errors.Is(err, ErrTooMuch) {
			t.Errorf("%.40q: %v, want %v", text, err, ErrTooMuch)
		}
	}
}

// A sum beyond the greatest number is undefined: JSON has no infinity.
func TestOverflow(t *testing.T) {
	for _, text := range []string{"SELECT VALUE SUM(c.n) FROM c", "SELECT VALUE AVG(c.n) FROM c", "SELECT VALUE SUM(-1e308) FROM c", "SELECT SUM(c.n) AS n FROM c", "SELECT VALUE [SUM(@p)] FROM c"} {
		q, err := Parse(text, map[string]json.RawMessage{"@p": json.RawMessage("1e999")})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := q.Gather([]byte(`{"n":1e308}`)); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := q.Project(nil, nil); err != nil || out != nil && !json.Valid(out) || strings.Contains(string(out), "1") {
			t.Errorf("%s is %s, %v", text, out, err)
		}
	}
}
