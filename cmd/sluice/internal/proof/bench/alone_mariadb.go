//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// mariaDBLoader loads rows from a file in memory.
type mariaDBLoader struct {
	*mariaDBWriter
	name    string
	file    []byte
	ends    []int // of the rows in file
	numbers []int // where their sequence numbers are, of numberDigits digits
}

const numberDigits = 10

func newMariaDBLoader(ctx context.Context, j *job, partition int) (loader, error) {
	db, err := connectMariaDB(j.Database, 1)
	if err != nil {
		return nil, err
	}
	if err := db.PingContext(ctx); err != nil {
		return nil, err
	}
	l := &mariaDBLoader{mariaDBWriter: &mariaDBWriter{db: db}, name: fmt.Sprint("rows", partition)}
	var file bytes.Buffer
	rows, err := rowsOf(j, partition)
	for _, row := range rows {
		l.numbers = append(l.numbers, file.Len()+len(row[0].(string))+1)
		row[numberColumn] = strings.Repeat("0", numberDigits)
		writeLine(&file, row)
		l.ends = append(l.ends, file.Len())
	}
	l.file = file.Bytes()
	return l, err
}

func (l *mariaDBLoader) load(ctx context.Context, first, n int) error {
	for i := range n {
		number := l.file[l.numbers[i]:][:numberDigits]
		for d, rest := numberDigits-1, first+i; d >= 0; d, rest = d-1, rest/10 {
			number[d] = byte('0' + rest%10)
		}
	}
	mysql.RegisterReaderHandler(l.name, func() io.Reader { return bytes.NewReader(l.file[:l.ends[n-1]]) })
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	load := fmt.Sprintf("LOAD DATA LOCAL INFILE 'Reader::%s' INTO TABLE readings CHARACTER SET utf8mb4 (%s)", l.name, strings.Join(columns, ", "))
	if _, err := tx.ExecContext(ctx, load); err != nil {
		return err
	}
	return tx.Commit()
}
