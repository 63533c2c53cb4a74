package sqlshape_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/sqlshape"
)

func TestShape(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		"INSERT INTO orders (id, total) VALUES ($1, $2), ($3, $4)":         "insert into orders id total values",
		"insert into orders (id, total) values (?, ?)":                     "insert into orders id total values",
		"INSERT INTO orders (id, total) VALUES (@p1, 12.5)":                "insert into orders id total values",
		`INSERT INTO "Orders" ("id") VALUES ('it''s', E'a\'b', N'c')`:      `insert into "Orders" "id" values`,
		"UPDATE [dbo].[orders] SET `a` = a[1] -- b\n WHERE /* c */ id = 7": "update [dbo] [orders] set `a` a where id",
		"SELECT $$a b$$, $x$c$d$x$, :name, d::text":                        "select d",
		"SELECT to_tsquery('a b')":                                         "select to_tsquery",
		"SELECT 'open":                                                     "select",
		"SELECT e'\\":                                                      "select",
	} {
		if got := sqlshape.Words(text); got != want {
			t.Errorf("%s: shape %q, want %q", text, got, want)
		}
	}
}

func TestLog(t *testing.T) {
	var l sqlshape.Log
	l.Note("INSERT INTO a VALUES (1)")
	l.Note("INSERT INTO a VALUES (2)")
	l.Note("COPY b")
	if got := strings.Join(l.Shapes(), "; "); got != "copy b; insert into a values" {
		t.Error(got)
	}
	for _, shapes := range [][]string{nil, {"copy b"}, {"copy b", "insert into a values"}} {
		if !l.Has(shapes) {
			t.Errorf("%q are missing", shapes)
		}
	}
	if l.Has([]string{"copy b", "copy c"}) {
		t.Error("a statement that did not run is there")
	}
	for i := range 10_000 {
		l.Note(fmt.Sprintf("SELECT c%d", i))
	}
	if n := len(l.Shapes()); n > 256 {
		t.Errorf("%d shapes", n)
	}
}

func FuzzShape(f *testing.F) {
	for _, text := range []string{"SELECT $a$ $a", "'", "\"", "[", "$1$", "e'\\'", "/*", "--", "x'", "\xb2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		shape := sqlshape.Words(text)
		if len(shape) > 2*len(text) { // a space for each word
			t.Fatalf("%q: %q", text, shape)
		}
	})
}
