package keyedtest

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // driver pgx

	"github.com/sluice-go/sluice/internal/proof/suite"
)

// SetUpPostgres makes what the words of Postgres need, and has deadlocks found soon. It comes
// before the store.
func SetUpPostgres(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	suite.NoError(t, "open", err)
	t.Cleanup(func() { db.Close() })
	for _, text := range []string{
		`CREATE COLLATION fold (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`,
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = 20', current_database()); END $$`,
	} {
		_, err := db.ExecContext(t.Context(), text)
		suite.NoError(t, text, err)
	}
	return db
}

// Postgres are PostgreSQL's words.
var Postgres = Words{
	Fold: "varchar(20) COLLATE fold", Text: "text", Bytes: "bytea", Time: "timestamptz", Decimal: "numeric(9,2)", Int: "bigint",
	Identity: "GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
	Trigger: func(name, event string) string {
		return fmt.Sprintf(`CREATE OR REPLACE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN IF TG_OP = 'DELETE' THEN IF OLD.body = TG_OP THEN RETURN NULL; END IF; RETURN OLD; END IF; IF NEW.body = TG_OP THEN RETURN NULL; END IF; RETURN NEW; END $$;
			CREATE TRIGGER leave_out BEFORE %s ON leaky FOR EACH ROW EXECUTE FUNCTION leave_out()`, event)
	},
	Partial:    "CREATE UNIQUE INDEX ON %s (id) WHERE n > 0",
	Quote:      func(name string) string { return `"` + name + `"` },
	TimeEquals: "%s = '2026-07-01 01:02:03.004005Z'",
}

// SQLite are SQLite's words.
var SQLite = Words{
	Fold: "TEXT COLLATE NOCASE", Text: "TEXT", Bytes: "BLOB", Time: "DATETIME", Decimal: "NUMERIC", Int: "INTEGER", Identity: "PRIMARY KEY",
	Trigger: func(name, event string) string {
		row := map[bool]string{true: "OLD", false: "NEW"}[event == "DELETE"]
		return fmt.Sprintf("CREATE TRIGGER leave_out_%s BEFORE %s ON leaky WHEN %s.body = '%s' BEGIN SELECT RAISE(IGNORE); END", strings.ToLower(name), event, row, event)
	},
	Partial:    "CREATE UNIQUE INDEX partial_index ON %s (id) WHERE n > 0",
	Quote:      func(name string) string { return `"` + name + `"` },
	TimeEquals: "%s = '2026-07-01 01:02:03.004005+00:00'",
	Loose:      true,
}

// MySQL are MySQL's and MariaDB's words.
var MySQL = Words{
	Fold: "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", Text: "LONGTEXT CHARACTER SET utf8mb4", Bytes: "LONGBLOB", Time: "DATETIME(6)", Decimal: "DECIMAL(9,2)", Int: "BIGINT",
	Identity:   "PRIMARY KEY AUTO_INCREMENT",
	Quote:      func(name string) string { return "`" + name + "`" },
	TimeEquals: "%s = '2026-07-01 01:02:03.004005'",
}

// SQLServer are SQL Server's words. There is no partial index: Babelfish does not say which are.
var SQLServer = Words{
	Fold: "nvarchar(20) COLLATE Latin1_General_CI_AS", Text: "nvarchar(max)", Bytes: "varbinary(max)", Time: "datetime2(6)", Decimal: "decimal(9,2)", Int: "bigint",
	Identity: "IDENTITY PRIMARY KEY",
	Trigger: func(name, event string) string {
		switch event {
		case "INSERT":
			return "CREATE TRIGGER leave_out ON leaky INSTEAD OF INSERT AS INSERT INTO leaky SELECT id, v, body FROM inserted WHERE body <> 'INSERT'"
		case "DELETE":
			return "CREATE TRIGGER leave_out ON leaky INSTEAD OF DELETE AS DELETE FROM leaky WHERE id IN (SELECT id FROM deleted WHERE body <> 'DELETE')"
		}
		return ""
	},
	Quote:      func(name string) string { return "[" + name + "]" },
	TimeEquals: "%s = '2026-07-01 01:02:03.004005'",
	Abort:      true, SlowDeadlocks: true,
}
