package sqlstore

import (
	"strings"
	"testing"
	"time"
)

// TestMySQLURLs: what a URL says, and what is wrong with one in words without its password.
func TestMySQLURLs(t *testing.T) {
	c, err := (*ServerConfig)(nil).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	mc, err := mysqlConfig("mariadb://who:p%40ss%2Fword@db.example/orders?tls=skip-verify&wait_timeout=5", c)
	if err != nil {
		t.Fatal(err)
	}
	if mc.User != "who" || mc.Passwd != "p@ss/word" || mc.Addr != "db.example:3306" || mc.DBName != "orders" || mc.Params["wait_timeout"] != "5" || mc.Params["innodb_lock_wait_timeout"] != "5" {
		t.Errorf("%s to %s as %s with %v", mc.DBName, mc.Addr, mc.User, mc.Params)
	}
	for address, want := range map[string]string{
		"mysql://who:secret@host:3306":            "names no database",
		"mysql://who:secret@host:port/db":         "cannot be read",
		"postgres://who:secret@host/db":           "cannot be read",
		"mysql://who:secret@host/db?timeout=long": "invalid duration",
		// The driver would execute SET password=secret.
		"mysql://who@host/db?password=secret":             "has the parameter password: write user and password before the host",
		"mysql://who@host/db?PASSWORD=secret":             "before the host",
		"mysql://who:secret@host/db?sslmode=require":      "has the parameter sslmode: write tls=true",
		"mysql://who:secret@host/db?strict=true":          "strict", // the driver would panic
		"mysql://who:12/secret@host/db":                   "special characters of the password as %XX",
		"mysql://who:secret@host/db#x":                    "cannot be read",
		"mysql://who:secret@host/db?tls_ca_file=no.pem":   "tls_ca_file: open no.pem: no such file or directory",
		"mysql://who:secret@host/db?tls_ca_file=mysql.go": "tls_ca_file: mysql.go has no certificate in PEM form",
	} {
		_, err := mysqlConfig(address, c)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want one line with %q and no password", address, err, want)
		}
	}
}

func TestServerConfig(t *testing.T) {
	for _, c := range []ServerConfig{{MaxConns: -1}, {LeaseFor: time.Millisecond}, {LockTimeout: time.Millisecond}} {
		if _, err := c.withDefaults(); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// TestMySQLEnds: statements that MySQL commits by itself, https://dev.mysql.com/doc/refman/8.4/en/implicit-commit.html.
func TestMySQLEnds(t *testing.T) {
	for _, query := range []string{
		"COMMIT", " commit work", "ROLLBACK", "rollback work", "BEGIN", "START TRANSACTION", "-- a comment\nCREATE TABLE t (n INT)",
		"/* a comment */ drop table t", "TRUNCATE t", "ALTER TABLE t ADD n INT", "SET autocommit = 1", "SET @@autocommit=1", "SET SESSION autocommit = 0", "SET @a = 1, @@local.autocommit := 0", "LOCK TABLES t WRITE",
		"# a comment\nRENAME TABLE a TO b", "GRANT ALL ON *.* TO a", "ANALYZE TABLE t", "/*!40000 ALTER TABLE t DISABLE KEYS */",
	} {
		if !(mysqlDialect{}).ends(nil, query) {
			t.Errorf("%q does not end the transaction", query)
		}
	}
	for _, query := range []string{
		"INSERT INTO t VALUES ('COMMIT')", "UPDATE committed SET n = 1", "SELECT 1", "ROLLBACK TO SAVEPOINT a", "ROLLBACK WORK TO a", "SAVEPOINT a",
		"CREATE TEMPORARY TABLE t (n INT)", "DROP TEMPORARY TABLE t", "SET @a = 1", "SET @a = 'autocommit'", "CALL work()", "",
	} {
		if (mysqlDialect{}).ends(nil, query) {
			t.Errorf("%q ends the transaction", query)
		}
	}
}
