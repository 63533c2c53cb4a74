package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/ranges"
)

const claimSQL = `
INSERT INTO @sluice_checkpoints AS c (namespace, topic, consumer_group, partition, owner, epoch, incarnation, sequence_number, claims, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, clock_timestamp())
ON CONFLICT (namespace, topic, consumer_group, partition) DO UPDATE
SET owner = excluded.owner, epoch = excluded.epoch, claims = c.claims + (c.epoch < excluded.epoch)::int, updated_at = clock_timestamp(),
    done = CASE WHEN c.done_epoch = c.epoch THEN c.done ELSE '' END, done_epoch = excluded.epoch,
    began_how = CASE WHEN c.owner = '' AND c.done_epoch <> c.epoch THEN '' ELSE c.began_how END
WHERE c.epoch < excluded.epoch OR c.epoch = excluded.epoch AND c.owner = excluded.owner
RETURNING ` + checkpointColumns + `,
  (SELECT coalesce(max(d.sequence_number) + 1, 0) FROM @sluice_dead_letters AS d
   WHERE d.namespace = $1 AND d.topic = $2 AND d.consumer_group = $3 AND d.incarnation = $7 AND d.partition = $4)`

// A program that knows version 5 of the tables resets a checkpoint without its beginning and
// without done_epoch.
const checkpointColumns = `incarnation, sequence_number, event_offset, owner, epoch, claims, trial_sequence, trial_dead_letter, trial_attempts, trial_error, trial_unreturned, updated_at,
  CASE WHEN done_epoch = epoch THEN done ELSE '' END,
  began_sequence, CASE WHEN owner = '' AND done_epoch <> epoch THEN '' ELSE began_how END`

// checkpoint is the destination of a row of sluice_checkpoints.
type checkpoint struct {
	driver.Checkpoint
	done string
}

// columns are the places of progressColumns.
func (c *checkpoint) columns() []any {
	return []any{
		&c.Incarnation, &c.Position.Sequence, &c.Position.Offset, &c.Owner, &c.Epoch, &c.Claims,
		&c.Attempt.Sequence, &c.Attempt.DeadLetter, &c.Attempt.Attempts, &c.Attempt.Error, &c.Attempt.Unreturned, &c.Updated, &c.done,
		&c.Began.After, &c.Began.How,
	}
}

// value returns the checkpoint that was scanned.
func (c *checkpoint) value() (p driver.Checkpoint, err error) {
	if !c.Began.Known() {
		c.Began = driver.Beginning{}
	}
	c.Done, err = ranges.Decode(c.Position.Sequence, c.done)
	return c.Checkpoint, err
}

// Claim implements [driver.TxStore] and [driver.CheckpointStore]. One statement
// claims the checkpoint and waits for its row. If a transaction holds the row for longer than
// [Config.LockTimeout], its session is terminated, unless the checkpoint belongs to a later claim.
func (s *Store) Claim(ctx context.Context, lease driver.Lease, incarnation string) (driver.Checkpoint, error) {
	c := checkpoint{Checkpoint: driver.Checkpoint{Group: lease.Group, Partition: lease.Partition}}
	args := append(leaseArgs(lease), clean(incarnation), driver.Unset.Sequence)
	err := s.seize(ctx, &lease, claimSQL, args, append(c.columns(), &c.DeadLettersBelow)...)
	if errors.Is(err, pgx.ErrNoRows) {
		err = s.refused(ctx, lease)
	}
	var p driver.Checkpoint
	if err == nil {
		p, err = c.value()
	}
	if err != nil {
		return driver.Checkpoint{}, fmt.Errorf("claim partition %s: %w", lease.Partition, err)
	}
	return p, nil
}

const resetSQL = `
WITH unseen AS (
  DELETE FROM @sluice_seen WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND step > $6)
INSERT INTO @sluice_checkpoints AS c (namespace, topic, consumer_group, partition, owner, epoch, incarnation, sequence_number, event_offset, claims, updated_at, done_epoch, began_sequence, began_how)
VALUES ($1, $2, $3, $4, '', 1, $5, $6, $7, 0, clock_timestamp(), 1, $6, $8)
ON CONFLICT (namespace, topic, consumer_group, partition) DO UPDATE
SET owner = '', epoch = c.epoch + 1, incarnation = excluded.incarnation, sequence_number = excluded.sequence_number, event_offset = excluded.event_offset,
    claims = 0, trial_sequence = 0, trial_dead_letter = 0, trial_attempts = 0, trial_error = '', trial_unreturned = 0, done = '', updated_at = clock_timestamp(),
    done_epoch = c.epoch + 1, began_sequence = excluded.began_sequence, began_how = excluded.began_how
RETURNING epoch`

// Reset implements [driver.TxStore] and [driver.CheckpointStore]. The new epoch has no
// owner: no lease has that epoch. A transaction in progress on the checkpoint is ended as by
// [Store.Claim].
func (s *Store) Reset(ctx context.Context, group driver.Group, partition, incarnation string, to driver.Position, how driver.How) (int64, error) {
	var epoch int64
	args := []any{group.Namespace, group.Topic, group.Name, partition, clean(incarnation), to.Sequence, clean(to.Offset), string(how)}
	if err := s.seize(ctx, nil, resetSQL, args, &epoch); err != nil {
		return 0, fmt.Errorf("reset checkpoint of partition %s: %w", partition, err)
	}
	return epoch, nil
}

const beginSQL = `
UPDATE @sluice_checkpoints
SET sequence_number = $8, event_offset = $9, began_sequence = $8, began_how = $10, done = '', updated_at = clock_timestamp(),
    trial_sequence = 0, trial_dead_letter = 0, trial_attempts = 0, trial_error = '', trial_unreturned = 0, claims = 1
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND owner = $5 AND epoch = $6 AND sequence_number = $7`

// Begin implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) Begin(ctx context.Context, lease driver.Lease, from, to driver.Position) error {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return fmt.Errorf("store the start of partition %s: %w", lease.Partition, err)
	}
	defer conn.Release()
	args := append(leaseArgs(lease), from.Sequence, to.Sequence, clean(to.Offset), string(driver.HowStart))
	tag, err := once(ctx, conn.Conn(), s.cfg.limits(), s.sql.text(beginSQL), args)
	if err == nil && tag.RowsAffected() == 0 {
		err = s.fenced(ctx, conn.Conn(), lease, notAt(from))
	}
	if err != nil {
		return fmt.Errorf("store the start of partition %s: %w", lease.Partition, err)
	}
	return nil
}

const currentSQL = `
SELECT owner, epoch, sequence_number FROM @sluice_checkpoints
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4`

// current reads owner, epoch and position of the checkpoint.
func (s *Store) current(ctx context.Context, conn *pgx.Conn, lease driver.Lease) (w driver.Checkpoint, err error) {
	g := lease.Group
	err = conn.QueryRow(ctx, s.sql.text(currentSQL), g.Namespace, g.Topic, g.Name, lease.Partition).Scan(&w.Owner, &w.Epoch, &w.Position.Sequence)
	return w, err
}

// refused returns the error of a claim that changed no row.
func (s *Store) refused(ctx context.Context, lease driver.Lease) error {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	w, err := s.current(ctx, conn.Conn(), lease)
	if err != nil {
		return fmt.Errorf("read its checkpoint: %w", err)
	}
	return &driver.FencedError{Partition: lease.Partition, Epoch: w.Epoch, Owner: w.Owner}
}

// fenced returns the error for a checkpoint that was not as expected: always a [driver.ErrFenced].
// It reads the checkpoint only to say more, as expected does.
func (s *Store) fenced(ctx context.Context, conn *pgx.Conn, lease driver.Lease, expected string) error {
	w, err := s.current(ctx, conn, lease)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("partition %s has no checkpoint: %w", lease.Partition, driver.ErrFenced)
	case err != nil:
		return fmt.Errorf("partition %s: %w", lease.Partition, driver.ErrFenced)
	case w.Epoch != lease.Epoch || w.Owner != lease.Owner:
		return &driver.FencedError{Partition: lease.Partition, Epoch: w.Epoch, Owner: w.Owner}
	}
	return fmt.Errorf("partition %s: its checkpoint is at %v, %s: %w", lease.Partition, w.Position, expected, driver.ErrFenced)
}

// notAt is what fenced says of a step's position.
func notAt(p driver.Position) string { return "not at " + p.String() }

const recordSQL = `
UPDATE @sluice_checkpoints SET trial_sequence = $8, trial_dead_letter = $9, trial_attempts = $10, trial_error = $11, trial_unreturned = $12, updated_at = clock_timestamp()
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND owner = $5 AND epoch = $6 AND sequence_number = $7`

// RecordAttempt implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) RecordAttempt(ctx context.Context, lease driver.Lease, at driver.Position, attempt driver.AttemptRecord) error {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return fmt.Errorf("record attempts of partition %s: %w", lease.Partition, err)
	}
	defer conn.Release()
	args := append(leaseArgs(lease), at.Sequence, attempt.Sequence, attempt.DeadLetter, attempt.Attempts, clean(attempt.Error), attempt.Unreturned)
	tag, err := once(ctx, conn.Conn(), s.cfg.limits(), s.sql.text(recordSQL), args)
	if err == nil && tag.RowsAffected() == 0 {
		err = s.fenced(ctx, conn.Conn(), lease, notAt(at))
	}
	if err != nil {
		return fmt.Errorf("record attempts of partition %s: %w", lease.Partition, err)
	}
	return nil
}

const leaveSQL = `
UPDATE @sluice_checkpoints SET claims = 0, updated_at = clock_timestamp()
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND owner = $5 AND epoch = $6`

// Leave implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) Leave(ctx context.Context, lease driver.Lease) error {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return fmt.Errorf("leave partition %s: %w", lease.Partition, err)
	}
	defer conn.Release()
	if _, err := once(ctx, conn.Conn(), s.cfg.limits(), s.sql.text(leaveSQL), leaseArgs(lease)); err != nil {
		return fmt.Errorf("leave partition %s: %w", lease.Partition, err)
	}
	return nil
}

const readSQL = `
SELECT partition, ` + checkpointColumns + ` FROM @sluice_checkpoints
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3
ORDER BY partition COLLATE "C"`

// Read implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) Read(ctx context.Context, group driver.Group) ([]driver.Checkpoint, error) {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return nil, fmt.Errorf("read checkpoints: %w", err)
	}
	defer conn.Release()
	rows, _ := conn.Query(ctx, s.sql.text(readSQL), group.Namespace, group.Topic, group.Name) // CollectRows returns the error
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (driver.Checkpoint, error) {
		c := checkpoint{Checkpoint: driver.Checkpoint{Group: group}}
		if err := row.Scan(append([]any{&c.Partition}, c.columns()...)...); err != nil {
			return c.Checkpoint, err
		}
		return c.value()
	})
	if err != nil {
		return nil, fmt.Errorf("read checkpoints of %v: %w", group, err)
	}
	return list, nil
}
