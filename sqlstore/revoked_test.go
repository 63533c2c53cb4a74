package sqlstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/blame"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
)

// revoked takes a right from the user of a store while a service runs, and gives it back: that on
// the handler's table, and that on the store's own.
func revoked(t *testing.T, admin, user *Store, name, insert string) {
	if _, err := admin.DB().ExecContext(t.Context(), "GRANT SELECT, INSERT, UPDATE, DELETE ON guarded TO "+name); err != nil {
		t.Fatal(err)
	}
	b := blamed(t, user)
	b.Do = blamed(t, admin).Do
	blame.Altered(t, b, []blame.Alteration{
		{Name: "revoke", Statement: insert, Broken: "REVOKE INSERT ON guarded FROM " + name, Mended: "GRANT INSERT ON guarded TO " + name},
	})
	blame.Altered(t, b, []blame.Alteration{
		{Name: "revoke on checkpoints", Statement: insert, Broken: "REVOKE UPDATE ON sluice_checkpoints FROM " + name, Mended: "GRANT UPDATE ON sluice_checkpoints TO " + name},
	})
}

// plainUser makes a user with rights on each table of a store, and returns its name and the address
// with which it connects.
func plainUser(t *testing.T, admin *Store, address string, create func(name, password string) []string, drop func(name string) []string) (name, as string) {
	t.Helper()
	name, password := "plain_"+strings.ToLower(rand.Text()[:10]), rand.Text()
	if err := execute(t.Context(), admin.DB(), "CREATE TABLE guarded (n INT)"); err != nil {
		t.Fatal(err)
	}
	statements := create(name, password)
	for _, table := range []string{"sluice_schema", "sluice_leases", "sluice_checkpoints", "sluice_dead_letters", "sluice_seen"} {
		statements = append(statements, fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s", table, name))
	}
	for _, statement := range statements {
		if err := execute(t.Context(), admin.DB(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	t.Cleanup(func() { // users belong to the server
		for _, statement := range drop(name) {
			if err := execute(context.Background(), admin.DB(), statement); err != nil {
				t.Errorf("%s: %v", statement, err)
			}
		}
	})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, password)
	return name, u.String()
}

func TestMariaDBRevoked(t *testing.T) {
	t.Parallel()
	address := mariadbtest.Database(t)
	admin := openMariaDB(t, address, nil)
	name, as := plainUser(t, admin, address, func(name, password string) []string {
		return []string{fmt.Sprintf("CREATE USER %s IDENTIFIED BY '%s'", name, password)}
	}, func(name string) []string { return []string{"DROP USER " + name} })
	user, err := OpenMySQL(t.Context(), as, nil)
	revoked(t, admin, withTables(t, user, err, nil), name, "INSERT INTO guarded (n) VALUES (?)")
}

func TestSQLServerRevoked(t *testing.T) {
	t.Parallel()
	address := sqlservertest.Database(t)
	admin := openMSSQL(t, address, nil)
	name, as := plainUser(t, admin, address, func(name, password string) []string {
		return []string{fmt.Sprintf("CREATE LOGIN %s WITH PASSWORD = '%s'", name, password), fmt.Sprintf("CREATE USER %s FOR LOGIN %s", name, name)}
	}, func(name string) []string { return nil })
	user, err := OpenSQLServer(t.Context(), as, nil)
	revoked(t, admin, withTables(t, user, err, nil), name, "INSERT INTO guarded (n) VALUES (CAST(@p1 AS INT))")
}

// TestReadOnly makes the database refuse writes, as a file system does that is mounted again to be
// read only, while a service runs.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "x.db"))
	if err := execute(t.Context(), s.DB(), "CREATE TABLE guarded (n INT)"); err != nil {
		t.Fatal(err)
	}
	b := blamed(t, s)
	b.Do = func(ctx context.Context, statements string) error { return execute(ctx, s.writer, statements) }
	blame.Altered(t, b, []blame.Alteration{
		{Name: "read only", Statement: "INSERT INTO guarded (n) VALUES (?)", Broken: "PRAGMA query_only = on", Mended: "PRAGMA query_only = off"},
	})
}
