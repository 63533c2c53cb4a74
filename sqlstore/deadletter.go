package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/property"
)

// The columns of a dead letter, in the order in which they are stored and
// read. Lists omit the heavy ones.
const (
	deadLetterColumns = "id, namespace, topic, consumer_group, incarnation, partition, sequence_number, event_offset, enqueued_at," +
		" failed_at, error, attempts, status, next_attempt, partition_key, message_id, correlation_id, content_type, has_body"
	heavyColumns = ", body, properties"
)

// deadLetterArgs returns the values of a dead letter's columns, without the id.
func (s *Store) deadLetterArgs(d *driver.DeadLetter) ([]any, error) {
	e := &d.Event
	var body, properties any
	if d.HasBody {
		encoded, err := property.EncodeEvent(e)
		if err != nil {
			return nil, err
		}
		if encoded != nil {
			properties = string(encoded)
		}
		if body = e.Body; e.Body == nil {
			body = []byte{}
		}
	}
	return slices.Concat(
		key(d.Group, "")[:3],
		[]any{clean(d.Incarnation), clean(e.Partition), e.Sequence, clean(e.Offset), s.dialect.time(e.Enqueued)},
		s.failureArgs(d),
		[]any{clean(e.Key), clean(e.MessageID), clean(e.CorrelationID), clean(e.ContentType), d.HasBody, body, properties},
	), nil
}

// failureArgs are the columns of how an event failed and what becomes of it.
func (s *Store) failureArgs(d *driver.DeadLetter) []any {
	var next any
	if d.Status == driver.StatusRetry {
		next = s.dialect.time(d.NextAttempt)
	}
	return []any{s.dialect.time(d.FailedAt), clean(d.Error), d.Attempts, string(d.Status), next}
}

// readDeadLetters reads dead letters, with their bodies if the statement has them.
func readDeadLetters(ctx context.Context, q querier, heavy bool, query string, args ...any) ([]driver.DeadLetter, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []driver.DeadLetter
	for rows.Next() {
		d, err := scanDeadLetter(rows, heavy)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, rows.Err()
}

func scanDeadLetter(rows *sql.Rows, heavy bool) (driver.DeadLetter, error) {
	var d driver.DeadLetter
	var enqueued, failed, next storedTime
	var status string
	var properties sql.NullString
	e := &d.Event
	dest := []any{
		&d.ID, &d.Group.Namespace, &d.Group.Topic, &d.Group.Name, &d.Incarnation, &e.Partition, &e.Sequence, &e.Offset, &enqueued,
		&failed, &d.Error, &d.Attempts, &status, &next, &e.Key, &e.MessageID, &e.CorrelationID, &e.ContentType, &d.HasBody,
	}
	if heavy {
		dest = append(dest, &e.Body, &properties)
	}
	if err := rows.Scan(dest...); err != nil {
		return d, err
	}
	e.Enqueued, d.FailedAt, d.NextAttempt, d.Status = enqueued.Time, failed.Time, next.Time, driver.DeadLetterStatus(status)
	if heavy && d.HasBody {
		if err := property.DecodeEvent([]byte(properties.String), e); err != nil {
			return d, fmt.Errorf("dead letter %d: %w", d.ID, err)
		}
	}
	return d, nil
}

// Due implements [driver.TxStore] and [driver.DeadLetterQueue].
func (s *Store) Due(ctx context.Context, group driver.Group, partition string, limit int) ([]driver.DeadLetter, error) {
	list, err := readDeadLetters(ctx, s.reader, true, s.sql.Due, append(key(group, partition), max(limit, 0))...)
	if err != nil {
		return nil, s.outage(ctx, "read dead letters to redrive of partition "+partition, err)
	}
	return list, nil
}

// DuePartitions implements [driver.RedriveFinder].
func (s *Store) DuePartitions(ctx context.Context, group driver.Group, partitions []string) ([]string, error) {
	rows, err := s.reader.QueryContext(ctx, s.sql.DuePartitions, append([]any{array(partitions)}, key(group, "")[:3]...)...)
	if err != nil {
		return nil, s.outage(ctx, "look for dead letters to redrive of "+group.String(), err)
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var partition string
		if err := rows.Scan(&partition); err != nil {
			return nil, s.outage(ctx, "look for dead letters to redrive of "+group.String(), err)
		}
		list = append(list, partition)
	}
	if err := rows.Err(); err != nil {
		return nil, s.outage(ctx, "look for dead letters to redrive of "+group.String(), err)
	}
	return list, nil
}

// List implements [driver.DeadLetterStore].
func (s *Store) List(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter) ([]driver.DeadLetter, error) {
	cond, args := s.selected(group, filter)
	query := "SELECT " + deadLetterColumns + " FROM sluice_dead_letters WHERE " + cond + " ORDER BY id"
	list, err := readDeadLetters(ctx, s.reader, false, s.dialect.rebind(query), args...)
	if err != nil {
		return nil, s.outage(ctx, "list dead letters of "+group.String(), err)
	}
	return list, nil
}

// Count implements [driver.DeadLetterStore].
func (s *Store) Count(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter) ([]driver.DeadLetterCount, error) {
	filter.Limit = 0
	cond, args := s.selected(group, filter)
	query := "SELECT partition, status, count(*) FROM sluice_dead_letters WHERE " + cond + " GROUP BY partition, status"
	list, err := countDeadLetters(ctx, s.reader, s.dialect.rebind(query), args)
	if err != nil {
		return nil, s.outage(ctx, "count dead letters of "+group.String(), err)
	}
	return list, nil
}

func countDeadLetters(ctx context.Context, q querier, query string, args []any) (list []driver.DeadLetterCount, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c driver.DeadLetterCount
		if err := rows.Scan(&c.Partition, &c.Status, &c.Count); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, rows.Err()
}

// Get implements [driver.DeadLetterStore].
func (s *Store) Get(ctx context.Context, group driver.Group, id int64) (driver.DeadLetter, error) {
	cond, args := s.selected(group, driver.DeadLetterFilter{IDs: []int64{id}})
	query := "SELECT " + deadLetterColumns + heavyColumns + " FROM sluice_dead_letters WHERE " + cond
	list, err := readDeadLetters(ctx, s.reader, true, s.dialect.rebind(query), args...)
	switch {
	case err != nil:
		return driver.DeadLetter{}, s.outage(ctx, fmt.Sprintf("read dead letter %d", id), err)
	case len(list) == 0:
		return driver.DeadLetter{}, fmt.Errorf("dead letter %d of %s: %w", id, group, driver.ErrNotFound)
	}
	return list[0], nil
}

// Redrive implements [driver.DeadLetterStore].
func (s *Store) Redrive(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter, at time.Time) (int64, error) {
	var when any
	if !at.IsZero() {
		when = s.dialect.time(at)
	}
	return s.mark(ctx, "redrive", s.sql.MarkRedrive, []any{when}, group, filter)
}

// Discard implements [driver.DeadLetterStore].
func (s *Store) Discard(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter) (int64, error) {
	return s.mark(ctx, "discard", s.sql.Discard, nil, group, filter)
}

func (s *Store) mark(ctx context.Context, verb, update string, args []any, group driver.Group, filter driver.DeadLetterFilter) (int64, error) {
	cond, selected := s.selected(group, filter)
	n, err := s.change(ctx, s.dialect.rebind(update+" "+cond), append(args, selected...)...)
	if err != nil {
		return 0, s.outage(ctx, verb+" dead letters of "+group.String(), err)
	}
	return n, nil
}

// selected turns a filter into a condition and its arguments.
func (s *Store) selected(group driver.Group, f driver.DeadLetterFilter) (string, []any) {
	terms := []string{s.sql.OfGroup}
	args := key(group, "")[:3]
	add := func(set bool, term string, arg any) {
		if set {
			terms, args = append(terms, term), append(args, arg)
		}
	}
	add(len(f.IDs) > 0, s.sql.IdIn, array(f.IDs))
	add(f.Partition != "", "partition = ?", clean(f.Partition))
	add(len(f.Status) > 0, s.sql.StatusIn, array(f.Status))
	add(f.Key != "", s.sql.KeyIs, clean(f.Key))
	add(f.ErrorContains != "", s.sql.ErrorContains, clean(f.ErrorContains))
	add(!f.FailedSince.IsZero(), "failed_at >= ?", s.dialect.time(f.FailedSince))
	add(!f.FailedBefore.IsZero(), "failed_at < ?", s.dialect.time(f.FailedBefore))
	if f.FirstSequence != nil {
		add(true, "sequence_number >= ?", *f.FirstSequence)
	}
	if f.LastSequence != nil {
		add(true, "sequence_number <= ?", *f.LastSequence)
	}
	add(f.AfterID != 0, "id > ?", f.AfterID)
	cond := strings.Join(terms, " AND ")
	if f.Limit > 0 {
		cond = s.dialect.first(cond)
		args = append(args, f.Limit)
	}
	return cond, args
}

// array passes a list to the database as one argument, however long it is.
func array[T any](list []T) string {
	if list == nil {
		return "[]" // null is a list of one NULL for SQLite, and none for SQL Server
	}
	text, _ := json.Marshal(list) // numbers and strings cannot fail
	return string(text)
}
