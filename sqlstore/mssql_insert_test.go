package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// TestSQLServerInsert: Insert quotes names, copies many rows, and writes each value as an INSERT
// does: it finds the row that violates a constraint, and no value is cut or lost without an error.
func TestSQLServerInsert(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	mssqlExec(t, s.DB(), `CREATE TABLE [large top] ([top] nvarchar(9) COLLATE Latin1_General_100_BIN2, n int CHECK (n < 5000), body varbinary(max), at datetime2(6), ok bit, f float DEFAULT 7, zone datetimeoffset(3),
		made datetime2 NOT NULL DEFAULT SYSUTCDATETIME(), word varchar(20), amount decimal(9, 2))`)
	at := time.Date(2026, 7, 1, 1, 2, 3, 4000, time.UTC)
	zone := time.Date(2026, 7, 1, 1, 2, 3, 4_000_000, time.FixedZone("", -8*3600))
	columns := []string{"top", "n", "body", "at", "ok", "f", "word", "amount", "zone"}
	row := func(n int) []any { return []any{"é🙂", n, []byte{1, 0}, at, true, 1.5, nil, nil, zone} }
	rowsOf := func(count int, change func(i int, row []any)) [][]any {
		rows := make([][]any, count)
		for i := range rows {
			rows[i] = row(i)
			change(i, rows[i])
		}
		return rows
	}
	insert := func(rows [][]any) error {
		mssqlExec(t, s.DB(), "DELETE FROM [large top]")
		return inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error { return tx.Insert(ctx, "dbo.large top", columns, rows) })
	}
	for _, c := range []struct {
		what   string
		count  int
		change func(i int, row []any)
	}{
		{"one row", 1, func(int, []any) {}},
		{"few rows", 20, func(int, []any) {}},
		{"many rows", 1000, func(int, []any) {}},
		{"NULLs and empty values", 300, func(i int, row []any) {
			switch i % 3 {
			case 1:
				row[0], row[2] = "", []byte{}
			case 2:
				row[0], row[3], row[4], row[5] = nil, nil, nil, nil
			}
		}},
		{"NULL in a column with a default", 150, func(i int, row []any) { row[5] = nil }},
		{"types that are not copied", 150, func(i int, row []any) { row[6], row[7] = "wörd", "12.50" }},
	} {
		suite.NoError(t, c.what, insert(rowsOf(c.count, c.change)))
		got, err := collect(t.Context(), s.reader, func(r *[10]any) []any {
			list := make([]any, len(r))
			for i := range r {
				list[i] = &r[i]
			}
			return list
		}, "SELECT [top], n, body, at, ok, f, word, CAST(amount AS float), zone, made FROM [large top] ORDER BY n", nil)
		if err != nil || len(got) != c.count {
			t.Errorf("%s: %d rows, %v; want %d", c.what, len(got), err, c.count)
			continue
		}
		for i, want := range rowsOf(c.count, c.change) {
			want[1] = int64(i)
			if want[7] != nil {
				want[7] = 12.5
			}
			for j, v := range got[i][:9] {
				got, ok1 := v.(time.Time)
				want1, ok2 := want[j].(time.Time)
				if ok1 && ok2 && got.Equal(want1) {
					continue
				}
				if fmt.Sprintf("%T %v", v, v) != fmt.Sprintf("%T %v", want[j], want[j]) {
					t.Fatalf("%s: row %d has %T %v as %s, want %T %v", c.what, i, v, v, columns[j], want[j], want[j])
				}
			}
		}
	}
	for what, change := range map[string]func(i int, row []any){
		"value that violates a constraint": func(i int, row []any) { row[1] = map[bool]int{true: 6000, false: i}[i == 217] },
		"integer that is too large":        func(i int, row []any) { row[1] = map[bool]int{true: 1 << 40, false: i}[i == 217] },
		"text that is too long":            func(i int, row []any) { row[0] = map[bool]string{true: "0123456789", false: ""}[i == 217] },
	} {
		err := insert(rowsOf(300, change))
		if failed := (*driver.HandlerError)(nil); !errors.As(err, &failed) {
			t.Errorf("%s: %v; want the handler's failure", what, err)
		}
		if refused := (*RowError)(nil); what == "value that violates a constraint" && (!errors.As(err, &refused) || refused.Row != 217) {
			t.Errorf("%s: %v; want row 217", what, err)
		}
	}
	err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		return tx.Insert(ctx, "nowhere", columns, rowsOf(300, func(int, []any) {}))
	})
	mustNameStatement(t, "missing table", err)
}

// TestSQLServerCopyCutOff: a copy that fails on the client has left the server waiting for rows.
// The transaction is over, and nothing of it is written, whether the handler goes on or not.
func TestSQLServerCopyCutOff(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	for bad := range 3 {
		rows := [][]any{{int64(1)}, {int64(2)}, {int64(3)}}
		rows[bad][0] = "no number"
		err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
			suite.NoError(t, "put", mssqlPut(ctx, tx, "before"))
			if _, err := tx.ExecContext(ctx, mssqlCopy, mssqlBulk{"[parents]", []string{"id"}, rows}); err == nil {
				t.Error("a text was copied into a bigint")
			}
			if err := mssqlPut(ctx, tx, "after"); err == nil {
				t.Error("a statement was executed in the middle of a copy")
			}
			return nil
		})
		mustNotBlame(t, fmt.Sprintf("copy whose row %d fails", bad), err)
		mustWriteNothing(t, fmt.Sprintf("copy whose row %d fails", bad), s)
	}
	suite.NoError(t, "the next step", inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error { return mssqlPut(ctx, tx, "x") }))
}

// TestSQLServerIdentityGaps: the ids of dead letters have gaps, after a step that was not committed
// and a server that has lost those it had in reserve, and go on above them.
func TestSQLServerIdentityGaps(t *testing.T) {
	s := openMSSQL(t, sqlservertest.Database(t), nil)
	letter := func(sequence int64) driver.DeadLetter {
		return driver.DeadLetter{Group: group, Incarnation: "1", Event: driver.Event{Partition: "0", Sequence: sequence}, Status: driver.StatusDead}
	}
	suite.NoError(t, "park", s.Park(t.Context(), []driver.DeadLetter{letter(1)}))
	for range 3 {
		tx, err := s.DB().BeginTx(t.Context(), nil)
		suite.NoError(t, "begin", err)
		mssqlExec(t, tx, `INSERT INTO sluice_dead_letters (group_key, namespace, topic, consumer_group, incarnation, partition, sequence_number, event_offset, enqueued_at,
			failed_at, error, attempts, status, partition_key, message_id, correlation_id, content_type, has_body)
			SELECT group_key, namespace, topic, consumer_group, incarnation, partition, 99, event_offset, enqueued_at,
			failed_at, error, attempts, status, partition_key, message_id, correlation_id, content_type, has_body FROM sluice_dead_letters`)
		suite.NoError(t, "roll back", tx.Rollback())
	}
	suite.NoError(t, "park", s.Park(t.Context(), []driver.DeadLetter{letter(2), letter(3)}))
	list, err := s.List(t.Context(), group, driver.DeadLetterFilter{})
	if err != nil || len(list) != 3 || list[1].ID < list[0].ID+4 || list[2].ID <= list[1].ID {
		t.Fatalf("%v, %v; want ids 1, 5, 6", list, err)
	}
	after, err := s.List(t.Context(), group, driver.DeadLetterFilter{AfterID: list[0].ID, Limit: 1})
	if err != nil || len(after) != 1 || after[0].Event.Sequence != 2 {
		t.Errorf("after the gap: %v, %v", after, err)
	}
	if n, err := s.Redrive(t.Context(), group, driver.DeadLetterFilter{IDs: []int64{list[0].ID + 1, list[2].ID}}, time.Time{}); n != 1 || err != nil {
		t.Errorf("redriven %d, %v; want one, as the other id is in the gap", n, err)
	}
}
