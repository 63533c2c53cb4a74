package pipeline

import (
	wire "encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5/pgtype"

	internalpostgres "github.com/sluice-go/sluice/internal/postgres"
)

// cell is the value of a column of an event, before it becomes an any: that costs an allocation for
// each value, which a target can save.
type cell struct {
	kind    cellKind
	shared  bool   // text is in the memory of the event, which nothing writes to
	text    string // of cellText
	integer int64
	time    time.Time
	other   any // nil for NULL
}

type cellKind uint8

const (
	cellOther cellKind = iota
	cellText
	cellInteger
	cellTime
	cellMissing // NULL, or what the database makes of a row without the value
)

// ownText returns a text as a cell.
func ownText(s string) cell { return cell{kind: cellText, text: s} }

// sharedText returns a part of an event as a cell. The cell keeps the whole event in memory.
func sharedText(b []byte) cell {
	return cell{kind: cellText, text: unsafe.String(unsafe.SliceData(b), len(b)), shared: true}
}

// value returns the cell's value, which may outlive the event.
func (c cell) value() any {
	if c.kind == cellText && c.shared {
		return strings.Clone(c.text)
	}
	return c.sharedValue()
}

// sharedValue returns the cell's value, which may keep the event in memory.
func (c cell) sharedValue() any {
	switch c.kind {
	case cellText:
		return c.text
	case cellInteger:
		return c.integer
	case cellTime:
		return c.time
	}
	return c.other
}

// AppendCopy implements [internalpostgres.CopyValue].
func (c *cell) AppendCopy(b []byte) ([]byte, error) {
	switch c.kind {
	case cellText:
		return internalpostgres.AppendText(b, c.text)
	case cellInteger:
		return strconv.AppendInt(b, c.integer, 10), nil
	case cellTime:
		return internalpostgres.AppendTime(b, c.time), nil
	}
	if bytes, ok := c.other.([]byte); ok {
		return internalpostgres.AppendBytes(b, bytes), nil
	}
	return internalpostgres.AppendValue(b, c.other)
}

// AppendBinary implements [internalpostgres.BinaryValue], for the types in binaryTypes.
func (c *cell) AppendBinary(b []byte, oid uint32) (_ []byte, null bool) {
	if oid == pgtype.JSONBOID && (c.kind == cellText || c.other != nil) {
		b = append(b, 1) // the version of the form
	}
	switch c.kind {
	case cellText:
		return append(b, c.text...), false
	case cellInteger:
		return appendBinaryInteger(b, c.integer, oid), false
	case cellTime:
		return appendBinaryTime(b, c.time), false
	}
	switch v := c.other.(type) {
	case nil:
		return b, true
	case string:
		return append(b, v...), false
	case []byte:
		return append(b, v...), false
	case bool:
		if v {
			return append(b, 1), false
		}
		return append(b, 0), false
	case float64:
		return wire.BigEndian.AppendUint64(b, math.Float64bits(v)), false
	case int64:
		return appendBinaryInteger(b, v, oid), false
	case time.Time:
		return appendBinaryTime(b, v), false
	}
	panic(fmt.Sprintf("no binary form of %T", c.other))
}

func appendBinaryInteger(b []byte, i int64, oid uint32) []byte {
	switch oid {
	case pgtype.Int2OID:
		return wire.BigEndian.AppendUint16(b, uint16(i))
	case pgtype.Int4OID:
		return wire.BigEndian.AppendUint32(b, uint32(i))
	}
	return wire.BigEndian.AppendUint64(b, uint64(i))
}

func appendBinaryTime(b []byte, t time.Time) []byte {
	return wire.BigEndian.AppendUint64(b, uint64(t.UnixMicro()-epochOfPostgres))
}

// epochOfPostgres is the year 2000 in microseconds.
const epochOfPostgres = 946_684_800_000_000

// boxing makes the value of a row from the cell of a column.
type boxing func(column int, c cell) any

func boxed(_ int, c cell) any       { return c.value() }
func boxedShared(_ int, c cell) any { return c.sharedValue() }
