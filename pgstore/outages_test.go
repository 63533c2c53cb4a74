package pgstore_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/internal/proof/blame"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// TestAltered drops, renames and alters the table of a handler while a service runs, and takes its
// right. What a locked table is reported as, proof/outages shows.
func TestAltered(t *testing.T) {
	url := pgtest.Database(t)
	operator := open(t, url, nil) // a pool of its own: no handler keeps it waiting
	do := func(ctx context.Context, statements string) error {
		_, err := operator.Pool().Exec(ctx, statements)
		return err
	}
	with := func(before, after string) blame.Store[pgx.Tx] {
		s := open(t, url, nil)
		return blame.Store[pgx.Tx]{
			Leases: s.Leases(), Store: s, Do: do,
			Exec: func(ctx context.Context, tx pgx.Tx, statement, value string) error {
				for _, one := range []string{before, statement, after} {
					if one == "" {
						continue
					}
					var args []any
					if one == statement {
						args = []any{value}
					}
					if _, err := tx.Exec(ctx, one, args...); err != nil {
						return err
					}
				}
				return nil
			},
		}
	}
	role := "plain_" + strings.ToLower(rand.Text()) // roles belong to the server, not to the database
	if err := do(t.Context(), `CREATE ROLE `+role); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = do(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role) })
	insert := func(table string) string {
		if err := do(t.Context(), `CREATE TABLE `+table+` (n int); GRANT ALL ON `+table+` TO `+role); err != nil {
			t.Fatal(err)
		}
		return `INSERT INTO ` + table + ` (n) VALUES (CAST($1 AS int))`
	}
	blame.Altered(t, with("", ""), []blame.Alteration{
		{Name: "drop", Statement: insert("dropped"), Broken: `DROP TABLE dropped`, Mended: `CREATE TABLE dropped (n int)`},
		{Name: "rename", Statement: insert("renamed"), Broken: `ALTER TABLE renamed RENAME TO other`, Mended: `ALTER TABLE other RENAME TO renamed`},
		{Name: "column", Statement: insert("altered"), Broken: `ALTER TABLE altered RENAME n TO m`, Mended: `ALTER TABLE altered RENAME m TO n`},
		{Name: "type", Statement: insert("typed"), Broken: `ALTER TABLE typed ALTER n TYPE date USING NULL`, Mended: `ALTER TABLE typed ALTER n TYPE int USING NULL`},
	})
	blame.Altered(t, with(`SET LOCAL ROLE `+role, `RESET ROLE`), []blame.Alteration{
		{Name: "revoke", Statement: insert("guarded"), Broken: `REVOKE INSERT ON guarded FROM ` + role, Mended: `GRANT INSERT ON guarded TO ` + role},
	})
}
