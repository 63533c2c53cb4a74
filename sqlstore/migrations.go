package sqlstore

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing/fstest"

	"github.com/sluice-go/sluice/internal/migrations"
	"github.com/sluice-go/sluice/internal/postgres"
)

// Dialect is a kind of database.
type Dialect string

// The kinds of database that a store can be in.
const (
	SQLite     Dialect = "sqlite"
	PostgreSQL Dialect = "postgres"
	MySQL      Dialect = "mysql"
	MariaDB    Dialect = "mariadb"
	SQLServer  Dialect = "sqlserver"
)

// Migrations returns what opening a store runs to make Sluice's tables, as files NNNN_name.up.sql
// that goose and golang-migrate read; the next file of a later version has the next number. They
// record the version in sluice_schema, so that a store that is opened afterwards finds its tables
// current. Tables that a store has made need no files: mark those as applied in the tool.
//
// SQLite has the files of its leases in the directory leases: they belong to the file path-leases.
// In PostgreSQL the tables go to the first schema of the search_path, which must exist.
// golang-migrate needs x-multi-statement off, its default. Of an unknown dialect, opening any file
// fails.
func Migrations(kind Dialect) fs.FS {
	files := fstest.MapFS{}
	server := func(d dialect) fs.FS {
		migrations.Write(files, ".", migrationsOf(d, serverOrder))
		return files
	}
	switch kind {
	case SQLite:
		d := sqliteDialect{sqliteStoreSteps, sqliteLeaseSteps}
		migrations.Write(files, ".", migrationsOf(d, slices.Repeat([]string{storeComponent}, len(d.store))))
		migrations.Write(files, leaseComponent, migrationsOf(d, slices.Repeat([]string{leaseComponent}, len(d.leases))))
		return files
	case PostgreSQL:
		return postgres.MigrationFiles()
	case MySQL:
		return server(mysqlDialect{collation: mysqlBinary})
	case MariaDB:
		return server(mysqlDialect{collation: mariadbBinary})
	case SQLServer:
		return server(mssqlDialect{})
	}
	return unknownDialect(kind)
}

// serverOrder has the component of each file of MySQL, MariaDB and SQL Server. It is only appended
// to: the tools know a migration by its number.
var serverOrder = []string{storeComponent, storeComponent, storeComponent, leaseComponent, leaseComponent}

// migrationsOf returns the migrations whose components are in order.
func migrationsOf(d dialect, order []string) []migrations.Migration {
	list := make([]migrations.Migration, len(order))
	versions := map[string]int{}
	for i, component := range order {
		versions[component]++
		list[i] = migrations.Migration{Component: component, Statements: migration(d, component, versions[component])}
	}
	return list
}

// migration returns the statements that make a version of a component's tables, and record it. A
// store sends each by itself.
func migration(d dialect, component string, version int) []string {
	s := d.steps(component)[version-1]
	row := strings.NewReplacer("{component}", "'"+component+"'", "{version}", fmt.Sprint(version), "{oldest}", fmt.Sprint(s.oldest))
	list := append([]string{d.statements().SchemaTable}, d.script(s.sql)...)
	return append(list, row.Replace(d.statements().SchemaStep))
}

// unknownDialect has no files.
type unknownDialect Dialect

func (d unknownDialect) Open(name string) (fs.File, error) {
	known := fmt.Sprintf("use one of %s, %s, %s, %s, %s", SQLite, PostgreSQL, MySQL, MariaDB, SQLServer)
	return nil, &fs.PathError{Op: "open", Path: path.Join("migrations", name), Err: fmt.Errorf("no dialect %q: %s", string(d), known)}
}
