//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// postgresLoader copies rows in PostgreSQL's binary format.
type postgresLoader struct {
	conn    *pgconn.PgConn
	batch   []byte
	ends    []int // of the rows in batch
	numbers []int // where their sequence numbers are
}

// copyHead and copyTail begin and end data of COPY in binary format,
// https://www.postgresql.org/docs/current/sql-copy.html.
var (
	copyHead = []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	copyTail = []byte{0xff, 0xff}
)

// copyEpoch is the zero of PostgreSQL's times.
var copyEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func newPostgresLoader(ctx context.Context, j *job, partition int) (loader, error) {
	conn, err := pgconn.Connect(ctx, j.Database)
	if err != nil {
		return nil, err
	}
	l := &postgresLoader{conn: conn, batch: bytes.Clone(copyHead)}
	rows, err := rowsOf(j, partition)
	for _, row := range rows {
		l.batch = binary.BigEndian.AppendUint16(l.batch, uint16(len(row)))
		for i, value := range row {
			if i == numberColumn {
				l.numbers = append(l.numbers, len(l.batch)+4)
			}
			l.batch = appendCopied(l.batch, value)
		}
		l.ends = append(l.ends, len(l.batch))
	}
	return l, err
}

// appendCopied appends the length of a value, and the value.
func appendCopied(b []byte, value any) []byte {
	switch v := value.(type) {
	case string:
		return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	case int32:
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, 4), uint32(v))
	case int64:
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(v))
	case time.Time:
		return appendCopied(b, v.Sub(copyEpoch).Microseconds())
	}
	panic("no column has this type")
}

func (l *postgresLoader) load(ctx context.Context, first, n int) error {
	for i := range n {
		binary.BigEndian.PutUint64(l.batch[l.numbers[i]:], uint64(first+i))
	}
	if _, err := l.conn.Exec(ctx, "BEGIN").ReadAll(); err != nil {
		return err
	}
	data := io.MultiReader(bytes.NewReader(l.batch[:l.ends[n-1]]), bytes.NewReader(copyTail))
	if _, err := l.conn.CopyFrom(ctx, data, "COPY readings ("+strings.Join(columns, ", ")+") FROM STDIN BINARY"); err != nil {
		return err
	}
	_, err := l.conn.Exec(ctx, "COMMIT").ReadAll()
	return err
}

func (l *postgresLoader) close() { _ = l.conn.Close(context.Background()) }
