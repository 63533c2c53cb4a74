package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf16"

	mssql "github.com/microsoft/go-mssqldb"
)

// bulkRows is from how many rows on a bulk copy, which has four round trips more than an INSERT, is
// worth them.
const bulkRows = 100

// mssqlBulk is what [mssqlConn] copies, as the argument of a statement without a text of its own.
type mssqlBulk struct {
	table   string
	columns []string
	rows    [][]any
}

// mssqlCopy is the text of such a statement.
const mssqlCopy = "INSERT BULK"

// bulk copies rows, and reports whether it has; an INSERT must write what it leaves. The driver would
// write wrong values without an error where a value does not fit its column (it cuts integers, and writes
// texts of another encoding): such rows are left.
func (d mssqlDialect) bulk(ctx context.Context, q querier, table string, columns []string, rows [][]any) (done bool, err error) {
	if d.plain || len(rows) < bulkRows || strings.HasPrefix(table, "#") {
		return false, nil
	}
	quoted := quoteTable(mssqlDialect{}, table)
	of, err := mssqlColumnsOf(ctx, q, quoted)
	if err != nil {
		return true, err
	}
	return mssqlCopied(ctx, q, quoted, of, columns, rows)
}

// mssqlColumnsOf returns the columns of a table by name.
func mssqlColumnsOf(ctx context.Context, q querier, quoted string) (map[string]mssqlColumn, error) {
	found, err := collect(ctx, q, func(c *mssqlColumn) []any {
		return []any{&c.name, &c.kind, &c.size, &c.scale, &c.generated, &c.defaulted}
	}, mssqlColumns, []any{quoted})
	of := make(map[string]mssqlColumn)
	for _, c := range found {
		of[c.name] = c
	}
	return of, err
}

// mssqlCopied copies rows if their columns, which of has, hold them.
func mssqlCopied(ctx context.Context, q querier, quoted string, of map[string]mssqlColumn, columns []string, rows [][]any) (done bool, err error) {
	for i, name := range columns {
		c, ok := of[name]
		if !ok || c.generated {
			return false, nil
		}
		for _, row := range rows {
			if !c.holds(row[i]) {
				return false, nil
			}
		}
	}
	result, err := q.ExecContext(ctx, mssqlCopy, mssqlBulk{quoted, columns, rows})
	if err == nil {
		err = allTaken(result, len(rows))
	}
	return true, err
}

// mssqlColumns has the columns of a table.
const mssqlColumns = `
	SELECT c.name, t.name, CAST(c.max_length AS int), CAST(c.scale AS int), CAST(CASE WHEN c.is_identity = 1 OR c.is_computed = 1 THEN 1 ELSE 0 END AS bit),
		CAST(CASE WHEN c.default_object_id <> 0 THEN 1 ELSE 0 END AS bit)
	FROM sys.columns AS c JOIN sys.types AS t ON t.user_type_id = c.system_type_id
	WHERE c.object_id = OBJECT_ID(@p1)`

// mssqlColumn is a column of a table.
type mssqlColumn struct {
	name, kind string
	size       int // bytes; -1: max
	scale      int // digits after the decimal point
	generated  bool
	defaulted  bool // it has a default, which a copy writes in place of NULL
}

// holds reports whether the driver copies a value into the column as an INSERT would write it.
func (c mssqlColumn) holds(value any) bool {
	switch v := value.(type) {
	case nil:
		return !c.defaulted
	case int:
		return c.holdsInt(int64(v))
	case int32:
		return c.holdsInt(int64(v))
	case int64:
		return c.holdsInt(v)
	case bool:
		return c.kind == "bit"
	case float64:
		return c.kind == "float" && c.size == 8
	case string:
		return c.kind == "nvarchar" && (c.size < 0 || 2*len(v) <= c.size || 2*unitsOf(v) <= c.size)
	case []byte:
		return c.kind == "varbinary" && v != nil && (c.size < 0 || len(v) <= c.size)
	case time.Time:
		return v.Year() >= 1 && v.Year() <= 9999 && c.holdsTime(v)
	}
	return false
}

// unitsOf returns how many units of UTF-16 a text has: never more than bytes of UTF-8.
func unitsOf(text string) (n int) {
	for _, r := range text {
		n += utf16.RuneLen(r)
	}
	return n
}

// holdsTime reports whether a time has no digits that the column does not have: INSERT sends 100 ns, which
// the server rounds, and a copy cuts them.
func (c mssqlColumn) holdsTime(v time.Time) bool {
	switch c.kind {
	case "date":
		return true
	case "datetime2", "datetimeoffset":
		unit := int(math.Pow10(7 - c.scale)) // in 100 ns
		return v.Nanosecond()/100%unit == 0
	}
	return false
}

func (c mssqlColumn) holdsInt(v int64) bool {
	switch c.kind {
	case "bigint":
		return true
	case "int":
		return v >= math.MinInt32 && v <= math.MaxInt32
	case "smallint":
		return v >= math.MinInt16 && v <= math.MaxInt16
	}
	return false
}

// CheckNamedValue lets a bulk copy through, and leaves the others to the driver.
func (c *mssqlConn) CheckNamedValue(v *driver.NamedValue) error {
	if _, ok := v.Value.(mssqlBulk); ok {
		return nil
	}
	return c.Conn.CheckNamedValue(v)
}

// copy copies rows in one statement: all of them or, after an error of the server, none.
func (c *mssqlConn) copy(ctx context.Context, b mssqlBulk) (driver.Result, error) {
	defer c.bounded(ctx)()
	bulk := c.CreateBulkContext(ctx, b.table, b.columns)
	// As INSERT does. KeepNulls would write NULL into columns that are left out.
	bulk.Options = mssql.BulkOptions{CheckConstraints: true, FireTriggers: true}
	for i, row := range b.rows {
		if err := bulk.AddRow(row); err != nil {
			if answered := (mssql.Error{}); i > 0 || !errors.As(err, &answered) {
				c.cut() // the server waits for the rest of the rows
			}
			return nil, c.failure(ctx, fmt.Errorf("copy row %d: %w", i, mssqlErrorOf(err)))
		}
	}
	n, err := bulk.Done()
	return driver.RowsAffected(n), c.failure(ctx, err)
}

// cut ends a connection on which the server waits for more than a statement: whatever is sent on it next
// would be part of that. The server rolls its transaction back.
func (c *mssqlConn) cut() {
	c.broken = true
	c.socket.Close()
}

// IsValid implements [driver.Validator].
func (c *mssqlConn) IsValid() bool { return !c.broken && c.Conn.IsValid() }
