package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-go/sluice/internal/partitionkey"
	"github.com/sluice-go/sluice/internal/property"
)

// Message is a message to be written to an outbox. All of it may be empty.
type Message struct {
	// Key decides the partition. Messages of one key keep their order, see the package.
	Key string
	// ID is the message's id, by which a receiver that is not Sluice recognises duplicates.
	// Default: a random UUID.
	ID            string
	CorrelationID string
	ContentType   string
	// Properties are application properties, as in [driver.Event].
	Properties map[string]any
	Body       []byte
	Created    time.Time // default: the database's time
}

// Execer is a transaction that a message is written in: a [*sql.Tx], a transaction of package
// sqlstore, or one of pgx by [Pgx].
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// PgxTx is the part of a pgx transaction that [Pgx] needs.
type PgxTx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Pgx makes a transaction of pgx, such as that of a handler of package pgstore, an [Execer].
func Pgx(tx PgxTx) Execer { return pgxExecer{tx} }

type pgxExecer struct{ tx PgxTx }

func (e pgxExecer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := e.tx.Exec(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return affected(tag.RowsAffected()), nil
}

type affected int64

func (affected) LastInsertId() (int64, error)   { return 0, errors.ErrUnsupported }
func (n affected) RowsAffected() (int64, error) { return int64(n), nil }

// Add writes messages in the caller's transaction, which must be one of the outbox's database, in
// their order. They exist once it is committed. If Add fails, roll the transaction back. The first
// call takes another connection, to read how many partitions there are, unless [Source.Create] or
// [Source.Describe] has.
func (s *Source) Add(ctx context.Context, tx Execer, messages ...Message) error {
	topic, err := s.prepared(ctx)
	if err != nil {
		return s.failed(ctx, "add messages", err)
	}
	rows := make([][]any, len(messages))
	for i := range messages {
		if rows[i], err = s.row(&messages[i], len(topic.Partitions)); err != nil {
			return fmt.Errorf("outbox %s: message %d: %w", s.cfg.Table, i+1, err)
		}
	}
	return s.failed(ctx, "add messages", s.insert(ctx, tx, rows))
}

// row returns the columns of a message.
func (s *Source) row(m *Message, partitions int) ([]any, error) {
	for _, text := range []string{m.Key, m.ID, m.CorrelationID, m.ContentType} {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return nil, fmt.Errorf("%q: keys, ids and the content type must be text in UTF-8 without zeros", text)
		}
	}
	id := m.ID
	if id == "" {
		id = newID()
	}
	key := m.Key
	if key == "" {
		key = id
	}
	properties, err := property.Encode(m.Properties)
	if err != nil {
		return nil, err
	}
	return s.columns(m, partitionkey.KafkaPartition(key, partitions), id, properties), nil
}

// columns returns a row in the order of the statement insert.
func (s *Source) columns(m *Message, partition int, id string, properties []byte) []any {
	body := m.Body
	if body == nil {
		body = []byte{}
	}
	var created any
	if !m.Created.IsZero() {
		created = s.dialect.time(m.Created)
	}
	return []any{partition, optional(m.Key), id, optional(m.CorrelationID), optional(m.ContentType), optional(string(properties)), body, created}
}

func optional(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// insert writes rows, with as many in one statement as it can have arguments.
func (s *Source) insert(ctx context.Context, tx Execer, rows [][]any) error {
	for len(rows) > 0 {
		n := min(len(rows), s.sql.insertRows)
		var list []any
		for _, row := range rows[:n] {
			list = append(list, row...)
		}
		result, err := tx.ExecContext(ctx, s.sql.insert(n), list...)
		if err != nil {
			return err
		}
		if stored, err := result.RowsAffected(); err != nil || stored != int64(n) {
			return errors.Join(err, fmt.Errorf("the database stored %d of %d rows: is there a trigger or a rule on the table?", stored, n))
		}
		rows = rows[n:]
	}
	return nil
}

// newID returns a random UUID (version 4).
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
