package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/tables"
)

// TestSQLServerURLs: what a URL says, and what is wrong with one in words without its password.
func TestSQLServerURLs(t *testing.T) {
	c, err := (*ServerConfig)(nil).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	params, err := mssqlParams("sqlserver://who:p%40ss%2Fword@db.example:1533?database=orders&encrypt=true&connection+timeout=5", c)
	if err != nil {
		t.Fatal(err)
	}
	if params.User != "who" || params.Password != "p@ss/word" || params.Host != "db.example" || params.Port != 1533 || params.Database != "orders" || params.ConnTimeout != 0 || params.DisableRetry {
		t.Errorf("%s to %s:%d as %s; %v, %t", params.Database, params.Host, params.Port, params.User, params.ConnTimeout, params.DisableRetry)
	}
	for address, want := range map[string]string{
		"sqlserver://who:secret@host:1433":                      "names no database",
		"sqlserver://who:secret@host:port?database=db":          "cannot be read",
		"postgres://who:secret@host/db":                         "cannot be read",
		"server=host;user id=who;password=secret;database=db":   "cannot be read",
		"sqlserver://host?database=db":                          "names no user",
		"sqlserver://who:secret@host?database=db&encrypt=maybe": "invalid encrypt",
		"sqlserver://who:secret@host?database=db&encypt=true":   `parameter "encypt" is unknown`,
		// The driver would take the password's end for the host's instance, and show it.
		"sqlserver://who:12/secret@host?database=db": "special characters of the password as %XX",
		"sqlserver://who:12#secret@host?database=db": "special characters of the password as %XX",
		"sqlserver://who:12?secret@host?database=db": "special characters of the password as %XX",
	} {
		_, err := mssqlParams(address, c)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want one line with %q and no password", address, err, want)
		}
	}
	c.AccessToken = func(context.Context) (string, error) { return "token", nil }
	if _, err := mssqlParams("sqlserver://host?database=db&encrypt=true", c); err != nil {
		t.Errorf("with an access token: %v", err)
	}
	if _, err := mssqlParams("sqlserver://host?database=db", c); err == nil || !strings.Contains(err.Error(), "add encrypt=true") {
		t.Errorf("with an access token and without TLS: %v", err)
	}
	if _, err := mssqlParams("sqlserver://host?database=db&encrypt=true&TrustServerCertificate=true", c); err == nil || !strings.Contains(err.Error(), "remove TrustServerCertificate") {
		t.Errorf("with an access token, and a certificate that is not checked: %v", err)
	}
}

// TestSQLServerNames: errors name the port and the instance of a server, unless they are the usual
// ones.
func TestSQLServerNames(t *testing.T) {
	for address, want := range map[string]string{
		"sqlserver://who:secret@db.example?database=orders":            "orders on db.example",
		"sqlserver://who:secret@db.example:1433?database=orders":       "orders on db.example",
		"sqlserver://who:secret@db.example:1533?database=orders":       "orders on db.example:1533",
		"sqlserver://who:secret@[::1]:1533?database=orders":            "orders on [::1]:1533",
		"sqlserver://who:secret@db.example/SQLEXPRESS?database=orders": `orders on db.example\SQLEXPRESS`,
	} {
		name, _, _, err := mssqlServer(address, nil)
		if err != nil || name != want {
			t.Errorf("%s: %q, %v; want %q", address, name, err, want)
		}
	}
}

// TestSQLServerHints: an error that a user meets at the start says what to do next.
func TestSQLServerHints(t *testing.T) {
	refused := fmt.Errorf("unable to open tcp connection: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")})
	for _, c := range []struct {
		err  error
		want string
	}{
		{refused, "check host and port, and whether the server runs"},
		{errors.New("TLS Handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"), "add certificate=FILE"},
		{mssql.Error{Number: 911}, "create the database, or correct its name"},
		{mssql.Error{Number: 4060}, "CREATE USER"},
		{mssql.Error{Number: 18456}, "check user and password"},
		{mssql.Error{Number: 40613}, "wait"},
		{mssql.Error{Number: 40615}, "add a rule for it to the server's firewall"},
		{mssql.Error{Number: 229}, "grant the right"},
		{mssql.Error{Number: 547}, ""},
		{errors.New("the handler's own"), ""},
	} {
		hint := (mssqlDialect{}).hint(mssqlErrorOf(c.err))
		if c.want == "" && hint != "" || !strings.Contains(hint, c.want) || strings.Contains(hint, "\n") {
			t.Errorf("%v: %q, want %q", c.err, hint, c.want)
		}
	}
}

// TestSQLServerColumns: texts in Sluice's tables are compared as they are, and as arguments are
// sent: a varchar would have its index scanned.
func TestSQLServerColumns(t *testing.T) {
	texts := 0
	for line := range strings.Lines(mssqlLeases1 + mssqlStore1) {
		column, _, _ := strings.Cut(line, "--")
		if strings.Contains(column, "char(") {
			texts++
			if !strings.Contains(column, " nvarchar(") || !strings.Contains(column, " COLLATE Latin1_General_100_BIN2") {
				t.Error(column)
			}
		}
	}
	if texts < 30 {
		t.Errorf("%d columns of texts", texts)
	}
}

// TestSQLServerEnds: statements that end the transaction or begin one inside it, anywhere in a
// batch.
func TestSQLServerEnds(t *testing.T) {
	for _, query := range []string{
		"COMMIT", " commit tran", "COMMIT WORK;", "ROLLBACK", "rollback transaction", "ROLLBACK TRAN;", "ROLLBACK WORK", "BEGIN TRAN", "begin\n transaction t",
		"BEGIN DISTRIBUTED TRAN", "-- a comment\nCOMMIT", "/* a /* nested */ comment */ COMMIT", "INSERT INTO t VALUES (1); COMMIT", "IF 1 = 1 ROLLBACK TRAN SELECT 1",
		"BEGIN TRY INSERT INTO t VALUES (1) END TRY BEGIN CATCH ROLLBACK END CATCH", "SELECT 'it''s'; COMMIT", "SELECT [a]]b] COMMIT",
	} {
		if !(mssqlDialect{}).ends(nil, query) {
			t.Errorf("%q does not end the transaction", query)
		}
	}
	for _, query := range []string{
		"INSERT INTO t VALUES ('COMMIT')", "INSERT INTO t VALUES (N'it''s COMMIT')", "UPDATE committed SET [commit] = 1", `UPDATE t SET "ROLLBACK" = 1`, "SELECT 1 -- COMMIT",
		"SELECT 1 /* COMMIT /* ROLLBACK */ COMMIT */", "ROLLBACK TRANSACTION a", "ROLLBACK TRAN @point", "ROLLBACK TRAN [COMMIT]", "SAVE TRAN a", "BEGIN SELECT 1 END", "BEGIN TRY SELECT 1 END TRY BEGIN CATCH THROW END CATCH",
		"EXEC commit_order", "SELECT @commit, #commit.n FROM #commit", "SET XACT_ABORT ON", "",
	} {
		if (mssqlDialect{}).ends(nil, query) {
			t.Errorf("%q ends the transaction", query)
		}
	}
}

// TestSQLServerFaults: what errors of the server and the driver mean, alone and beside others.
func TestSQLServerFaults(t *testing.T) {
	d := mssqlDialect{}
	for want, numbers := range map[fault][]int32{
		faultConstraint: {2601, 2627, 547, 515, 2628, 8152, 8115, 245, 3930},
		faultBusy:       {1205, 3960, 41302},
		faultRefused:    {1222, 9002, 1105, 3906, 4060, 40501, 49918, 49919, 49920, 10928, 10929, 40544},
		faultOpen:       {207, 208, 229, 2812, 18456, 102},
		faultBroken:     {596, 40197, 40613, 40143, 6005},
		faultStatement:  {50000, 51000, 3998},
	} {
		for _, number := range numbers {
			err := fmt.Errorf("handler: %w", mssqlErrorOf(mssql.Error{Number: number, Class: 16, Message: "text"}))
			if got := d.fault(err); got != want {
				t.Errorf("error %d: fault %d, want %d", number, got, want)
			}
		}
	}
	for want, errs := range map[fault][]error{
		faultBroken: {
			io.EOF, mssql.ServerError{}, mssql.StreamError{InnerError: errors.New("short")}, context.DeadlineExceeded,
			mssql.Error{Number: 4014, Class: 20}, mssql.Error{Number: 211, Class: 23}, mssql.Error{Number: mssqlBabelfish, Message: "terminating connection due to administrator command"},
		},
		faultRefused:   {mssql.Error{Number: 1, Class: 17}},
		faultBusy:      {mssql.Error{Number: 50000, All: []mssql.Error{{Number: 1205}, {Number: 50000}}}},
		faultOpen:      {mssql.Error{Number: mssqlBabelfish, Message: `relation "nowhere" does not exist`}},
		faultStatement: {context.Canceled, errors.New("the handler's own"), nil, mssql.Error{Number: 50000, Class: 16}},
	} {
		for _, err := range errs {
			if got := d.fault(err); got != want {
				t.Errorf("%v: fault %d, want %d", err, got, want)
			}
		}
	}
	err := mssqlErrorOf(mssql.Error{Number: 2, All: []mssql.Error{{Number: 1, Message: "one"}, {Number: 2, Message: "two"}}})
	if !errors.Is(fmt.Errorf("x: %w", err), err) || strings.Contains(err.Error(), "\n") || !errors.As(err, new(mssql.Error)) {
		t.Errorf("%q: want one line, which can be compared and is the driver's error", err)
	}
	if !d.duplicate(mssqlErrorOf(mssql.Error{Number: 2601})) || !d.duplicate(mssql.Error{Number: 2627}) || d.duplicate(mssql.Error{Number: 547}) || d.duplicate(nil) {
		t.Error("duplicates are 2601 and 2627")
	}
}

// TestSQLServerCopiedTimes: a copy leaves times to INSERT that it would cut, where INSERT rounds.
func TestSQLServerCopiedTimes(t *testing.T) {
	at := func(ns int) time.Time { return time.Date(2026, 7, 1, 1, 2, 3, ns, time.UTC) }
	for _, c := range []struct {
		kind  string
		scale int
		value time.Time
		want  bool
	}{
		{"datetime2", 7, at(123456789), true}, {"datetime2", 6, at(123456000), true}, {"datetime2", 6, at(123456099), true},
		{"datetime2", 6, at(123456700), false}, {"datetime2", 3, at(123000000), true}, {"datetimeoffset", 3, at(123900000), false},
		{"datetime2", 0, at(0), true}, {"datetime2", 0, at(500000000), false}, {"date", 0, at(500000000), true}, {"datetime", 3, at(0), false},
	} {
		if got := (mssqlColumn{tables.Column{Kind: c.kind, Scale: c.scale}}).holds(c.value); got != c.want {
			t.Errorf("%s(%d) of %v: copied %t, want %t", c.kind, c.scale, c.value, got, c.want)
		}
	}
}

// TestSQLServerStatements: each ? has a number of its own, also in statements that are put
// together; and nothing is left to replace.
func TestSQLServerStatements(t *testing.T) {
	for _, query := range []string{mssqlStatements.Move, mssqlStatements.Park, mssqlStatements.Due, mssqlStatements.StoreDedup, mssqlStatements.Future, mssqlStatements.AddLease} {
		if strings.ContainsAny(query, "?{}") {
			t.Errorf("not complete: %s", query)
		}
	}
	s := &Store{dialect: mssqlDialect{}, sql: mssqlStatements}
	cond, args := s.selected(group, driver.DeadLetterFilter{IDs: []int64{1}, Status: []driver.DeadLetterStatus{driver.StatusDead}, ErrorContains: "x", Limit: 5})
	query := s.dialect.rebind(s.sql.MarkRedrive + " " + cond)
	if n := 1 + len(args); !strings.Contains(query, fmt.Sprintf("@p%d ROWS ONLY", n)) || strings.Contains(query, fmt.Sprintf("@p%d", n+1)) || strings.Count(query, "@p1,") != 1 {
		t.Errorf("%d arguments: %s", n, query)
	}
	if !strings.Contains(query, "group_key = ") {
		t.Errorf("it selects groups that differ in trailing blanks too: %s", query)
	}
	early, err := (mssqlDialect{}).time(time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)).(mssqlTime).Value()
	if err != nil || early != "0001-01-01T00:00:00.000000" {
		t.Errorf("a time before all others is %v, %v", early, err)
	}
}
