package pgstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/property"
)

const parkSQL = `
INSERT INTO @sluice_dead_letters AS d (namespace, topic, consumer_group, incarnation, partition, sequence_number, event_offset, enqueued_at,
  failed_at, error, attempts, status, next_attempt, partition_key, message_id, correlation_id, content_type, has_body, body, properties)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, coalesce($9, clock_timestamp()), $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
ON CONFLICT (namespace, topic, consumer_group, incarnation, partition, sequence_number) DO UPDATE
SET failed_at = excluded.failed_at, error = excluded.error, attempts = excluded.attempts, status = excluded.status, next_attempt = excluded.next_attempt`

// park queues the INSERT of a dead letter. One of the same identity keeps its ID and its event.
func (s *Store) park(b *pgx.Batch, group driver.Group, partition string, d *driver.DeadLetter) {
	e := &d.Event
	var body []byte
	var properties *string
	hasBody := d.HasBody
	if hasBody {
		// If the properties cannot be encoded, neither they nor the body are
		// stored: a redrive then reads the whole event from the log again.
		text, err := property.EncodeEvent(e)
		if hasBody = err == nil; hasBody {
			body = append([]byte{}, e.Body...) // not null
			if text != nil {
				t := string(text)
				properties = &t
			}
		}
	}
	b.Queue(s.sql.text(parkSQL),
		group.Namespace, group.Topic, group.Name, clean(d.Incarnation), partition, e.Sequence, clean(e.Offset), timeOrNull(e.Enqueued),
		timeOrNull(d.FailedAt), clean(d.Error), d.Attempts, string(d.Status), nextAttempt(d),
		clean(e.Key), clean(e.MessageID), clean(e.CorrelationID), clean(e.ContentType), hasBody, body, properties)
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// whereRedrive selects one dead letter of a lease's partition that is marked for redrive.
const whereRedrive = `
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND id = $5 AND status = 'retry'`

const removeSQL = `
DELETE FROM @sluice_dead_letters
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND id = ANY($5::bigint[]) AND status = 'retry'`

// remove queues the removal of dead letters whose redrive succeeded: in one statement, because
// without statistics PostgreSQL may look at all dead letters of the partition for each.
func (s *Store) remove(b *pgx.Batch, lease driver.Lease, ids []int64) {
	g := lease.Group
	b.Queue(s.sql.text(removeSQL), g.Namespace, g.Topic, g.Name, lease.Partition, ids)
}

const failedRedriveSQL = `
UPDATE @sluice_dead_letters
SET failed_at = coalesce($6, clock_timestamp()), error = $7, attempts = $8, status = $9, next_attempt = coalesce(clock_timestamp() + $11::interval, $10)` + whereRedrive

// updateFailedRedrive queues the update of a dead letter whose redrive has failed.
func (s *Store) updateFailedRedrive(b *pgx.Batch, lease driver.Lease, d *driver.DeadLetter, postponeFor time.Duration) {
	g := lease.Group
	var postpone *time.Duration
	if d.Status == driver.StatusRetry && postponeFor > 0 {
		postpone = &postponeFor
	}
	b.Queue(s.sql.text(failedRedriveSQL), g.Namespace, g.Topic, g.Name, lease.Partition, d.ID,
		timeOrNull(d.FailedAt), clean(d.Error), d.Attempts, string(d.Status), nextAttempt(d), postpone)
}

// settleEventsSQL locks what it removes in the order in which commands do.
const settleEventsSQL = `
DELETE FROM @sluice_dead_letters WHERE id IN (
  SELECT id FROM @sluice_dead_letters
  WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND incarnation = $4 AND partition = $5
    AND sequence_number > $6 AND sequence_number <= $7 AND sequence_number <> ALL ($8)
  ORDER BY id FOR UPDATE)`

// settleEvents queues the removal of the dead letters of a step's events, without those that the
// step stores.
func (s *Store) settleEvents(b *pgx.Batch, step *driver.Step) {
	stored := make([]int64, len(step.DeadLetters))
	for i := range step.DeadLetters {
		stored[i] = step.DeadLetters[i].Event.Sequence
	}
	g := step.Lease.Group
	b.Queue(s.sql.text(settleEventsSQL), g.Namespace, g.Topic, g.Name, clean(step.SettleIncarnation), step.Lease.Partition,
		step.From.Sequence, step.To.Sequence, stored)
}

// nextAttempt returns the time of the next attempt, nil if there is none.
func nextAttempt(d *driver.DeadLetter) *time.Time {
	if d.Status != driver.StatusRetry {
		return nil
	}
	return &d.NextAttempt
}

const (
	deadLetterColumns = `id, incarnation, partition, sequence_number, event_offset, enqueued_at, failed_at, error, attempts, status, next_attempt,
  partition_key, message_id, correlation_id, content_type, has_body`
	contentColumns = deadLetterColumns + `, body, properties`
)

// scanDeadLetter reads a row of letterColumns or contentColumns.
func scanDeadLetter(row pgx.CollectableRow) (d driver.DeadLetter, err error) {
	e := &d.Event
	var enqueued, next *time.Time
	var properties pgtype.Text
	dest := []any{
		&d.ID, &d.Incarnation, &e.Partition, &e.Sequence, &e.Offset, &enqueued, &d.FailedAt, &d.Error, &d.Attempts, &d.Status, &next,
		&e.Key, &e.MessageID, &e.CorrelationID, &e.ContentType, &d.HasBody,
	}
	withContent := len(row.FieldDescriptions()) > len(dest)
	if withContent {
		dest = append(dest, &e.Body, &properties)
	}
	if err := row.Scan(dest...); err != nil {
		return d, err
	}
	d.FailedAt = d.FailedAt.UTC()
	if enqueued != nil {
		e.Enqueued = enqueued.UTC()
	}
	if next != nil {
		d.NextAttempt = next.UTC()
	}
	if withContent && d.HasBody {
		if err := property.DecodeEvent([]byte(properties.String), e); err != nil {
			return d, fmt.Errorf("dead letter %d: %w", d.ID, err)
		}
	}
	return d, nil
}

const dueSQL = `
SELECT ` + contentColumns + ` FROM @sluice_dead_letters
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND status = 'retry' AND next_attempt <= clock_timestamp()
ORDER BY sequence_number, id LIMIT $5`

// Due implements [driver.TxStore] and [driver.DeadLetterQueue].
func (s *Store) Due(ctx context.Context, group driver.Group, partition string, limit int) ([]driver.DeadLetter, error) {
	list, err := s.query(ctx, group, dueSQL, group.Namespace, group.Topic, group.Name, partition, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("read dead letters to redrive of partition %s: %w", partition, err)
	}
	return list, nil
}

// One look into the index for each partition: it reads no dead letters but those marked for
// redrive.
const duePartitionsSQL = `
SELECT name FROM unnest($4::text[]) AS list (name)
WHERE EXISTS (
	SELECT 1 FROM @sluice_dead_letters
	WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = name AND status = 'retry' AND next_attempt <= clock_timestamp())`

// DuePartitions implements [driver.RedriveFinder].
func (s *Store) DuePartitions(ctx context.Context, group driver.Group, partitions []string) ([]string, error) {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return nil, fmt.Errorf("look for dead letters to redrive: %w", err)
	}
	defer conn.Release()
	rows, _ := conn.Query(ctx, s.sql.text(duePartitionsSQL), group.Namespace, group.Topic, group.Name, partitions) // CollectRows returns the error
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for dead letters to redrive: %w", err)
	}
	return list, nil
}

// List implements [driver.DeadLetterStore].
func (s *Store) List(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter) ([]driver.DeadLetter, error) {
	c := selection(group, filter)
	sql := `SELECT ` + deadLetterColumns + ` FROM @sluice_dead_letters` + c.ordered(filter.Limit)
	list, err := s.query(ctx, group, sql, c.args...)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return list, nil
}

// Count implements [driver.DeadLetterStore].
func (s *Store) Count(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter) ([]driver.DeadLetterCount, error) {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", err)
	}
	defer conn.Release()
	c := selection(group, filter)
	sql := s.sql.text(`SELECT partition, status, count(*) FROM @sluice_dead_letters` + c.where() + ` GROUP BY partition, status`)
	rows, _ := conn.Query(ctx, sql, c.args...) // CollectRows returns the error
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[driver.DeadLetterCount])
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", err)
	}
	return list, nil
}

// Get implements [driver.DeadLetterStore].
func (s *Store) Get(ctx context.Context, group driver.Group, id int64) (driver.DeadLetter, error) {
	c := selection(group, driver.DeadLetterFilter{IDs: []int64{id}})
	list, err := s.query(ctx, group, `SELECT `+contentColumns+` FROM @sluice_dead_letters`+c.where(), c.args...)
	if err == nil && len(list) == 0 {
		err = driver.ErrNotFound
	}
	if err != nil {
		return driver.DeadLetter{}, fmt.Errorf("dead letter %d of %v: %w", id, group, err)
	}
	return list[0], nil
}

func (s *Store) query(ctx context.Context, group driver.Group, sql string, args ...any) ([]driver.DeadLetter, error) {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	rows, _ := conn.Query(ctx, s.sql.text(sql), args...) // CollectRows returns the error
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (driver.DeadLetter, error) {
		d, err := scanDeadLetter(row)
		d.Group = group
		return d, err
	})
}

// Redrive implements [driver.DeadLetterStore].
func (s *Store) Redrive(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter, at time.Time) (int64, error) {
	n, err := s.mark(ctx, group, filter, `status = 'retry', next_attempt = coalesce($1::timestamptz, clock_timestamp())`, timeOrNull(at))
	if err != nil {
		return 0, fmt.Errorf("redrive dead letters: %w", err)
	}
	return n, nil
}

// Discard implements [driver.DeadLetterStore].
func (s *Store) Discard(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter) (int64, error) {
	n, err := s.mark(ctx, group, filter, `status = 'discarded', next_attempt = NULL`)
	if err != nil {
		return 0, fmt.Errorf("discard dead letters: %w", err)
	}
	return n, nil
}

// mark changes the selected dead letters. It locks them in order, so that two commands cannot
// deadlock. A dead letter whose redrive commits meanwhile is gone when its row is reached.
func (s *Store) mark(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter, set string, args ...any) (int64, error) {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	c := selection(group, filter, args...)
	sql := `UPDATE @sluice_dead_letters SET ` + set + ` WHERE id IN (SELECT id FROM @sluice_dead_letters` + c.ordered(filter.Limit) + ` FOR UPDATE)`
	tag, err := once(ctx, conn.Conn(), limits{idle: s.cfg.LeaseFor}, s.sql.text(sql), c.args)
	return tag.RowsAffected(), err
}

// conditions builds a WHERE clause.
type conditions struct {
	terms []string
	args  []any
}

// and adds a term; its "?" stands for the argument.
func (c *conditions) and(term string, arg any) {
	c.args = append(c.args, arg)
	c.terms = append(c.terms, strings.ReplaceAll(term, "?", fmt.Sprintf("$%d", len(c.args))))
}

func (c *conditions) where() string { return ` WHERE ` + strings.Join(c.terms, ` AND `) }

// ordered returns the clause with order and limit; a limit of 0 means none.
func (c *conditions) ordered(limit int) string {
	if limit <= 0 {
		return c.where() + ` ORDER BY id`
	}
	c.args = append(c.args, limit)
	return c.where() + fmt.Sprintf(` ORDER BY id LIMIT $%d`, len(c.args))
}

// selection selects dead letters of a group. Its arguments come after args.
func selection(group driver.Group, f driver.DeadLetterFilter, args ...any) *conditions {
	c := &conditions{args: args}
	c.and(`namespace = ?`, group.Namespace)
	c.and(`topic = ?`, group.Topic)
	c.and(`consumer_group = ?`, group.Name)
	if len(f.IDs) > 0 {
		c.and(`id = ANY (?)`, f.IDs)
	}
	if f.AfterID > 0 {
		c.and(`id > ?`, f.AfterID)
	}
	if f.Partition != "" {
		c.and(`partition = ?`, f.Partition)
	}
	if len(f.Status) > 0 {
		status := make([]string, len(f.Status))
		for i, st := range f.Status {
			status[i] = string(st)
		}
		c.and(`status = ANY (?)`, status)
	}
	if f.Key != "" {
		c.and(`partition_key = ?`, clean(f.Key))
	}
	if f.ErrorContains != "" {
		c.and(`position(lower(?) IN lower(error)) > 0`, clean(f.ErrorContains))
	}
	if !f.FailedSince.IsZero() {
		c.and(`failed_at >= ?`, f.FailedSince)
	}
	if !f.FailedBefore.IsZero() {
		c.and(`failed_at < ?`, f.FailedBefore)
	}
	if f.FirstSequence != nil {
		c.and(`sequence_number >= ?`, *f.FirstSequence)
	}
	if f.LastSequence != nil {
		c.and(`sequence_number <= ?`, *f.LastSequence)
	}
	return c
}
