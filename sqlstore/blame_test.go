package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/blame"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
)

// blamed returns a store for package blame. The handler runs each statement as it is; one that
// begins with insert: is [Tx.Insert] into that table.
func blamed(t *testing.T, s *Store) blame.Store[*Tx] {
	return blame.Store[*Tx]{
		Leases: s.Leases(), Store: s,
		Exec: func(ctx context.Context, tx *Tx, statement, value string) error {
			if table, is := strings.CutPrefix(statement, "insert:"); is {
				return tx.Insert(ctx, table, []string{"n"}, [][]any{{value}})
			}
			rows, err := tx.QueryContext(ctx, statement, value)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
			}
			return rows.Err()
		},
		Do: func(ctx context.Context, statements string) error {
			for _, one := range strings.Split(statements, ";;") {
				if _, err := s.DB().ExecContext(ctx, one); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// undone runs what an operator does and undoes, with an INSERT and with [Tx.Insert].
func undone(t *testing.T, s blame.Store[*Tx], insert string, alterations map[string][2]string) {
	if err := s.Do(t.Context(), `CREATE TABLE counts (n INT)`); err != nil {
		t.Fatal(err)
	}
	for name, statement := range map[string]string{"": insert, " of Insert": "insert:counts"} {
		blame.Undone(t, s, "drop"+name, statement, `DROP TABLE counts`, `CREATE TABLE counts (n INT)`)
		for what, a := range alterations {
			blame.Undone(t, s, what+name, statement, a[0], a[1])
		}
	}
}

func TestBlame(t *testing.T) {
	s := blamed(t, open(t, filepath.Join(t.TempDir(), "x.db")))
	cases := []blame.Case{
		{Name: "search term", Setup: `CREATE VIRTUAL TABLE texts USING fts5(body)`,
			Statement: `SELECT count(*) FROM texts WHERE texts MATCH ?`, Good: "a", Bad: `a "`},
		{Name: "json", Statement: `SELECT json_extract(?, '$.a')`, Good: "{}", Bad: "{"},
		{Name: "json path", Statement: `SELECT json_extract('{}', ?)`, Good: "$.a", Bad: "a"},
		{Name: "trigger", Setup: `CREATE TABLE tenants (tenant TEXT);; CREATE TRIGGER each AFTER INSERT ON tenants WHEN NEW.tenant = 'unknown' BEGIN SELECT RAISE(ABORT, 'unknown tenant'); END`,
			Statement: `INSERT INTO tenants VALUES (?)`, Good: "a", Bad: "unknown"},
	}
	blame.OneBadEvent(t, s, cases)
	blame.Alone(t, s, cases[0])
	blame.Rejected(t, s, cases[0])
	recovering := s
	recovering.Exec = func(ctx context.Context, tx *Tx, statement, value string) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO not_there_yet VALUES (1)`); err == nil {
			return errors.New("there is such a table")
		}
		if err := s.Exec(ctx, tx, statement, value); err != nil {
			return fmt.Errorf("of its own: %v", err)
		}
		return nil
	}
	blame.OneBadEvent(t, recovering, []blame.Case{{Name: "after another error", Statement: `SELECT json_extract(?, '$.a')`, Good: "{}", Bad: "{"}})
	undone(t, s, `INSERT INTO counts (n) VALUES (?)`, map[string][2]string{
		"rename": {`ALTER TABLE counts RENAME n TO m`, `ALTER TABLE counts RENAME m TO n`},
	})
}

func TestMariaDBBlame(t *testing.T) {
	s := blamed(t, openMariaDB(t, mariadbtest.Database(t), nil))
	cases := []blame.Case{
		{Name: "search term", Setup: `CREATE TABLE texts (body TEXT, FULLTEXT (body)) ENGINE = InnoDB`,
			Statement: `SELECT COUNT(*) FROM texts WHERE MATCH (body) AGAINST (? IN BOOLEAN MODE)`, Good: "a", Bad: `+(`},
		{Name: "regular expression", Statement: `SELECT 'a' REGEXP ?`, Good: "a", Bad: "("},
		{Name: "partition", Setup: `CREATE TABLE parted (n INT) ENGINE = InnoDB PARTITION BY RANGE (n) (PARTITION p0 VALUES LESS THAN (100))`,
			Statement: `INSERT INTO parted VALUES (?)`, Good: "1", Bad: "1000"},
		{Name: "trigger", Setup: `CREATE TABLE tenants (tenant VARCHAR(20)) ENGINE = InnoDB;; CREATE TRIGGER each_tenant AFTER INSERT ON tenants FOR EACH ROW BEGIN IF NEW.tenant = 'unknown' THEN INSERT INTO not_there VALUES (1); END IF; END`,
			Statement: `INSERT INTO tenants VALUES (?)`, Good: "a", Bad: "unknown"},
		{Name: "signal", Setup: `CREATE TABLE signals (tenant VARCHAR(20)) ENGINE = InnoDB;; CREATE TRIGGER each_signal AFTER INSERT ON signals FOR EACH ROW BEGIN IF NEW.tenant = 'unknown' THEN SIGNAL SQLSTATE '45000'; END IF; END`,
			Statement: `INSERT INTO signals VALUES (?)`, Good: "a", Bad: "unknown"},
	}
	blame.OneBadEvent(t, s, cases)
	blame.Alone(t, s, cases[2])
	blame.Rejected(t, s, cases[2])
	undone(t, s, `INSERT INTO counts (n) VALUES (?)`, map[string][2]string{
		"rename": {`ALTER TABLE counts RENAME COLUMN n TO m`, `ALTER TABLE counts RENAME COLUMN m TO n`},
	})
}

func TestSQLServerBlame(t *testing.T) {
	s := blamed(t, openMSSQL(t, sqlservertest.Database(t), nil))
	cases := []blame.Case{
		{Name: "value", Statement: `SELECT CAST(@p1 AS INT)`, Good: "1", Bad: "x"},
		{Name: "trigger", Setup: `CREATE TABLE tenants (tenant VARCHAR(20));; CREATE TRIGGER each_tenant ON tenants AFTER INSERT AS IF EXISTS (SELECT 1 FROM inserted WHERE tenant = 'unknown') INSERT INTO not_there VALUES (1)`,
			Statement: `INSERT INTO tenants VALUES (@p1)`, Good: "a", Bad: "unknown"},
	}
	blame.OneBadEvent(t, s, cases)
	blame.Alone(t, s, cases[1])
	blame.Rejected(t, s, cases[1])
	undone(t, s, `INSERT INTO counts (n) VALUES (CAST(@p1 AS INT))`, nil)
}

func TestPostgresBlame(t *testing.T) {
	s := blamed(t, openPostgres(t, pgtest.Database(t), nil))
	cases := []blame.Case{
		{Name: "search term", Statement: `SELECT to_tsquery('simple', $1)`, Good: "a & b", Bad: "a b"},
		{Name: "deferred trigger", Setup: `CREATE TABLE later (tenant text); CREATE TABLE of_a (n int);
			CREATE FUNCTION to_tenant() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('INSERT INTO of_%s VALUES (1)', NEW.tenant); RETURN NEW; END $$;
			CREATE CONSTRAINT TRIGGER each AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION to_tenant()`,
			Statement: `INSERT INTO later VALUES ($1)`, Good: "a", Bad: "unknown"},
	}
	blame.OneBadEvent(t, s, cases)
	blame.Alone(t, s, cases[0])
	blame.Rejected(t, s, cases[0])
	undone(t, s, `INSERT INTO counts (n) VALUES (CAST($1 AS INT))`, map[string][2]string{
		"rename": {`ALTER TABLE counts RENAME n TO m`, `ALTER TABLE counts RENAME m TO n`},
	})
}

// alter drops, renames and alters the table of a handler while a service runs. Each alteration has
// a table of its own.
func alter(t *testing.T, s *Store, insert string, renames [2]string) {
	b := blamed(t, s)
	for _, table := range []string{"dropped", "renamed", "altered"} {
		if err := b.Do(t.Context(), `CREATE TABLE `+table+` (n INT)`); err != nil {
			t.Fatal(err)
		}
	}
	blame.Altered(t, b, []blame.Alteration{
		{Name: "drop", Statement: fmt.Sprintf(insert, "dropped"), Broken: `DROP TABLE dropped`, Mended: `CREATE TABLE dropped (n INT)`},
		{Name: "rename", Statement: fmt.Sprintf(insert, "renamed"), Broken: renames[0], Mended: renames[1]},
		{Name: "alter", Statement: fmt.Sprintf(insert, "altered"), Broken: `ALTER TABLE altered ADD m INT NOT NULL DEFAULT 0;;ALTER TABLE altered DROP COLUMN n`, Mended: `ALTER TABLE altered ADD n INT`},
	})
}

var renames = [2]string{`ALTER TABLE renamed RENAME TO other`, `ALTER TABLE other RENAME TO renamed`}

func TestAltered(t *testing.T) {
	t.Parallel()
	alter(t, open(t, filepath.Join(t.TempDir(), "x.db")), `INSERT INTO %s (n) VALUES (?)`, renames)
}

func TestMariaDBAltered(t *testing.T) {
	t.Parallel()
	alter(t, openMariaDB(t, mariadbtest.Database(t), nil), `INSERT INTO %s (n) VALUES (?)`, renames)
}

func TestSQLServerAltered(t *testing.T) {
	t.Parallel()
	alter(t, openMSSQL(t, sqlservertest.Database(t), nil), `INSERT INTO %s (n) VALUES (CAST(@p1 AS INT))`, [2]string{`EXEC sp_rename 'renamed', 'other', 'OBJECT'`, `EXEC sp_rename 'other', 'renamed', 'OBJECT'`})
}

func TestPostgresAltered(t *testing.T) {
	t.Parallel()
	alter(t, openPostgres(t, pgtest.Database(t), nil), `INSERT INTO %s (n) VALUES (CAST($1 AS INT))`, renames)
}
