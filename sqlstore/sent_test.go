package sqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// recorder is a server that records what it is sent. A statement that writes changes so many rows, and
// one that reads has the rows of answers, or none.
type recorder struct {
	dialect dialect
	changes sqldriver.RowsAffected
	answers map[string][]sqldriver.Value

	mu    sync.Mutex
	texts []string
}

func (r *recorder) record(query string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if query = strings.TrimSpace(query); !slices.Contains(r.texts, query) {
		r.texts = append(r.texts, query)
	}
}

func (r *recorder) Connect(context.Context) (sqldriver.Conn, error) { return recording{r}, nil }
func (r *recorder) Driver() sqldriver.Driver                        { return nil }

// recording is a connection to a recorder.
type recording struct{ *recorder }

func (recording) Begin() (sqldriver.Tx, error)                { return recordedTx{}, nil }
func (recording) Prepare(string) (sqldriver.Stmt, error)      { return nil, sqldriver.ErrSkip }
func (recording) Close() error                                { return nil }
func (recording) Ping(context.Context) error                  { return nil }
func (recording) ResetSession(context.Context) error          { return nil }
func (recording) IsValid() bool                               { return true }
func (recording) CheckNamedValue(*sqldriver.NamedValue) error { return nil }

func (recording) BeginTx(context.Context, sqldriver.TxOptions) (sqldriver.Tx, error) {
	return recordedTx{}, nil
}

func (c recording) ExecContext(_ context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	if query != mssqlCopy { // the driver makes the statement
		c.record(query)
	}
	return c.changes, nil
}

func (c recording) QueryContext(_ context.Context, query string, _ []sqldriver.NamedValue) (sqldriver.Rows, error) {
	c.record(query)
	return &recordedRows{row: c.answers[query]}, nil
}

func (c recording) PrepareContext(_ context.Context, query string) (sqldriver.Stmt, error) {
	return recordedStmt{c, query}, nil
}

type recordedStmt struct {
	conn recording
	text string
}

func (recordedStmt) Close() error                                     { return nil }
func (recordedStmt) NumInput() int                                    { return -1 }
func (recordedStmt) Exec([]sqldriver.Value) (sqldriver.Result, error) { return nil, sqldriver.ErrSkip }
func (recordedStmt) Query([]sqldriver.Value) (sqldriver.Rows, error)  { return nil, sqldriver.ErrSkip }

func (s recordedStmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	return s.conn.ExecContext(ctx, s.text, args)
}

func (s recordedStmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return s.conn.QueryContext(ctx, s.text, args)
}

type recordedTx struct{}

func (recordedTx) Commit() error   { return nil }
func (recordedTx) Rollback() error { return nil }

type recordedRows struct{ row []sqldriver.Value }

func (r *recordedRows) Columns() []string                               { return make([]string, len(r.row)) }
func (*recordedRows) Close() error                                      { return nil }
func (*recordedRows) ColumnTypeDatabaseTypeName(int) string             { return "" }
func (*recordedRows) ColumnTypeNullable(int) (_, _ bool)                { return false, false }
func (*recordedRows) ColumnTypePrecisionScale(int) (_, _ int64, _ bool) { return 0, 0, false }
func (*recordedRows) ColumnTypeScanType(int) reflect.Type               { return reflect.TypeFor[any]() }

func (r *recordedRows) Next(dest []sqldriver.Value) error {
	if r.row == nil {
		return io.EOF
	}
	copy(dest, r.row)
	r.row = nil
	return nil
}

// sent returns every statement that a store sends to a server: what a recorder is sent, and the
// statements that a recorder cannot bring the store to.
func sent(t *testing.T, d dialect, answers map[string][]sqldriver.Value) []string {
	t.Helper()
	var texts []string
	for _, changes := range []sqldriver.RowsAffected{0, 1, bulkRows} {
		r := &recorder{dialect: d, changes: changes, answers: answers}
		use(t, r)
		texts = append(texts, r.texts...)
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

// partial are the parts of statements that a filter puts together.
var partial = []string{"MarkRedrive", "Discard", "OfGroup", "IdIn", "StatusIn", "ErrorContains", "KeyIs"}

// use calls every method of a store. That the recorder has no rows makes some of them fail.
func use(t *testing.T, r *recorder) {
	c, err := (*ServerConfig)(nil).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	connector := sqldriver.Connector(r)
	if _, ok := r.dialect.(mysqlDialect); ok {
		connector = mysqlConnector{r}
	}
	s, err := openServer(t.Context(), "recorder", connector, r.dialect, c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, l, now := t.Context(), s.Leases(), time.Now()
	lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}
	l.Acquire(ctx, group, "0", "a", time.Second, 0)
	l.Renew(ctx, lease, time.Second)
	l.Release(ctx, lease)
	l.List(ctx, group)
	s.Claim(ctx, lease, "1")
	s.RecordAttempt(ctx, lease, at(1), driver.AttemptRecord{})
	s.Leave(ctx, lease)
	s.Read(ctx, group)
	s.Reset(ctx, group, "0", "1", at(1))
	s.Advance(ctx, lease, "1", at(1), nil)
	s.ReadDedup(ctx, group, "0")
	s.Settle(ctx, group, []int64{1}, []driver.DeadLetter{{ID: 2}})
	s.Parked(ctx, group, "0", "1", 0)
	s.Held(ctx, group, "0", nil)
	s.Due(ctx, group, "0", 1)
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
		Lease: lease, From: driver.Unset, To: at(9), DeadLetters: letters, SettleIncarnation: "1", Redriven: []int64{1},
		FailedRedrives: []driver.DeadLetter{{ID: 2}}, DedupSince: now, DedupForgotten: []string{"a"}, Dedup: []driver.DedupState{{Origin: "b"}},
	}
	s.Commit(ctx, step, func(ctx context.Context, tx *Tx) error {
		return tx.Insert(ctx, "dbo.t", []string{"a", "order"}, slices.Repeat([][]any{{"a", 1}}, bulkRows))
	})
	s.Commit(ctx, driver.Step{Lease: lease, From: at(9), To: at(9)}, func(context.Context, *Tx) error { return io.EOF })
}

// statementHead begins a literal of the source that is a statement or has one inside.
var statementHead = regexp.MustCompile(`(?m)^\s*(SELECT|INSERT|UPDATE|DELETE|IF|DECLARE|EXEC|WITH|MERGE|BEGIN|SET|CREATE|REPLACE|SAVEPOINT|RELEASE|ROLLBACK|LOAD|DO|KILL)\b`)

// place is where a literal of the source has something else in a statement.
var place = regexp.MustCompile("\\{[^}]*\\}|\\?|%[a-z]|@p\\d+|`?partition`?")

// mustHaveAll checks that no statement in the source of a dialect is missing among texts.
func mustHaveAll(t *testing.T, files string, texts []string) {
	t.Helper()
	all := strings.Join(texts, "\n")
	names, err := filepath.Glob(files + "*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, _ := strconv.Unquote(literal.Value)
			if text == mssqlCopy || text == mysqlLoading || !statementHead.MatchString(text) || !strings.Contains(strings.TrimSpace(text), " ") {
				return true
			}
			found++
			for _, part := range place.Split(text, -1) {
				if part = strings.TrimSpace(part); !strings.Contains(all, part) {
					t.Errorf("%s: a statement that is not checked: have use or sent (sent_test.go) bring it about: %s", name, fmt.Sprintf("%.300s", part))
				}
			}
			return true
		})
	}
	if found < 3 {
		t.Errorf("%d statements in %s*.go", found, files)
	}
}

// mssqlSent are the statements for SQL Server.
func mssqlSent(t *testing.T) []string {
	texts := sent(t, mssqlDialect{}, map[string][]sqldriver.Value{
		mssqlStatements.SchemaFound: {int64(1)},
		mssqlStatements.SchemaLock:  {int64(1)},
		mssqlStatements.Lock:        {int64(1)},
		mssqlGuard:                  {int64(0)},
		mssqlIntact:                 {int64(1), true},
	})
	r := &recorder{}
	db := sql.OpenDB(r)
	defer db.Close()
	_ = mssqlCheck(t.Context(), db) // the version is missing
	_, connector, _, err := mssqlServer("sqlserver://who:secret@host?database=db", nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(texts, r.texts...), connector.(*mssqlConnector).SessionInitSQL)
}

// mysqlSent are the statements for MySQL and MariaDB.
func mysqlSent(t *testing.T) []string {
	texts := sent(t, mysqlDialect{collation: "utf8mb4_0900_bin", load: true}, map[string][]sqldriver.Value{
		mysqlStatements.SchemaFound:  {int64(1)},
		mysqlStatements.SchemaLock:   {int64(1)},
		mysqlStatements.Lock:         {int64(1)},
		"SELECT @@warning_count = 0": {int64(1)},
	})
	r := &recorder{}
	db := sql.OpenDB(r)
	defer db.Close()
	_, _ = mysqlDialectOf(t.Context(), db) // the version is missing
	return append(texts, r.texts...)
}

// TestSentStatements: every statement in the source is among those that are checked elsewhere.
func TestSentStatements(t *testing.T) {
	mustHaveAll(t, "mssql", mssqlSent(t))
	mustHaveAll(t, "mysql", mysqlSent(t))
}
