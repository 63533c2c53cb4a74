package pipeline

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// copyCells has a value for each column of a row on its way to COPY. pgx takes a pointer to one of these
// types without an allocation, where an any of the value itself costs one or two.
type copyCells []struct {
	takes   cellKind // as such a pointer; cellOther: none
	text    copyText
	integer copyInteger
	time    copyTime
}

// copyCellsOf returns the cells for columns of a table. It asks the server the first time only: a connection
// keeps the answer, as pgx's COPY does. Where a pooler stands in between, each COPY would
// have to ask, and the cells take nothing.
func copyCellsOf(ctx context.Context, tx pgx.Tx, table string, columns []string) (copyCells, error) {
	cells, conn := make(copyCells, len(columns)), tx.Conn()
	if conn.Config().DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		return cells, nil
	}
	list := make([]string, len(columns))
	for i, name := range columns {
		list[i] = pgx.Identifier{name}.Sanitize()
	}
	query := "SELECT " + strings.Join(list, ", ") + " FROM " + pgx.Identifier(strings.Split(table, ".")).Sanitize()
	described, err := tx.Prepare(ctx, query, query)
	if err != nil {
		return nil, fmt.Errorf("insert into %s: %w", table, err)
	}
	for i, field := range described.Fields {
		cells[i].takes = takenBy(conn.TypeMap(), field.DataTypeOID)
	}
	return cells, nil
}

// takenBy returns the kind of cell that a type takes. It takes the others as plain values only, because pgx
// may convert those in other ways than a pointer to them.
func takenBy(types *pgtype.Map, oid uint32) cellKind {
	if t, ok := types.TypeForOID(oid); ok {
		switch t.Codec.(type) {
		case pgtype.TextCodec:
			return cellText
		case pgtype.Int2Codec, pgtype.Int4Codec, pgtype.Int8Codec:
			return cellInteger
		case *pgtype.TimestamptzCodec, *pgtype.TimestampCodec:
			return cellTime
		}
	}
	return cellOther
}

// box implements [boxing]. The value lasts until the next one of its column.
func (cells copyCells) box(column int, c cell) any {
	to := &cells[column]
	if c.kind != to.takes {
		return c.sharedValue()
	}
	switch c.kind {
	case cellText:
		to.text = copyText(c.text)
		return &to.text
	case cellInteger:
		to.integer = copyInteger(c.integer)
		return &to.integer
	case cellTime:
		to.time = copyTime(c.time)
		return &to.time
	}
	return c.other
}

type (
	copyText    string
	copyInteger int64
	copyTime    time.Time
)

var (
	_ pgtype.TextValuer        = (*copyText)(nil)
	_ pgtype.Int64Valuer       = (*copyInteger)(nil)
	_ pgtype.TimestamptzValuer = (*copyTime)(nil)
	_ pgtype.TimestampValuer   = (*copyTime)(nil)
)

// TextValue implements [pgtype.TextValuer].
func (t *copyText) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: string(*t), Valid: true}, nil
}

// Int64Value implements [pgtype.Int64Valuer].
func (i *copyInteger) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*i), Valid: true}, nil
}

// TimestamptzValue implements [pgtype.TimestamptzValuer].
func (t *copyTime) TimestamptzValue() (pgtype.Timestamptz, error) {
	return pgtype.Timestamptz{Time: time.Time(*t), Valid: true}, nil
}

// TimestampValue implements [pgtype.TimestampValuer].
func (t *copyTime) TimestampValue() (pgtype.Timestamp, error) {
	return pgtype.Timestamp{Time: time.Time(*t), Valid: true}, nil
}

// GoString implements [fmt.GoStringer], for the errors of pgx.
func (t *copyText) GoString() string    { return strconv.Quote(string(*t)) }
func (i *copyInteger) GoString() string { return strconv.FormatInt(int64(*i), 10) }
func (t *copyTime) GoString() string    { return fmt.Sprintf("%#v", time.Time(*t)) }
