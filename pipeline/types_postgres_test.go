package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// Whatever the type of a column, a value is stored as PostgreSQL's own cast of its text would, or
// refused: for every type that a table can have.
func TestPostgresColumnTypes(t *testing.T) {
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, extension := range []string{"hstore", "citext", "ltree", "cube", "isn"} {
		if _, err := pool.Exec(ctx, "CREATE EXTENSION "+extension); err != nil {
			t.Logf("without %s: %v", extension, err)
		}
	}
	if _, err := pool.Exec(ctx, `CREATE TYPE word AS ENUM ('none', 'some', '2'); CREATE TYPE pair AS (n int, s text);
		CREATE DOMAIN cents AS money; CREATE DOMAIN some_day AS date NOT NULL; CREATE DOMAIN few AS numeric(5,2) CHECK (VALUE < 500); CREATE DOMAIN fewer AS few`); err != nil {
		t.Fatal(err)
	}
	// All but the rows of tables, and arrays of those.
	rows, err := pool.Query(ctx, `SELECT format_type(t.oid, NULL) FROM pg_type t LEFT JOIN pg_type e ON e.typarray = t.oid LEFT JOIN pg_class c ON c.oid IN (t.typrelid, e.typrelid)
		WHERE t.typtype <> 'p' AND t.typisdefined AND (c.oid IS NULL OR c.relkind = 'c') ORDER BY t.oid`)
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	kinds = append(kinds, "varchar(3)", "char(5)", "numeric(9,1)", "timestamp(0)", "timestamptz(3)", "bit(4)", "time(0)", "interval(0)", "numeric(9,1)[]")
	var count typesCount
	for i, kind := range kinds {
		table := fmt.Sprintf("t%d", i)
		if _, err := pool.Exec(ctx, "CREATE TABLE "+table+" (c "+kind+")"); err != nil {
			t.Logf("no column of type %s: %v", kind, err)
			continue
		}
		for typ, list := range typeSamples {
			count.pairs++
			tg := typedTarget(t, &postgresDialect, table, typ)
			if err := tg.prepare(ctx, postgresCatalog{pool}, false); err != nil {
				count.refused++
				continue
			}
			handler := tg.postgresHandler()
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				for _, s := range list {
					stored, err := inSavepoint(ctx, tx, table, func(tx pgx.Tx) error {
						return handler(ctx, tx, sluice.Batch{Partition: "0", Events: []*sluice.Event{sampleEvent(s)}})
					})
					own, ownErr := inSavepoint(ctx, tx, table, func(tx pgx.Tx) error {
						text := s.text
						switch typ {
						case typeTimestamp:
							text += "+00"
						case typeBytes:
							text = fmt.Sprintf(`\x%x`, text)
						}
						value := "'" + strings.ReplaceAll(text, "'", "''") + "'"
						if typ == typeJSON {
							value = unnested(kind, value)
						}
						_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ("+value+")")
						return err
					})
					count.compare(t, kind, typ, s, stored, err, own, ownErr)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	count.report(t, 1500, 1200)
}

// unnested is the SQL that makes an array or an hstore of a literal that is JSON.
func unnested(kind, literal string) string {
	switch {
	case kind == "json[]", kind == "jsonb[]":
		return "(SELECT coalesce(array_agg(CASE json_typeof(v) WHEN 'null' THEN NULL ELSE v END), '{}') FROM json_array_elements(" + literal + ") AS v)::" + kind
	case kind == "regclass[]": // a cast of a text takes no number
		return "(SELECT '{' || coalesce(string_agg(v, ','), '') || '}' FROM json_array_elements_text(" + literal + ") AS v)::" + kind
	case strings.HasSuffix(kind, "[]"):
		return "(SELECT coalesce(array_agg(v), '{}') FROM json_array_elements_text(" + literal + ") AS v)::" + kind
	case kind == "hstore":
		return "(SELECT hstore(array_agg(key), array_agg(value)) FROM json_each_text(" + literal + "))"
	}
	return literal
}

// inSavepoint returns the text of the only row that was written, and rolls back.
func inSavepoint(ctx context.Context, tx pgx.Tx, table string, write func(pgx.Tx) error) (stored string, err error) {
	point, err := tx.Begin(ctx)
	if err != nil {
		return "", err
	}
	if err = write(point); err == nil {
		err = point.QueryRow(ctx, "SELECT coalesce(c::text, '<NULL>') FROM "+table, pgx.QueryExecModeSimpleProtocol).Scan(&stored)
	}
	return stored, errors.Join(err, point.Rollback(ctx))
}
