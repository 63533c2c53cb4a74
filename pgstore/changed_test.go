package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/pgstore"
)

// The type of a column changes while a pipeline writes to it: what is stored is the value, not the
// bytes that the old type had for it. The change is reported, no event becomes a dead letter, and
// nobody restarts anything.
func TestChangedColumn(t *testing.T) {
	type write func(ctx context.Context, tx pgx.Tx, columns []string, rows [][]any) error
	ways := map[string]write{
		"Insert": func(ctx context.Context, tx pgx.Tx, columns []string, rows [][]any) error {
			return pgstore.Insert(ctx, tx, "changing", columns, rows)
		},
		"CopyFrom": func(ctx context.Context, tx pgx.Tx, columns []string, rows [][]any) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"changing"}, columns, pgx.CopyFromRows(rows))
			return err
		},
		"CopyFrom in a savepoint": func(ctx context.Context, tx pgx.Tx, columns []string, rows [][]any) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.CopyFrom(ctx, pgx.Identifier{"changing"}, columns, pgx.CopyFromRows(rows))
				return err
			})
		},
	}
	changes := []struct {
		from, to string
		value    any
		want     string
	}{
		{"integer", "real", 12, "12"},
		{"integer", "bigint", 12, "12"},
		{"bigint", "numeric(9,2)", int64(12), "12.00"},
		{"bytea", "text", []byte("ab"), "ab"},
	}
	for name, write := range ways {
		for _, c := range changes {
			t.Run(fmt.Sprintf("%s, %s to %s", name, c.from, c.to), func(t *testing.T) {
				t.Parallel()
				r := run(t, "", nil, func(ctx context.Context, tx pgx.Tx, b sluice.Batch) error {
					rows := make([][]any, len(b.Events))
					for i, e := range b.Events {
						rows[i] = []any{e.Sequence, c.value}
					}
					return write(ctx, tx, []string{"n", "v"}, rows)
				}, "CREATE TABLE changing (n bigint, v "+c.from+")")
				r.send(10)
				eventually(t, "the first events are there", func() bool { return r.count(`SELECT count(*) FROM changing`) == 10 })
				r.exec(`TRUNCATE changing; ALTER TABLE changing ALTER v TYPE ` + c.to + ` USING NULL`)
				r.send(10)
				r.await(10*time.Second, "the others are there", func() bool { return r.count(`SELECT count(*) FROM changing`) == 10 })
				if n := r.count(`SELECT count(*) FROM changing WHERE v::text = '` + c.want + `'`); n != 10 {
					t.Errorf("%d of 10 values are %s", n, c.want)
				}
				if !r.reported("column v has changed from " + c.from + " to " + c.to) {
					t.Error("the change was not reported")
				}
				if n := len(r.deadLetters()); n != 0 {
					t.Errorf("%d dead letters", n)
				}
			})
		}
	}
}
