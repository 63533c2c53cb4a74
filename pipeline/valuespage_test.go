package pipeline

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// valueExample is a row of docs/values.md.
type valueExample struct {
	line   int
	json   string // body.v, or nothing
	column string // or the value of a function
	kind   string // PostgreSQL's, empty for a function
	want   string // the text that is stored, or error: and a part of its text
}

// valueExamples reads the rows of the page's tables.
func valueExamples(t *testing.T) (list []valueExample) {
	t.Helper()
	page, err := os.ReadFile("../docs/values.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(page), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| `body.v` |") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		e := valueExample{line: i + 1, json: cells[0], column: cells[1], want: cells[len(cells)-1]}
		if len(cells) == 4 {
			e.kind = cells[2]
		}
		list = append(list, e)
	}
	if len(list) < 70 {
		t.Fatalf("%d examples in docs/values.md, want at least 70", len(list))
	}
	return list
}

func (e *valueExample) event() *sluice.Event {
	body := `{"v": ` + e.json + `}`
	if e.json == "nothing" {
		body = `{}`
	}
	return &sluice.Event{Partition: "0", Sequence: 7, Body: []byte(body)}
}

// mapping is the column's, whose value is in a table in the page's first tables.
func (e *valueExample) mapping(t *testing.T) *mapping {
	t.Helper()
	if e.kind != "" {
		return mappingOf(t, "c: {from: body.v, "+e.column+"}")
	}
	return mappingOf(t, "c: {from: '"+e.column+"', required: true}")
}

// check compares what was stored, or the error, with the page.
func (e *valueExample) check(t *testing.T, stored string, err error) {
	t.Helper()
	why, isError := strings.CutPrefix(e.want, "error: ")
	if e.want == "missing" {
		why, isError = "is missing", true
	}
	switch {
	case isError && (err == nil || !strings.Contains(err.Error(), why)):
		t.Errorf("docs/values.md:%d: %s of %s: stored %q, %v, want the error %q", e.line, e.column, e.json, stored, err, why)
	case !isError && (err != nil || stored != e.want):
		t.Errorf("docs/values.md:%d: %s of %s: stored %q, %v, want %q", e.line, e.column, e.json, stored, err, e.want)
	}
}

// What the page about values says of functions, and that every mapping of it can be read.
func TestValuesPage(t *testing.T) {
	for _, e := range valueExamples(t) {
		rows, err := e.mapping(t).rows([]*sluice.Event{e.event()}, nil)
		if e.kind != "" {
			continue
		}
		var text string
		if err == nil {
			text, _ = rows[0][0].(string)
		}
		e.check(t, text, err)
	}
}

// What the page about values says that PostgreSQL stores.
func TestValuesPageInPostgres(t *testing.T) {
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(ctx, "SET TimeZone = 'UTC'"); err != nil {
		t.Fatal(err)
	}
	for _, e := range valueExamples(t) {
		if e.kind == "" {
			continue
		}
		table := fmt.Sprintf("shown%d", e.line) // of its own: a column that changes is another matter
		var stored string
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "CREATE TABLE "+table+" (c "+e.kind+")"); err != nil {
				t.Fatal(err)
			}
			tg := &tableTarget{rowTarget: rowTarget{dialect: &postgresDialect, mapping: e.mapping(t)}, table: table}
			if err := tg.prepare(ctx, postgresCatalog{tx}, false); err != nil {
				return err
			}
			if err := tg.postgresHandler()(ctx, tx, sluice.Batch{Partition: "0", Events: []*sluice.Event{e.event()}}); err != nil {
				return err
			}
			return tx.QueryRow(ctx, "SELECT coalesce(c::text, 'NULL') FROM "+table, pgx.QueryExecModeSimpleProtocol).Scan(&stored)
		})
		e.check(t, stored, err)
	}
}
