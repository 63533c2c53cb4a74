package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/sluice-go/sluice/internal/tables"
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

// bulk copies rows, and reports whether it has; an INSERT must write what it leaves. The driver
// would write wrong values without an error where a value does not fit its column (it cuts
// integers, and writes texts of another encoding): such rows are left.
func (d mssqlDialect) bulk(ctx context.Context, q querier, table string, of []tables.Column, columns []string, rows [][]any) (done bool, err error) {
	if d.plain || len(rows) < bulkRows || strings.HasPrefix(table, "#") {
		return false, nil
	}
	return mssqlCopied(ctx, q, quoteTable(mssqlDialect{}, table), of, columns, rows)
}

// mssqlCopied copies rows if their columns, which of has, hold them.
func mssqlCopied(ctx context.Context, q querier, quoted string, of []tables.Column, columns []string, rows [][]any) (done bool, err error) {
	for i, name := range columns {
		at := slices.IndexFunc(of, func(c tables.Column) bool { return c.Name == name })
		if at < 0 || of[at].Generated {
			return false, nil
		}
		c := mssqlColumn{of[at]}
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

// mssqlColumn is a column of a table. A copy writes its default, if it has one, in place of NULL.
type mssqlColumn struct{ tables.Column }

// holds reports whether the driver copies a value into the column as an INSERT would write it.
func (c mssqlColumn) holds(value any) bool {
	switch v := value.(type) {
	case nil:
		return !c.Defaulted
	case int:
		return c.holdsInt(int64(v))
	case int32:
		return c.holdsInt(int64(v))
	case int64:
		return c.holdsInt(v)
	case bool:
		return c.Kind == "bit"
	case float64:
		return c.Kind == "float" && c.Size == 8
	case string:
		return c.Kind == "nvarchar" && (c.Size < 0 || 2*len(v) <= c.Size || 2*unitsOf(v) <= c.Size)
	case []byte:
		return c.Kind == "varbinary" && v != nil && (c.Size < 0 || len(v) <= c.Size)
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

// holdsTime reports whether a time has no digits that the column does not have: INSERT sends 100
// ns, which the server rounds, and a copy cuts them.
func (c mssqlColumn) holdsTime(v time.Time) bool {
	switch c.Kind {
	case "date":
		return true
	case "datetime2", "datetimeoffset":
		unit := int(math.Pow10(7 - c.Scale)) // in 100 ns
		return v.Nanosecond()/100%unit == 0
	}
	return false
}

func (c mssqlColumn) holdsInt(v int64) bool {
	switch c.Kind {
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

// cut ends a connection on which the server waits for more than a statement: whatever is sent on it
// next would be part of that. The server rolls its transaction back.
func (c *mssqlConn) cut() {
	c.broken = true
	c.socket.Close()
}

// IsValid implements [driver.Validator].
func (c *mssqlConn) IsValid() bool { return !c.broken && c.Conn.IsValid() }
