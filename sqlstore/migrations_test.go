package sqlstore

import (
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/suite"
)

// gooseStatements divides a file as goose does: by the annotations around each statement.
func gooseStatements(t testing.TB, text string) (list []string) {
	t.Helper()
	rest, ok := strings.CutPrefix(text, "-- +goose Up\n")
	for ok && rest != "" {
		var statement string
		if rest, ok = strings.CutPrefix(rest, "-- +goose StatementBegin\n"); ok {
			statement, rest, ok = strings.Cut(rest, "\n-- +goose StatementEnd\n")
			list = append(list, statement)
		}
	}
	if !ok || len(list) == 0 {
		t.Fatalf("goose cannot read this file:\n%s", text)
	}
	return list
}

// migrationTexts returns the files of a directory in the order of their numbers.
func migrationTexts(t testing.TB, files fs.FS, dir string) (texts []string) {
	t.Helper()
	names, err := fs.Glob(files, strings.TrimPrefix(dir+"/*.sql", "./"))
	suite.NoError(t, "list the files", err)
	if !slices.IsSorted(names) || len(names) == 0 {
		t.Fatalf("files %q", names)
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		suite.NoError(t, "read "+name, err)
		texts = append(texts, string(text))
	}
	return texts
}

// sqliteByTool makes the files of a store as a tool does. If whole, each file is one call, as of
// golang-migrate.
func sqliteByTool(t testing.TB, path string, whole bool) {
	t.Helper()
	for dir, file := range map[string]string{".": path, leaseComponent: path + leaseSuffix} {
		db, err := sql.Open("sqlite", file)
		suite.NoError(t, "open", err)
		for _, text := range migrationTexts(t, Migrations(SQLite), dir) {
			statements := []string{text}
			if !whole {
				statements = gooseStatements(t, text)
			}
			for _, statement := range statements {
				if _, err := db.Exec(statement); err != nil {
					t.Fatalf("%v in\n%s", err, statement)
				}
			}
		}
		suite.NoError(t, "close", db.Close())
	}
}

// sqliteContent returns the objects of a database, and its versions without their times.
func sqliteContent(t testing.TB, db *sql.DB) string {
	t.Helper()
	var text string
	_, err := one(t.Context(), db, `
		SELECT (SELECT group_concat(type || ' ' || name || ' ' || coalesce(sql, '-'), char(10)) FROM (SELECT * FROM sqlite_schema ORDER BY name))
			|| (SELECT group_concat(component || ' ' || version || ' ' || oldest_compatible) FROM sluice_schema)`, nil, &text)
	suite.NoError(t, "read the schema", err)
	return text
}

// TestSQLiteMigrations: a tool makes the tables that opening makes, and opening finds them current.
func TestSQLiteMigrations(t *testing.T) {
	made, err := OpenSQLite(filepath.Join(t.TempDir(), "x.db"), nil)
	suite.NoError(t, "open", err)
	defer made.Close()
	for name, whole := range map[string]bool{"goose": false, "golang-migrate": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			sqliteByTool(t, path, whole)
			s, err := OpenSQLite(path, &Config{NoMigrate: true})
			suite.NoError(t, "open without migrating", err)
			defer s.Close()
			applied := func() string {
				return sqliteContent(t, s.DB()) + sqliteContent(t, s.leases.db)
			}
			before := applied()
			if want := sqliteContent(t, made.DB()) + sqliteContent(t, made.leases.db); before != want {
				t.Errorf("the tool made\n%s\nopening makes\n%s", before, want)
			}
			again, err := OpenSQLite(path, nil)
			suite.NoError(t, "open", err)
			suite.NoError(t, "close", again.Close())
			if after := applied(); after != before {
				t.Errorf("opening changed\n%s\nto\n%s", before, after)
			}
			_, err = s.Claim(t.Context(), leaseOf("0", "a", 1), "i")
			suite.NoError(t, "claim", err)
		})
	}
}

// TestSQLiteNoMigrate: a store that may not migrate refuses what is missing or old, and changes
// nothing.
func TestSQLiteNoMigrate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.db")
	refused := func(what string, texts ...string) {
		t.Helper()
		_, err := OpenSQLite(path, &Config{NoMigrate: true})
		saysAll(t, what, err, append(texts, path, "sluice migrate", "sqlstore.Migrations", "NoMigrate")...)
	}
	refused("no file", "no such file")
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("opening made %v, %v", names, err)
	}
	for _, file := range []string{path, path + leaseSuffix} {
		suite.NoError(t, "make an empty file", os.WriteFile(file, nil, 0o600))
	}
	refused("an empty database", "version 0", "needs 6", "from store 1")
	if text, err := os.ReadFile(path); err != nil || len(text) > 0 {
		t.Errorf("opening wrote %d bytes, %v", len(text), err)
	}

	path = filepath.Join(t.TempDir(), "x.db")
	cfg, err := (*Config)(nil).withDefaults()
	suite.NoError(t, "settings", err)
	old, err := openSQLite(path, cfg, sqliteDialect{sqliteStoreSteps, sqliteLeaseSteps[:1]})
	suite.NoError(t, "open as an older program", err)
	defer old.Close()
	refused("old leases", "schema for leases is version 1", "needs 2", "from leases 2")
	suite.NoError(t, "migrate", open(t, path).Close())
	s, err := OpenSQLite(path, &Config{NoMigrate: true})
	suite.NoError(t, "open what is current", err)
	suite.NoError(t, "close", s.Close())
}

// TestMigrationFiles: the files of each dialect contain every migration once, in statements that
// goose sends as a store does.
func TestMigrationFiles(t *testing.T) {
	for kind, d := range map[Dialect]dialect{
		MySQL: mysqlDialect{collation: mysqlBinary}, MariaDB: mysqlDialect{collation: mariadbBinary}, SQLServer: mssqlDialect{},
	} {
		var got, want []string
		for _, text := range migrationTexts(t, Migrations(kind), ".") {
			got = append(got, gooseStatements(t, text)...)
		}
		for _, component := range []string{storeComponent, leaseComponent} {
			for i := range d.steps(component) {
				want = append(want, migration(d, component, i+1)...)
			}
		}
		plain := func(list []string) (all []string) {
			for _, s := range list {
				all = append(all, strings.TrimSuffix(strings.TrimSpace(s), ";"))
			}
			slices.Sort(all)
			return all
		}
		if !slices.Equal(plain(got), plain(want)) {
			t.Errorf("%s: the files have\n%s\na store sends\n%s", kind, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	_, err := fs.ReadDir(Migrations("oracle"), ".")
	saysAll(t, "another dialect", err, `"oracle"`, "use one of", "mariadb")
}
