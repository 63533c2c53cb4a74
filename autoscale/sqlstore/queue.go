package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// Queue is an [autoscale.Queue] in the store's database. It is safe for concurrent use, by
// several processes too. Locks expire by the clock of the database.
type Queue struct {
	store *Store
	name  string
	lock  time.Duration
}

var _ autoscale.Queue = (*Queue)(nil)

// pollInterval is the time between two queries of an empty queue.
const pollInterval = 100 * time.Millisecond

// Queue returns the queue with this name, which need not exist. lock is how long a
// received message is hidden from other receivers; 0 means 30 s.
func (s *Store) Queue(name string, lock time.Duration) *Queue {
	if lock <= 0 {
		lock = 30 * time.Second
	}
	return &Queue{store: s, name: name, lock: lock}
}

func (q *Queue) fail(what string, err error) error {
	return q.store.fail(what+" "+q.name, err)
}

// Send implements [autoscale.Queue]. It adds all messages or none.
func (q *Queue) Send(ctx context.Context, bodies ...[]byte) error {
	err := q.store.inTx(ctx, nil, func(tx *sql.Tx) error {
		for _, b := range bodies {
			if b == nil {
				b = []byte{}
			}
			if _, err := q.store.execOn(ctx, tx, "INSERT INTO {messages} (queue, body) VALUES (?, ?)", q.name, b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return q.fail("send to queue", err)
	}
	return nil
}

// Receive implements [autoscale.Queue].
func (q *Queue) Receive(ctx context.Context, most int) ([]autoscale.Message, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		messages, err := q.take(ctx, most)
		if cancelled := ctx.Err(); cancelled != nil {
			return nil, cancelled
		}
		if err != nil {
			return nil, q.fail("receive from queue", err)
		}
		if len(messages) > 0 {
			return messages, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// maxRead is how many bytes of a message are read: more than any part accepts.
const maxRead = 128 << 10

// take reads before it writes: most calls find nothing.
func (q *Queue) take(ctx context.Context, most int) (messages []autoscale.Message, err error) {
	var first sql.NullInt64
	err = q.store.db.QueryRowContext(ctx, q.store.text("SELECT min(id) FROM {messages} WHERE queue = ? AND aside IS NULL AND hidden <= {now}"), q.name).Scan(&first)
	if err != nil || !first.Valid {
		return nil, err
	}
	rows, err := q.store.db.QueryContext(ctx, q.store.text(`
		WITH next AS MATERIALIZED (SELECT id FROM {messages} WHERE queue = ? AND aside IS NULL AND hidden <= {now} ORDER BY id LIMIT ? {skip locked})
		UPDATE {messages} SET hidden = {now} + ?, deliveries = deliveries + 1 WHERE id IN (SELECT id FROM next)
		RETURNING id, substr(body, 1, ?), deliveries`), q.name, most, q.lock.Nanoseconds(), maxRead)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var m autoscale.Message
		if err := rows.Scan(&id, &m.Body, &m.Deliveries); err != nil {
			return nil, err
		}
		m.ID, m.Receipt = strconv.FormatInt(id, 10), receipt{id, m.Deliveries}
		messages = append(messages, m)
	}
	slices.SortFunc(messages, func(a, b autoscale.Message) int {
		return cmp.Compare(a.Receipt.(receipt).id, b.Receipt.(receipt).id)
	})
	return messages, rows.Err()
}

// receipt identifies a delivery. It is valid until the message is received again.
type receipt struct {
	id         int64
	deliveries int
}

// Extend implements [autoscale.Queue].
func (q *Queue) Extend(ctx context.Context, m *autoscale.Message) error {
	n, err := q.change(ctx, m, "UPDATE {messages} SET hidden = {now} + ? WHERE id = ? AND deliveries = ? AND aside IS NULL AND hidden > {now}", q.lock.Nanoseconds(), m)
	switch {
	case err != nil:
		return q.fail("extend message of queue", err)
	case n == 0:
		return autoscale.ErrLockLost
	}
	return nil
}

// Delete implements [autoscale.Queue].
func (q *Queue) Delete(ctx context.Context, m *autoscale.Message) error {
	if _, err := q.change(ctx, m, "DELETE FROM {messages} WHERE id = ? AND deliveries = ? AND aside IS NULL", m); err != nil {
		return q.fail("delete from queue", err)
	}
	return nil
}

// maxDeadLetters is how many dead letters are kept.
const maxDeadLetters = 1000

// DeadLetter implements [autoscale.Queue].
func (q *Queue) DeadLetter(ctx context.Context, m *autoscale.Message, reason string) error {
	_, err := q.change(ctx, m, "UPDATE {messages} SET aside = ? WHERE id = ? AND deliveries = ? AND aside IS NULL", strings.ToValidUTF8(reason, "\uFFFD"), m)
	if err == nil {
		_, err = q.store.exec(ctx, `DELETE FROM {messages} WHERE queue = ? AND aside IS NOT NULL AND id <=
			(SELECT id FROM {messages} WHERE queue = ? AND aside IS NOT NULL ORDER BY id DESC LIMIT 1 OFFSET ?)`, q.name, q.name, maxDeadLetters)
	}
	if err != nil {
		return q.fail("move to dead-letter queue of", err)
	}
	return nil
}

// change runs a statement. A message among the arguments stands for its id and its
// number of deliveries, so that the statement does not match a message that was
// received again.
func (q *Queue) change(ctx context.Context, m *autoscale.Message, statement string, args ...any) (int64, error) {
	r, ok := m.Receipt.(receipt)
	if !ok {
		return 0, errors.New("the message belongs to another queue")
	}
	var flat []any
	for _, a := range args {
		if a == any(m) {
			flat = append(flat, r.id, r.deliveries)
		} else {
			flat = append(flat, a)
		}
	}
	return q.store.exec(ctx, statement, flat...)
}

// DeadLetters returns the dead letters, oldest first; the last 1,000 are kept.
func (q *Queue) DeadLetters(ctx context.Context) ([]autoscale.DeadLetter, error) {
	rows, err := q.store.db.QueryContext(ctx, q.store.text("SELECT substr(body, 1, ?), aside FROM {messages} WHERE queue = ? AND aside IS NOT NULL ORDER BY id"), maxRead, q.name)
	if err != nil {
		return nil, q.fail("read dead letters of queue", err)
	}
	defer rows.Close()
	var list []autoscale.DeadLetter
	for rows.Next() {
		var a autoscale.DeadLetter
		if err := rows.Scan(&a.Body, &a.Reason); err != nil {
			return nil, q.fail("read dead letters of queue", err)
		}
		list = append(list, a)
	}
	return list, rows.Err()
}
