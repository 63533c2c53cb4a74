package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice/driver"
)

// Leases keeps leases in PostgreSQL, by the server's clock. Every operation is
// one statement. It is safe for concurrent use.
type Leases struct {
	pool   *pgxpool.Pool
	sql    *statements
	limits limits
}

var (
	_ driver.LeaseStore   = (*Leases)(nil)
	_ driver.LeaseRenewer = (*Leases)(nil)
)

// released is the expiry of a released lease: a time that no clock that is set back returns to.
const released = `'epoch'::timestamptz`

const acquireSQL = `
INSERT INTO @sluice_leases AS l (namespace, topic, consumer_group, partition, owner, epoch, expires_at, renewed_at)
VALUES ($1, $2, $3, $4, $5, greatest($6::bigint, 0) + 1, clock_timestamp() + $7 * interval '1 microsecond', clock_timestamp())
ON CONFLICT (namespace, topic, consumer_group, partition) DO UPDATE
SET owner = excluded.owner, epoch = greatest(l.epoch + 1, excluded.epoch), expires_at = clock_timestamp() + $7 * interval '1 microsecond', renewed_at = clock_timestamp()
WHERE l.owner = excluded.owner OR l.expires_at <= clock_timestamp()
RETURNING epoch, began_incarnation`

// futureSQL has the leases that were renewed in the future, before the clock was set back,
// renewed now for the same time. The owner of such a lease may be gone. A row that somebody
// has locked is left for the next time.
const futureSQL = `
UPDATE @sluice_leases AS l
SET renewed_at = clock_timestamp(), expires_at = CASE WHEN expires_at > ` + released + ` THEN clock_timestamp() + (expires_at - renewed_at) ELSE expires_at END
WHERE (namespace, topic, consumer_group, partition) IN (
  SELECT namespace, topic, consumer_group, partition FROM @sluice_leases
  WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND renewed_at > clock_timestamp()
  FOR UPDATE SKIP LOCKED)`

const holderSQL = `
SELECT owner, extract(epoch FROM expires_at - clock_timestamp())::float8 FROM @sluice_leases
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4`

// Acquire implements [driver.LeaseStore].
func (l *Leases) Acquire(ctx context.Context, group driver.Group, partition, owner string, ttl time.Duration, above int64) (driver.Lease, error) {
	conn, err := acquire(ctx, l.pool)
	if err != nil {
		return driver.Lease{}, fmt.Errorf("acquire lease: %w", err)
	}
	defer conn.Release()
	lease := driver.Lease{Group: group, Partition: partition, Owner: owner}
	args := []any{group.Namespace, group.Topic, group.Name, partition, owner, above, ttl.Microseconds()}
	_, err = once(ctx, conn.Conn(), l.limits, l.sql.text(acquireSQL), args, &lease.Epoch, &lease.Began)
	if err == nil {
		return lease, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return driver.Lease{}, fmt.Errorf("acquire lease on partition %s: %w", partition, err)
	}
	if err := l.renewFuture(ctx, conn.Conn(), group); err != nil {
		return driver.Lease{}, fmt.Errorf("acquire lease on partition %s: %w", partition, err)
	}
	var holder string
	var seconds float64
	err = conn.QueryRow(ctx, l.sql.text(holderSQL), group.Namespace, group.Topic, group.Name, partition).Scan(&holder, &seconds)
	if err != nil {
		return driver.Lease{}, fmt.Errorf("read holder of partition %s: %w", partition, err)
	}
	left := time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
	return driver.Lease{}, fmt.Errorf("partition %s, held by %s for another %v: %w", partition, holder, max(left, 0), driver.ErrHeld)
}

func (l *Leases) renewFuture(ctx context.Context, conn *pgx.Conn, group driver.Group) error {
	_, err := once(ctx, conn, l.limits, l.sql.text(futureSQL), []any{group.Namespace, group.Topic, group.Name})
	return err
}

const markBeganSQL = `
UPDATE @sluice_leases SET began_incarnation = $7
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND owner = $5 AND epoch = $6`

// MarkBegan implements [driver.LeaseStore].
func (l *Leases) MarkBegan(ctx context.Context, lease driver.Lease, incarnation string) error {
	changed, err := l.exec(ctx, markBeganSQL, lease, clean(incarnation))
	if err == nil && !changed {
		err = driver.ErrFenced
	}
	if err != nil {
		return fmt.Errorf("mark lease on partition %s in epoch %d: %w", lease.Partition, lease.Epoch, err)
	}
	return nil
}

const renewSQL = `
UPDATE @sluice_leases SET expires_at = clock_timestamp() + $7 * interval '1 microsecond', renewed_at = clock_timestamp()
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND owner = $5 AND epoch = $6
  AND expires_at > ` + released

// Renew implements [driver.LeaseStore].
func (l *Leases) Renew(ctx context.Context, lease driver.Lease, ttl time.Duration) error {
	changed, err := l.exec(ctx, renewSQL, lease, ttl.Microseconds())
	if err == nil && !changed {
		err = driver.ErrFenced
	}
	if err != nil {
		return fmt.Errorf("renew lease on partition %s in epoch %d: %w", lease.Partition, lease.Epoch, err)
	}
	return nil
}

// renewAllSQL leaves out the rows that somebody has locked, so that these do not delay the others.
const renewAllSQL = `
WITH mine AS (
  SELECT l.partition FROM @sluice_leases AS l
  JOIN unnest($4::text[], $6::bigint[]) AS of (partition, epoch) ON l.partition = of.partition AND l.epoch = of.epoch
  WHERE l.namespace = $1 AND l.topic = $2 AND l.consumer_group = $3 AND l.owner = $5 AND l.expires_at > ` + released + `
  FOR NO KEY UPDATE OF l SKIP LOCKED)
UPDATE @sluice_leases AS l SET expires_at = clock_timestamp() + $7 * interval '1 microsecond', renewed_at = clock_timestamp()
FROM mine WHERE l.namespace = $1 AND l.topic = $2 AND l.consumer_group = $3 AND l.partition = mine.partition`

// RenewAll implements [driver.LeaseRenewer], in one statement.
func (l *Leases) RenewAll(ctx context.Context, leases []driver.Lease, ttl time.Duration) error {
	if len(leases) == 0 {
		return nil
	}
	partitions, epochs := make([]string, len(leases)), make([]int64, len(leases))
	for i, lease := range leases {
		partitions[i], epochs[i] = lease.Partition, lease.Epoch
	}
	group, owner := leases[0].Group, leases[0].Owner
	conn, err := acquire(ctx, l.pool)
	if err != nil {
		return fmt.Errorf("renew %d leases: %w", len(leases), err)
	}
	defer conn.Release()
	args := []any{group.Namespace, group.Topic, group.Name, partitions, owner, epochs, ttl.Microseconds()}
	tag, err := once(ctx, conn.Conn(), l.limits, l.sql.text(renewAllSQL), args)
	if err == nil && tag.RowsAffected() != int64(len(leases)) {
		err = fmt.Errorf("%d of them are locked or not %s's any more", int64(len(leases))-tag.RowsAffected(), owner)
	}
	if err != nil {
		return fmt.Errorf("renew %d leases: %w", len(leases), err)
	}
	return nil
}

const releaseSQL = `
UPDATE @sluice_leases SET expires_at = ` + released + `
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND owner = $5 AND epoch = $6`

// Release implements [driver.LeaseStore].
func (l *Leases) Release(ctx context.Context, lease driver.Lease) error {
	if _, err := l.exec(ctx, releaseSQL, lease); err != nil {
		return fmt.Errorf("release lease on partition %s in epoch %d: %w", lease.Partition, lease.Epoch, err)
	}
	return nil
}

// exec runs a statement about one lease and reports whether it changed its row.
func (l *Leases) exec(ctx context.Context, sql string, lease driver.Lease, args ...any) (bool, error) {
	conn, err := acquire(ctx, l.pool)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	tag, err := once(ctx, conn.Conn(), l.limits, l.sql.text(sql), append(leaseArgs(lease), args...))
	return tag.RowsAffected() == 1, err
}

// leaseArgs are the arguments $1 to $6 of statements about a lease.
func leaseArgs(l driver.Lease) []any {
	return []any{l.Group.Namespace, l.Group.Topic, l.Group.Name, l.Partition, l.Owner, l.Epoch}
}

const leasesSQL = `
SELECT partition, owner, epoch, began_incarnation, renewed_at,
  CASE WHEN expires_at > ` + released + ` THEN extract(epoch FROM expires_at - clock_timestamp())::float8 ELSE 0 END,
  renewed_at > clock_timestamp()
FROM @sluice_leases WHERE namespace = $1 AND topic = $2 AND consumer_group = $3
ORDER BY partition COLLATE "C"`

// List implements [driver.LeaseStore].
func (l *Leases) List(ctx context.Context, group driver.Group) ([]driver.LeaseInfo, error) {
	conn, err := acquire(ctx, l.pool)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	defer conn.Release()
	list, future, err := l.list(ctx, conn.Conn(), group)
	if future && err == nil {
		if err = l.renewFuture(ctx, conn.Conn(), group); err == nil {
			list, _, err = l.list(ctx, conn.Conn(), group)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	return list, nil
}

// list also reports whether a lease was renewed in the future.
func (l *Leases) list(ctx context.Context, conn *pgx.Conn, group driver.Group) (list []driver.LeaseInfo, future bool, err error) {
	rows, _ := conn.Query(ctx, l.sql.text(leasesSQL), group.Namespace, group.Topic, group.Name) // CollectRows returns the error
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (driver.LeaseInfo, error) {
		info := driver.LeaseInfo{Lease: driver.Lease{Group: group}}
		var seconds float64
		var ahead bool
		err := row.Scan(&info.Partition, &info.Owner, &info.Epoch, &info.Began, &info.Renewed, &seconds, &ahead)
		future = future || ahead
		info.Remaining = time.Duration(seconds * float64(time.Second))
		return info, err
	})
	return list, future, err
}
