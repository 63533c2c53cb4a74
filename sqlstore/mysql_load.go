package sqlstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"

	"github.com/sluice-go/sluice/internal/tables"
)

const (
	// loadRows is from how many rows on LOAD DATA, which has three round trips more than an INSERT,
	// is worth them.
	loadRows = 100
	// loadMost is how many rows one LOAD DATA has at most: Galera may commit it after each 10,000
	// (wsrep_load_data_splitting).
	loadMost = 5000
)

// mysqlLoad is what [mysqlConn] loads, as the argument of a statement without a text of its own.
type mysqlLoad struct {
	table  string // quoted
	clause string // what follows the file's name
	rows   [][]any
	unit   time.Duration // that times are cut to; 0: none
}

// mysqlLoading is the text of such a statement.
const mysqlLoading = "LOAD DATA"

// errNotLoaded is the error for rows that the server does not take as they are. None was written.
var errNotLoaded = errors.New("not loaded")

// bulk loads rows, and reports whether it has; an INSERT must write what it leaves, and says what
// the server refuses.
func (d mysqlDialect) bulk(ctx context.Context, q querier, table string, _ []tables.Column, columns []string, rows [][]any) (done bool, err error) {
	if !d.load || len(rows) < loadRows {
		return false, nil
	}
	kinds := make([]loadKind, len(columns))
	for i := range columns {
		if kinds[i] = loadKindOf(rows, i); kinds[i] == loadNot {
			return false, nil
		}
	}
	_, err = q.ExecContext(ctx, mysqlLoading, mysqlLoad{quoteTable(d, table), d.loadInto(table, columns, kinds, rows), rows, d.unit})
	if errors.Is(err, errNotLoaded) {
		return false, nil
	}
	return true, err
}

// loadInto is the end of a LOAD DATA statement. Numbers and bytes pass through variables: a column of
// type BIT, ENUM or YEAR stores another value for the text of a number than for the number. So does a
// column with NULL: from a file it is the current time, without a warning, in a TIMESTAMP that is NOT NULL,
// https://dev.mysql.com/doc/refman/8.4/en/load-data.html.
func (d mysqlDialect) loadInto(table string, columns []string, kinds []loadKind, rows [][]any) string {
	var list, set []string
	for i, name := range columns {
		name = d.quote(name)
		convert := loadConversions[kinds[i]]
		if convert == "" && slices.ContainsFunc(rows, func(row []any) bool { return row[i] == nil }) {
			convert = "?"
		}
		if convert == "" {
			list = append(list, name)
			continue
		}
		variable := "@sluice_" + strconv.Itoa(i)
		list = append(list, variable)
		set = append(set, name+" = "+strings.ReplaceAll(convert, "?", variable))
	}
	text := " INTO TABLE " + quoteTable(d, table) +
		" CHARACTER SET utf8mb4 FIELDS TERMINATED BY X'09' ESCAPED BY X'5C' LINES TERMINATED BY X'0A' (" + strings.Join(list, ", ") + ")"
	if len(set) > 0 {
		text += " SET " + strings.Join(set, ", ")
	}
	return text
}

// loadKind is how the values of a column are written.
type loadKind uint8

const (
	loadNull loadKind = iota // there is no value
	loadText
	loadSigned
	loadUnsigned
	loadFloat
	loadBytes
	loadNot // not written in this way
)

// loadConversions make values of the texts in the file.
var loadConversions = map[loadKind]string{
	loadSigned:   "CAST(? AS SIGNED)",
	loadUnsigned: "CAST(? AS UNSIGNED)",
	loadFloat:    "? + 0e0",
	loadBytes:    "UNHEX(?)",
}

// loadKindOf returns the kind of a column's values, loadNot if there are several.
func loadKindOf(rows [][]any, column int) loadKind {
	all := loadNull
	for _, row := range rows {
		kind := kindOf(row[column])
		if kind != loadNull && all != loadNull && kind != all {
			return loadNot
		}
		all = max(all, kind)
	}
	return all
}

func kindOf(value any) loadKind {
	switch v := value.(type) {
	case nil:
		return loadNull
	case string:
		if utf8.ValidString(v) {
			return loadText
		}
	case []byte:
		return loadBytes
	case int, int8, int16, int32, int64, uint8, uint16, uint32, bool:
		return loadSigned
	case uint, uint64:
		return loadUnsigned
	case float64:
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			return loadFloat
		}
	case time.Time:
		if year := v.UTC().Year(); year >= 1 && year <= 9999 && !v.IsZero() {
			return loadText
		}
	}
	return loadNot
}

// loadReader has rows as the lines of a file.
type loadReader struct {
	rows [][]any
	unit time.Duration // that times are cut to; 0: none
	line []byte
	read int // of line
}

// Read implements [io.Reader].
func (r *loadReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if r.read == len(r.line) {
			if len(r.rows) == 0 {
				break
			}
			r.line, r.read, r.rows = appendLine(r.line[:0], r.rows[0], r.unit), 0, r.rows[1:]
		}
		copied := copy(p[n:], r.line[r.read:])
		n, r.read = n+copied, r.read+copied
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func appendLine(line []byte, row []any, unit time.Duration) []byte {
	for i, value := range row {
		if i > 0 {
			line = append(line, '\t')
		}
		if t, ok := value.(time.Time); ok {
			value = t.Truncate(unit)
		}
		line = appendField(line, value)
	}
	return append(line, '\n')
}

// appendField appends a value whose kind is not loadNot.
func appendField(line []byte, value any) []byte {
	switch v := value.(type) {
	case string:
		return appendEscaped(line, v)
	case []byte:
		if v != nil {
			return hex.AppendEncode(line, v)
		}
	case int:
		return strconv.AppendInt(line, int64(v), 10)
	case int8:
		return strconv.AppendInt(line, int64(v), 10)
	case int16:
		return strconv.AppendInt(line, int64(v), 10)
	case int32:
		return strconv.AppendInt(line, int64(v), 10)
	case int64:
		return strconv.AppendInt(line, v, 10)
	case uint:
		return strconv.AppendUint(line, uint64(v), 10)
	case uint8:
		return strconv.AppendUint(line, uint64(v), 10)
	case uint16:
		return strconv.AppendUint(line, uint64(v), 10)
	case uint32:
		return strconv.AppendUint(line, uint64(v), 10)
	case uint64:
		return strconv.AppendUint(line, v, 10)
	case float64:
		return strconv.AppendFloat(line, v, 'g', -1, 64)
	case bool:
		if v {
			return append(line, '1')
		}
		return append(line, '0')
	case time.Time:
		return v.UTC().AppendFormat(line, loadLayout(v))
	}
	return append(line, `\N`...)
}

// loadLayout is the driver's: a column of text shows it.
func loadLayout(t time.Time) string {
	if t.Equal(t.Truncate(24 * time.Hour)) {
		return time.DateOnly
	}
	return "2006-01-02 15:04:05.999999999"
}

// appendEscaped appends a text. Most texts have nothing to escape, which is found quickly.
func appendEscaped(line []byte, text string) []byte {
	for {
		at := len(text)
		for _, special := range "\\\t\n\x00" {
			if i := strings.IndexByte(text[:at], byte(special)); i >= 0 {
				at = i
			}
		}
		line = append(line, text[:at]...)
		if at == len(text) {
			return line
		}
		line = append(line, '\\')
		switch c := text[at]; c {
		case '\t':
			line = append(line, 't')
		case '\n':
			line = append(line, 'n')
		case 0:
			line = append(line, '0')
		default:
			line = append(line, c)
		}
		text = text[at+1:]
	}
}

// mysqlConnector opens connections that can load rows.
type mysqlConnector struct{ driver.Connector }

// mysqlIsolation is how the transactions of a session begin: at REPEATABLE READ the fence would
// read what was committed before, and a gap's lock would hold up other partitions. The driver would
// send a level for each transaction in a round trip of its own.
const mysqlIsolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"

// Connect opens a connection.
func (c mysqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn := opened.(mysqlDriverConn)
	if _, err := conn.ExecContext(ctx, mysqlIsolation, nil); err != nil {
		conn.Close()
		return nil, err
	}
	return &mysqlConn{conn}, nil
}

type mysqlDriverConn interface {
	fullConn
	driver.NamedValueChecker
}

type mysqlConn struct{ mysqlDriverConn }

// CheckNamedValue lets rows to load through, and leaves the others to the driver.
func (c *mysqlConn) CheckNamedValue(v *driver.NamedValue) error {
	if _, ok := v.Value.(mysqlLoad); ok {
		return nil
	}
	return c.mysqlDriverConn.CheckNamedValue(v)
}

// ExecContext implements [driver.ExecerContext].
func (c *mysqlConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if len(args) == 1 {
		if load, ok := args[0].Value.(mysqlLoad); ok {
			return c.load(ctx, load)
		}
	}
	return c.mysqlDriverConn.ExecContext(ctx, query, args)
}

// load writes rows, all or none of them. LOAD DATA LOCAL makes warnings of errors: it leaves out
// rows that violate a constraint, and changes values that do not fit. So rows with a warning are
// not kept. No statement of another goroutine comes in between, which would be undone too.
func (c *mysqlConn) load(ctx context.Context, l mysqlLoad) (driver.Result, error) {
	if _, err := c.mysqlDriverConn.ExecContext(ctx, "SAVEPOINT sluice_load", nil); err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(l.rows, loadMost) {
		loaded, err := c.loadChunk(ctx, l, chunk)
		switch {
		case err != nil:
			return nil, err
		case !loaded:
			return nil, cmp.Or(c.undo(ctx, l.table), errNotLoaded)
		}
	}
	return driver.RowsAffected(len(l.rows)), nil
}

// loadChunk reports whether the server has taken all rows as they are.
func (c *mysqlConn) loadChunk(ctx context.Context, l mysqlLoad, rows [][]any) (loaded bool, err error) {
	name := "sluice_" + rand.Text()
	mysql.RegisterReaderHandler(name, func() io.Reader { return &loadReader{rows: rows, unit: l.unit} })
	defer mysql.DeregisterReaderHandler(name)
	result, err := c.mysqlDriverConn.ExecContext(ctx, "LOAD DATA LOCAL INFILE 'Reader::"+name+"'"+l.clause, nil)
	if err != nil {
		if _, answered := errors.AsType[*mysql.MySQLError](err); answered && mysqlRefused[mysqlDialect{}.fault(err)] {
			return false, nil
		}
		return false, err
	}
	if n, err := result.RowsAffected(); err != nil || n != int64(len(rows)) {
		return false, err
	}
	return c.unwarned(ctx)
}

// mysqlRefused are the faults of a statement that has changed nothing, in a transaction that goes
// on.
var mysqlRefused = map[fault]bool{faultStatement: true, faultConstraint: true, faultOpen: true, faultUnknown: true}

// undo removes the rows that were loaded. It fails if the table keeps them, because an INSERT would
// write them a second time.
func (c *mysqlConn) undo(ctx context.Context, table string) error {
	if _, err := c.mysqlDriverConn.ExecContext(ctx, "ROLLBACK TO SAVEPOINT sluice_load", nil); err != nil {
		return err
	}
	row, err := c.row(ctx, "SHOW CREATE TABLE "+table)
	if _, answered := errors.AsType[*mysql.MySQLError](err); answered && mysqlRefused[mysqlDialect{}.fault(err)] {
		return nil // the INSERT says what is wrong
	}
	if err != nil {
		return err
	}
	if created := fmt.Sprintf("%s", row[1]); strings.Contains(created, ") ENGINE=") && !strings.Contains(created, ") ENGINE=InnoDB") {
		return fmt.Errorf("some rows caused warnings and could not be rolled back, because the table's engine has no transactions: change it (ALTER TABLE %s ENGINE = InnoDB)", table)
	}
	return nil
}

// unwarned reports whether the last statement had no warnings.
func (c *mysqlConn) unwarned(ctx context.Context) (bool, error) {
	row, err := c.row(ctx, "SELECT @@warning_count = 0")
	return err == nil && row[0] == int64(1), err
}

// row returns the first row of a query.
func (c *mysqlConn) row(ctx context.Context, query string) ([]driver.Value, error) {
	rows, err := c.QueryContext(ctx, query, nil)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	row := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(row); err != nil {
		return nil, err
	}
	for i, value := range row {
		if text, ok := value.([]byte); ok {
			row[i] = string(text) // the driver's buffer
		}
	}
	return row, nil
}
