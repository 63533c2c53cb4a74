package sqlstore

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// loads are columns and values of which LOAD DATA could make something else than INSERT does.
var loads = []struct {
	declared string
	value    func(*rand.Rand) any
}{
	{"a LONGTEXT", oddText},
	{"b VARCHAR(200) CHARACTER SET latin1", func(r *rand.Rand) any { return strings.Repeat("é\t", r.IntN(9)) }},
	{"c BIGINT", func(r *rand.Rand) any { return int64(r.Uint64()) }},
	{"d BIGINT UNSIGNED", func(r *rand.Rand) any { return r.Uint64() }},
	{"e BIT(8)", func(r *rand.Rand) any { return r.IntN(256) }},
	{"f ENUM('9', '8', '1')", func(r *rand.Rand) any { return 1 + r.IntN(3) }},
	{"g YEAR", func(r *rand.Rand) any { return r.IntN(2) }},
	{"h BOOLEAN", func(r *rand.Rand) any { return r.IntN(2) == 0 }},
	{"i DOUBLE", func(r *rand.Rand) any { return math.Ldexp(r.NormFloat64(), r.IntN(600)-300) }},
	{"j DECIMAL(65,30)", func(r *rand.Rand) any { return fmt.Sprintf("%d.%d", int32(r.Uint64()), r.Uint64()) }},
	{"k LONGBLOB", func(r *rand.Rand) any { return oddBytes(r) }},
	{"l DATETIME(6)", func(r *rand.Rand) any { return time.UnixMicro(r.Int64N(1 << 51)) }},
	{"m JSON", func(r *rand.Rand) any { return fmt.Sprintf(`{"a": "\t\\%d"}`, r.IntN(9)) }},
	{"n VARCHAR(20)", func(r *rand.Rand) any { return r.IntN(1000) - 500 }},
	{"o VARCHAR(40)", func(r *rand.Rand) any { return time.UnixMilli(r.Int64N(9) * 43200_000) }},
	{"`partition` LONGTEXT", oddText},
}

func oddText(r *rand.Rand) any {
	if r.IntN(9) == 0 {
		return `\N`
	}
	var b strings.Builder
	for range r.IntN(20) {
		b.WriteString([]string{"\\", "\t", "\n", "\r", "\x00", "'", `"`, "N", "😀", "é", "\u2028", "x", " "}[r.IntN(13)])
	}
	return b.String()
}

func oddBytes(r *rand.Rand) []byte {
	b := make([]byte, r.IntN(20))
	for i := range b {
		b[i] = byte(r.Uint64())
	}
	return b
}

// TestMariaDBLoadsWhatInsertWrites: LOAD DATA writes the values that INSERT does, with NULL among
// them or not.
func TestMariaDBLoadsWhatInsertWrites(t *testing.T) {
	for _, nulls := range []bool{false, true} {
		t.Run(fmt.Sprintf("NULL %t", nulls), func(t *testing.T) { loadsWhatInsertWrites(t, nulls) })
	}
}

func loadsWhatInsertWrites(t *testing.T, nulls bool) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	var declared, columns []string
	for _, l := range loads {
		declared = append(declared, l.declared)
		columns = append(columns, strings.Trim(strings.Fields(l.declared)[0], "`"))
	}
	r := need.Rand(t)
	rows := make([][]any, loadMost+loadMost/2)
	for i := range rows {
		for _, l := range loads {
			value := l.value(r)
			if r.IntN(10) == 0 && nulls {
				value = nil
			}
			rows[i] = append(rows[i], value)
		}
	}
	sums := map[string]string{}
	for _, table := range []string{"loaded", "inserted"} {
		_, err := s.DB().ExecContext(t.Context(), "CREATE TABLE "+table+" ("+strings.Join(declared, ", ")+") DEFAULT CHARACTER SET utf8mb4")
		suite.NoError(t, "create table", err)
		d := s.dialect.(mysqlDialect)
		d.load = table == "loaded"
		suite.NoError(t, table, inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
			tx.dialect = d
			if !d.load {
				return tx.Insert(ctx, table, columns, rows)
			}
			done, err := d.bulk(ctx, tx.tx, table, nil, columns, rows)
			if !done {
				t.Error("the server did not take the rows as they are")
			}
			return err
		}))
		var name, sum string
		_, err = one(t.Context(), s.reader, "CHECKSUM TABLE "+table+" EXTENDED", nil, &name, &sum)
		suite.NoError(t, "checksum", err)
		sums[table] = sum
	}
	if sums["loaded"] != sums["inserted"] || sums["loaded"] == "0" {
		t.Errorf("checksums %v", sums)
	}
}

// TestMariaDBLoadRefused: LOAD DATA LOCAL makes warnings of errors. They are errors here, which name the
// row, and none of the rows is written.
func TestMariaDBLoadRefused(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	_, err := s.DB().ExecContext(t.Context(), "CREATE TABLE refusing (k BIGINT PRIMARY KEY, v VARCHAR(3) NOT NULL, n TINYINT, p BIGINT, at DATETIME NOT NULL, CHECK (n < 100), FOREIGN KEY (p) REFERENCES parents (id))")
	suite.NoError(t, "create table", err)
	const bad = 150
	for what, change := range map[string]func(row []any){
		"a duplicate":               func(row []any) { row[0] = 7 },
		"a text that is too long":   func(row []any) { row[1] = "long" },
		"NULL":                      func(row []any) { row[1] = nil },
		"a number that is too high": func(row []any) { row[2] = 1000 },
		"a violated check":          func(row []any) { row[2] = 100 },
		"a missing parent":          func(row []any) { row[3] = 1 },
		"NULL for a time":           func(row []any) { row[4] = nil },
	} {
		rows := make([][]any, 300)
		for i := range rows {
			rows[i] = []any{i, "abc", 1, nil, time.Unix(int64(1+i), 0)}
		}
		change(rows[bad])
		columns := []string{"k", "v", "n", "p", "at"}
		err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
			done, err := tx.dialect.bulk(ctx, tx.tx, "refusing", nil, columns, rows)
			var n int
			if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM refusing").Scan(&n); done || err != nil || n != 0 {
				t.Errorf("%s: loaded %t, %d rows, %v; want none", what, done, n, err)
			}
			if err != nil {
				return err
			}
			return tx.Insert(ctx, "refusing", columns, rows)
		})
		if row, ok := errors.AsType[*RowError](err); !ok || row.Row != bad {
			t.Errorf("%s: %v; want a RowError of row %d", what, err, bad)
		}
	}
	err = inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		return tx.Insert(ctx, "nowhere", []string{"k"}, make300())
	})
	if err == nil || !strings.Contains(err.Error(), "nowhere") || !strings.Contains(err.Error(), "create what is missing") {
		t.Errorf("a missing table: %v", err)
	}
}

// TestMariaDBLoadTruncates: the driver's parameter timeTruncate holds for LOAD DATA too.
func TestMariaDBLoadTruncates(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t)+"?timeTruncate=1s", nil)
	suite.NoError(t, "create table", execute(t.Context(), s.DB(), "CREATE TABLE times (at DATETIME(6), text VARCHAR(40))"))
	instant := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	for _, n := range []int{1, loadRows} {
		suite.NoError(t, "insert", inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
			return tx.Insert(ctx, "times", []string{"at", "text"}, slices.Repeat([][]any{{instant, instant}}, n))
		}))
	}
	var kinds, rows int
	if _, err := one(t.Context(), s.reader, "SELECT COUNT(DISTINCT at, text), COUNT(*) FROM times WHERE at = '2026-01-02 03:04:05'", nil, &kinds, &rows); err != nil || kinds != 1 || rows != 1+loadRows {
		t.Errorf("%d kinds of %d rows, %v; want 1 of %d", kinds, rows, err, 1+loadRows)
	}
}

// TestMariaDBLoadsNull: a column that is NOT NULL takes NULL from LOAD DATA only if it does from INSERT, as
// MariaDB's TIMESTAMP does.
func TestMariaDBLoadsNull(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	for i, kind := range []string{"TIMESTAMP", "DATETIME", "BIGINT", "TEXT", "BLOB", "ENUM('a')", "BIT(1)", "JSON"} {
		table := fmt.Sprint("no_nulls_", i)
		suite.NoError(t, "create table", execute(t.Context(), s.DB(), "CREATE TABLE "+table+" (v "+kind+" NOT NULL)"))
		refused := map[int]bool{}
		for _, rows := range []int{1, loadRows} {
			err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
				return tx.Insert(ctx, table, []string{"v"}, slices.Repeat([][]any{{nil}}, rows))
			})
			row, named := errors.AsType[*RowError](err)
			if refused[rows] = named; err != nil && (!named || row.Row != 0) {
				t.Errorf("NULL for %d of %s: %v", rows, kind, err)
			}
		}
		if refused[1] != refused[loadRows] || !refused[1] && kind != "TIMESTAMP" {
			t.Errorf("NULL for %s: INSERT refuses it: %t, LOAD DATA: %t", kind, refused[1], refused[loadRows])
		}
	}
}

// TestMariaDBLoadUndone: a table without transactions keeps what LOAD DATA has written. The rows are not
// inserted a second time.
func TestMariaDBLoadUndone(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	rows := make300()
	rows[299] = []any{299.5} // a note: it is rounded
	for i := range 299 {
		rows[i] = []any{float64(i)}
	}
	for engine, kept := range map[string]bool{"InnoDB": false, "MEMORY": true, "MyISAM": true} {
		_, err := s.DB().ExecContext(t.Context(), "CREATE TABLE in_"+engine+" (k DECIMAL(10,0)) ENGINE = "+engine)
		suite.NoError(t, "create table", err)
		for _, table := range []string{"in_", "temporary_"} {
			table += engine
			err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
				if _, err := tx.ExecContext(ctx, "CREATE TEMPORARY TABLE temporary_"+engine+" (k DECIMAL(10,0)) ENGINE = "+engine); err != nil {
					return err
				}
				defer tx.ExecContext(ctx, "DROP TEMPORARY TABLE temporary_"+engine)
				return tx.Insert(ctx, table, []string{"k"}, rows)
			})
			if refused := err != nil && strings.Contains(err.Error(), "ENGINE = InnoDB"); refused != kept || err != nil && !refused {
				t.Errorf("%s: %v; want an error %t", table, err, kept)
			}
		}
	}
}

func make300() [][]any {
	rows := make([][]any, 300)
	for i := range rows {
		rows[i] = []any{i}
	}
	return rows
}

// TestMariaDBLoadForbidden: where the server forbids LOAD DATA LOCAL, rows are inserted.
func TestMariaDBLoadForbidden(t *testing.T) {
	address := mariadbtest.Database(t)
	before := openMariaDB(t, address, nil)
	_, err := before.DB().ExecContext(t.Context(), "CREATE TABLE numbers (k BIGINT)")
	suite.NoError(t, "create table", err)
	allow := func(value string) {
		_, err := before.DB().ExecContext(context.WithoutCancel(t.Context()), "SET GLOBAL local_infile = "+value)
		suite.NoError(t, "set local_infile", err)
	}
	allow("OFF")
	defer allow("ON")
	after := openMariaDB(t, address, nil)
	if !before.dialect.(mysqlDialect).load || after.dialect.(mysqlDialect).load {
		t.Error("the server was not asked whether it takes LOAD DATA LOCAL")
	}
	for i, s := range []*Store{before, after} {
		lease := driver.Lease{Group: group, Partition: fmt.Sprint(i), Owner: "a", Epoch: 1}
		_, err := s.Claim(t.Context(), lease, "1")
		suite.NoError(t, "claim", err)
		err = s.Commit(t.Context(), driver.Step{Lease: lease, From: driver.Unset, To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
			return tx.Insert(ctx, "numbers", []string{"k"}, make300())
		})
		suite.NoError(t, "commit", err)
	}
	var n int
	if _, err := one(t.Context(), before.reader, "SELECT COUNT(*) FROM numbers", nil, &n); err != nil || n != 600 {
		t.Errorf("%d rows, %v; want 600", n, err)
	}
}

// TestMariaDBLoadRights: to load rows takes the right to insert them, and no other.
func TestMariaDBLoadRights(t *testing.T) {
	address := mariadbtest.Database(t)
	owner := openMariaDB(t, address, nil)
	u, err := url.Parse(address)
	suite.NoError(t, "read the URL", err)
	name, database := "sluice_"+strings.ToLower(cryptorand.Text())[:16], strings.TrimPrefix(u.Path, "/")
	user := "'" + name + "'@'%'"
	statements := []string{
		"CREATE TABLE numbers (k BIGINT)", "CREATE USER " + user + " IDENTIFIED BY 'secret'", "GRANT INSERT ON " + database + ".numbers TO " + user,
		"GRANT SELECT ON " + database + ".sluice_schema TO " + user, "GRANT SELECT, INSERT, UPDATE, DELETE ON " + database + ".sluice_checkpoints TO " + user,
	}
	for _, statement := range statements {
		_, err := owner.DB().ExecContext(t.Context(), statement)
		suite.NoError(t, statement, err)
	}
	defer owner.DB().ExecContext(context.WithoutCancel(t.Context()), "DROP USER "+user)
	u.User = url.UserPassword(name, "secret")
	s, err := OpenMySQL(t.Context(), u.String(), nil)
	suite.NoError(t, "open", err)
	defer s.Close()
	lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}
	_, err = owner.Claim(t.Context(), lease, "1")
	suite.NoError(t, "claim", err)
	err = s.Commit(t.Context(), driver.Step{Lease: lease, From: driver.Unset, To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
		done, err := tx.dialect.bulk(ctx, tx.tx, "numbers", nil, []string{"k"}, make300())
		if !done {
			t.Error("the rows were not loaded")
		}
		return err
	})
	suite.NoError(t, "commit", err)
}

// TestMariaDBLoadBesideOthers: rows that LOAD DATA does not take are undone, and nothing that another
// goroutine of the handler writes meanwhile.
func TestMariaDBLoadBesideOthers(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	_, err := s.DB().ExecContext(t.Context(), "CREATE TABLE numbers (k DECIMAL(10,0))")
	suite.NoError(t, "create table", err)
	rows := make300()
	rows[299] = []any{"1.5"} // a note: it is rounded
	for i := range 299 {
		rows[i] = []any{fmt.Sprint(i)}
	}
	const others, rounds = 200, 20
	err = inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		var wait sync.WaitGroup
		wait.Go(func() {
			for i := range others {
				if _, err := tx.ExecContext(ctx, "INSERT INTO effects (`key`) VALUES (?)", fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			}
		})
		defer wait.Wait()
		for range rounds {
			if err := tx.Insert(ctx, "numbers", []string{"k"}, rows); err != nil {
				return err
			}
		}
		return nil
	})
	suite.NoError(t, "step", err)
	var n, effects int
	if _, err := one(t.Context(), s.reader, "SELECT (SELECT COUNT(*) FROM numbers), (SELECT COUNT(*) FROM effects)", nil, &n, &effects); err != nil || n != 300*rounds || effects != others {
		t.Errorf("%d rows and %d of the other goroutine, %v; want %d and %d", n, effects, err, 300*rounds, others)
	}
}

// TestMariaDBParkIsOneStatement counts what the server executes for many dead letters.
func TestMariaDBParkIsOneStatement(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	inserts := func() (n int) {
		var name string
		_, err := one(t.Context(), s.reader, "SHOW GLOBAL STATUS LIKE 'Com_insert'", nil, &name, &n)
		suite.NoError(t, "status", err)
		return n
	}
	before := inserts()
	list := make([]driver.DeadLetter, 300)
	for i := range list {
		list[i] = driver.DeadLetter{Group: group, Incarnation: "1", FailedAt: time.Now(), Status: driver.StatusDead, Event: driver.Event{Partition: "0", Sequence: int64(i), Enqueued: time.Now()}}
	}
	suite.NoError(t, "park", s.Park(t.Context(), list))
	if n := inserts() - before; n != 1 {
		t.Errorf("300 dead letters take %d statements; want 1", n)
	}
	counts, err := s.Count(t.Context(), group, driver.DeadLetterFilter{})
	if err != nil || len(counts) != 1 || counts[0].Count != 300 {
		t.Errorf("%v, %v; want 300 dead letters", counts, err)
	}
}
