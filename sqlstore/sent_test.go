package sqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/keyed"
	"github.com/sluice-go/sluice/internal/proof/sqlgrammar"
)

// sent returns every statement that a store sends to a server: what a recorder is sent, and the
// statements that a recorder cannot bring the store to.
func sent(t *testing.T, d dialect, answers map[string][]sqldriver.Value) []string {
	t.Helper()
	var texts []string
	for _, changes := range []sqldriver.RowsAffected{0, 1, bulkRows} {
		r := &sqlgrammar.Recorder{Changes: changes, Answers: answers, Ignored: mssqlCopy}
		use(t, d, r)
		texts = append(texts, r.Texts()...)
	}
	v := reflect.ValueOf(d.statements()).Elem()
	for i := range v.NumField() {
		if text := strings.TrimSpace(v.Field(i).String()); text != "" && !slices.Contains(partial, v.Type().Field(i).Name) {
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// partial are the parts of statements that a filter, or a migration, puts together.
var partial = []string{"SchemaStep", "RenewAll", "MarkRedrive", "Discard", "OfGroup", "IdIn", "StatusIn", "ErrorContains", "KeyIs"}

// use calls every method of a store. That the recorder has no rows makes some of them fail.
func use(t *testing.T, d dialect, r *sqlgrammar.Recorder) {
	c, err := (*ServerConfig)(nil).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	connector := sqldriver.Connector(r)
	if _, ok := d.(mysqlDialect); ok {
		connector = mysqlConnector{r}
	}
	s, err := openServer(t.Context(), "recorder", connector, d, c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, l, now := t.Context(), s.Leases(), time.Now()
	lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}
	l.Acquire(ctx, group, "0", "a", time.Second, 0)
	l.Renew(ctx, lease, time.Second)
	l.RenewAll(ctx, []driver.Lease{lease, {Group: group, Partition: "1", Owner: "a", Epoch: 2}}, time.Second)
	l.Release(ctx, lease)
	l.List(ctx, group)
	s.Claim(ctx, lease, "1")
	s.RecordAttempt(ctx, lease, positionAt(1), driver.AttemptRecord{})
	s.Leave(ctx, lease)
	s.Read(ctx, group)
	s.Reset(ctx, group, "0", "1", positionAt(1), "set")
	s.Advance(ctx, lease, "1", positionAt(1), nil)
	s.ReadDedup(ctx, group, "0")
	s.Settle(ctx, group, []int64{1}, []driver.DeadLetter{{ID: 2}})
	s.Parked(ctx, group, "0", "1", 0)
	s.SetAside(ctx, group, "0", "1/2", []driver.ParkedEvent{{ID: 1}})
	s.Held(ctx, group, "0", nil)
	s.Due(ctx, group, "0", 1)
	s.DuePartitions(ctx, group, []string{"0", "1"})
	first, last := int64(1), int64(9)
	for _, filter := range []driver.DeadLetterFilter{{}, {
		IDs: []int64{1}, Partition: "0", Status: []driver.DeadLetterStatus{driver.StatusDead}, Key: "k", ErrorContains: "x",
		FailedSince: now, FailedBefore: now, FirstSequence: &first, LastSequence: &last, AfterID: 1, Limit: 5,
	}} {
		s.List(ctx, group, filter)
		s.Count(ctx, group, filter)
		s.Redrive(ctx, group, filter, now)
		s.Discard(ctx, group, filter)
	}
	s.Get(ctx, group, 1)
	letters := make([]driver.DeadLetter, parkRows)
	s.Park(ctx, letters)
	s.Park(ctx, letters[:1])
	step := driver.Step{
		Lease: lease, From: driver.Unset, To: positionAt(9), DeadLetters: letters, SettleIncarnation: "1", Redriven: []int64{1},
		FailedRedrives: []driver.DeadLetter{{ID: 2}}, DedupSince: now, DedupForgotten: []string{"a"}, Dedup: []driver.DedupState{{Origin: "b"}},
	}
	s.Commit(ctx, step, func(ctx context.Context, tx *Tx) error {
		return tx.Insert(ctx, "dbo.t", []string{"a", "order"}, slices.Repeat([][]any{{"a", 1}}, bulkRows))
	})
	for _, k := range sentUpserts {
		s.Commit(ctx, driver.Step{Lease: lease, From: positionAt(9), To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
			return tx.Upsert(ctx, "dbo.t", sentColumns, sentRows, k)
		})
	}
	s.Commit(ctx, driver.Step{Lease: lease, From: positionAt(9), To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
		tx.ExecContext(ctx, "SELECT 1")
		nested(ctx, tx.DB(), false, func(*sql.Tx) error { return nil })
		return io.EOF
	})
}

// What use writes by key.
var (
	deletesSecond = func(row int) bool { return row == 1 }
	sentUpserts   = []driver.Keyed{
		{Key: []string{"a"}, Delete: deletesSecond},
		{Key: []string{"a"}, OnConflict: driver.Skip, Delete: deletesSecond},
		{Key: []string{"a"}, OnConflict: driver.Newer, Version: "v", Delete: deletesSecond},
	}
	sentColumns = []string{"a", "v", "order"}
	sentRows    = [][]any{{"a", 1, 1}, {"b", 1, 1}}
)

// withUpserts adds the answers that a write by key needs.
func withUpserts(t *testing.T, d dialect, words stagingWords, unique string, answers map[string][]sqldriver.Value) map[string][]sqldriver.Value {
	t.Helper()
	answers[unique] = []sqldriver.Value{"primary", "a", "", false}
	for _, k := range sentUpserts {
		w, err := keyed.New("dbo.t", sentColumns, sentRows, k)
		if err != nil {
			t.Fatal(err)
		}
		answers[newStaged(&Tx{dialect: d}, w, words).findSQL()] = []sqldriver.Value{int64(1), int64(0), int64(1), int64(1), int64(0)}
	}
	return answers
}

// mssqlSent are the statements for SQL Server.
func mssqlSent(t *testing.T) []string {
	texts := sent(t, mssqlDialect{}, withUpserts(t, mssqlDialect{}, mssqlStaging, mssqlUnique, map[string][]sqldriver.Value{
		mssqlStatements.SchemaFound: {int64(1)},
		mssqlStatements.SchemaLock:  {int64(1)},
		mssqlStatements.Lock:        {int64(1), int64(0)},
		mssqlIntact:                 {int64(1), true},
	}))
	r := &sqlgrammar.Recorder{}
	db := sql.OpenDB(r)
	defer db.Close()
	_ = mssqlCheck(t.Context(), db) // the version is missing
	letters := slices.Repeat([][]any{make([]any, len(strings.Split(mssqlParked, ", ")))}, parkRows)
	if _, err := (mssqlDialect{plain: true}).park(t.Context(), db, letters); err != nil {
		t.Fatal(err)
	}
	_, connector, _, err := mssqlServer("sqlserver://who:secret@host?database=db", nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(texts, r.Texts()...), connector.(*mssqlConnector).SessionInitSQL)
}

// mysqlSent are the statements for MySQL and MariaDB.
func mysqlSent(t *testing.T) []string {
	d := mysqlDialect{collation: "utf8mb4_0900_bin", load: true}
	texts := sent(t, d, withUpserts(t, d, mysqlStaging, mysqlUnique, map[string][]sqldriver.Value{
		mysqlStatements.SchemaFound:  {int64(1)},
		mysqlStatements.SchemaLock:   {int64(1)},
		mysqlStatements.Lock:         {int64(1)},
		"SELECT @@warning_count = 0": {int64(1)},
	}))
	r := &sqlgrammar.Recorder{}
	db := sql.OpenDB(r)
	defer db.Close()
	_, _ = mysqlDialectOf(t.Context(), db) // the version is missing
	return append(texts, r.Texts()...)
}

// TestSentStatements: every statement in the source is among those that are checked elsewhere.
func TestSentStatements(t *testing.T) {
	sqlgrammar.MustHaveAll(t, "mssql*.go", mssqlSent(t), mssqlCopy)
	sqlgrammar.MustHaveAll(t, "mysql*.go", mysqlSent(t), mysqlLoading)
}
