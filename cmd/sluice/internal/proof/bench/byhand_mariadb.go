//go:build unix

package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/go-sql-driver/mysql"
)

// mariaDBWriter loads rows.
type mariaDBWriter struct {
	db      *sql.DB
	raw     bool
	table   string
	columns []string
	files   sync.Pool // of *bytes.Buffer
}

// connectMariaDB makes a pool of so many connections.
func connectMariaDB(address string, conns int) (*sql.DB, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	cfg.Passwd, _ = u.User.Password()
	cfg.InterpolateParams = true
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func openMariaDB(ctx context.Context, address string, partitions int, raw bool) (*mariaDBWriter, error) {
	db, err := connectMariaDB(address, partitions)
	if err != nil {
		return nil, err
	}
	w := &mariaDBWriter{db: db, raw: raw, table: "readings", columns: columns}
	if raw {
		w.table, w.columns = "raw", rawColumns
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE progress (part VARCHAR(20) PRIMARY KEY, sequence_number BIGINT)")
	for p := 0; p < partitions && err == nil; p++ {
		_, err = db.ExecContext(ctx, "INSERT INTO progress VALUES (?, -1)", fmt.Sprint(p))
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return w, nil
}

func (w *mariaDBWriter) write(ctx context.Context, partition string, events []*azeventhubs.ReceivedEventData) error {
	file, _ := w.files.Get().(*bytes.Buffer)
	if file == nil {
		file = new(bytes.Buffer)
	}
	file.Reset()
	defer w.files.Put(file)
	for _, e := range events {
		values, err := row(partition, e, w.raw)
		if err != nil {
			return err
		}
		writeLine(file, values)
	}
	name := "readings" + partition
	mysql.RegisterReaderHandler(name, func() io.Reader { return file })
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	load := fmt.Sprintf("LOAD DATA LOCAL INFILE 'Reader::%s' INTO TABLE %s CHARACTER SET utf8mb4 (%s)", name, w.table, strings.Join(w.columns, ", "))
	if _, err := tx.ExecContext(ctx, load); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE progress SET sequence_number = ? WHERE part = ?", events[len(events)-1].SequenceNumber, partition); err != nil {
		return err
	}
	return tx.Commit()
}

var escape = strings.NewReplacer("\\", "\\\\", "\t", "\\t", "\n", "\\n")

// writeLine writes a line of the file, whose fields are separated by tabs.
func writeLine(file *bytes.Buffer, values []any) {
	for i, value := range values {
		if i > 0 {
			file.WriteByte('\t')
		}
		switch v := value.(type) {
		case string:
			if strings.ContainsAny(v, "\\\t\n") {
				v = escape.Replace(v)
			}
			file.WriteString(v)
		case int64:
			file.Write(strconv.AppendInt(file.AvailableBuffer(), v, 10))
		case int32:
			file.Write(strconv.AppendInt(file.AvailableBuffer(), int64(v), 10))
		case time.Time:
			file.Write(v.UTC().AppendFormat(file.AvailableBuffer(), "2006-01-02 15:04:05.000000"))
		}
	}
	file.WriteByte('\n')
}

func (w *mariaDBWriter) close() { w.db.Close() }
