package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
)

// columnChange is a change of the type of a column.
type columnChange struct {
	from, to, typ, json string
	want                string // the value after the change; empty: the column does not fit
}

// When a column changes.
const beforeFirst, betweenBatches, inside = "before the first batch", "between batches", "in a batch, before its rows"

// The type of a column changes before, between and during batches. What is stored is the value, or
// no batch is committed until the column fits again; each change is reported, and no event is
// blamed.
func TestPostgresColumnChanges(t *testing.T) {
	for _, c := range []columnChange{
		{"integer", "real", "integer", "12", "12"},
		{"integer", "bigint", "integer", "12", "12"},
		{"integer", "numeric(9,1)", "integer", "12", "12.0"},
		{"bigint", "timestamp with time zone", "bigint", "12", ""},
		{"integer", "text", "integer", "12", ""},
		{"numeric", "money", "numeric", "12345.67", "12345.67"},
		{"timestamp with time zone", "date", "timestamp", `"2026-07-08T21:04:05Z"`, ""},
		{"text", "date", "text", `"2026-07-08"`, "2026-07-08"},
		{"bytea", "text", "bytes", `"YQ=="`, ""},
	} {
		for _, when := range []string{beforeFirst, betweenBatches, inside} {
			t.Run(c.from+" to "+c.to+" "+when, func(t *testing.T) {
				t.Parallel()
				c.test(t, when)
			})
		}
	}
}

func (c columnChange) test(t *testing.T, when string) {
	ctx := t.Context()
	store, err := pgstore.Open(ctx, pgtest.Database(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	exec := func(sql string) {
		t.Helper()
		if _, err := store.Pool().Exec(ctx, sql); err != nil {
			t.Error(err)
		}
	}
	exec("CREATE TABLE changing (c " + c.from + ")")
	lease := driver.Lease{Group: sluice.Group{Namespace: "n", Topic: "t", Name: "g"}, Partition: "0", Owner: "a", Epoch: 1}
	claimed, err := store.Claim(ctx, lease, "1")
	if err != nil {
		t.Fatal(err)
	}
	tg := typedTarget(t, &postgresDialect, "changing", columnType(c.typ))
	if err := tg.prepare(ctx, postgresCatalog{store.Pool()}, false); err != nil {
		t.Fatal(err)
	}
	from, handler := claimed.Position, tg.postgresHandler()
	batch := func(first func()) error {
		to := driver.Position{Sequence: max(from.Sequence, -1) + 1}
		err := store.Commit(ctx, driver.Step{Lease: lease, From: from, To: to}, func(ctx context.Context, tx pgx.Tx) error {
			if first != nil {
				first()
			}
			return handler(ctx, tx, sluice.Batch{Partition: "0", Events: []*sluice.Event{sampleEvent(typeSample{json: c.json})}})
		})
		if err == nil {
			from = to
		}
		return err
	}
	alter := func() { exec("DELETE FROM changing; ALTER TABLE changing ALTER c TYPE " + c.to + " USING NULL") }
	var first func()
	if when != beforeFirst {
		if err := batch(nil); err != nil {
			t.Fatal(err)
		}
	}
	if first = alter; when != inside {
		alter()
		first = nil
	}
	waits := func(err error, what string) { t.Helper(); ofTheTable(t, err, what) }
	err = batch(first)
	if when != beforeFirst {
		waits(err, "column c has changed from "+c.from+" to "+c.to)
		err = batch(nil)
	}
	if c.want == "" {
		waits(err, "which can't hold the mapping's "+c.typ)
		waits(batch(nil), "which can't hold the mapping's "+c.typ)
		exec("ALTER TABLE changing ALTER c TYPE " + c.from + " USING NULL")
		for range 3 { // the changes of another test's table are noticed too
			if err = batch(nil); err == nil {
				break
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if c.want != "" {
		c.compare(t, store)
	}
}

// ofTheTable checks that an error blames no event, and says what.
func ofTheTable(t *testing.T, err error, what string) {
	t.Helper()
	if _, blamed := errors.AsType[*driver.HandlerError](err); blamed || err == nil || !strings.Contains(err.Error(), what) {
		t.Errorf("error is %v, want one of the table that says %q", err, what)
	}
}

// compare compares the only row with the database's own cast.
func (c columnChange) compare(t *testing.T, store *pgstore.Store) {
	t.Helper()
	var stored, own string
	var n int
	if err := store.Pool().QueryRow(t.Context(), "SELECT count(*), min(c::text), min($1::text::"+c.to+"::text) FROM changing", pgx.QueryExecModeSimpleProtocol,
		c.want).Scan(&n, &stored, &own); err != nil || n != 1 || stored != own {
		t.Errorf("stored %d rows, %q instead of %q: %v", n, stored, own, err)
	}
}
