package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Leases keeps the leases of consumer groups. With SQLite they are in a file of
// their own beside the database, so that a long handler, which holds the only write lock of the
// database, does not delay renewals. It is safe for
// concurrent use.
type Leases struct {
	name    string
	dialect dialect
	sql     *statements
	busy    time.Duration // how long a transaction is repeated that another process has won against
	db      *sql.DB
}

// Acquire implements [driver.LeaseStore].
func (l *Leases) Acquire(ctx context.Context, group driver.Group, partition, owner string, ttl time.Duration, above int64) (driver.Lease, error) {
	lease := driver.Lease{Group: group, Partition: partition, Owner: owner}
	if above == math.MaxInt64 {
		return lease, fmt.Errorf("acquire lease of partition %s: there is no epoch above %d: remove the checkpoint or the reader that claims this epoch", partition, above)
	}
	free := false
	err := retryBusy(ctx, l.dialect, l.busy, func() (err error) {
		free, err = l.take(ctx, &lease, max(above+1, 1), ttl)
		return err
	})
	switch {
	case err != nil:
		return lease, l.outage(ctx, "acquire lease of partition "+partition, err)
	case !free:
		if err := l.renewFuture(ctx, group); err != nil {
			return lease, l.outage(ctx, "acquire lease of partition "+partition, err)
		}
		return lease, fmt.Errorf("acquire lease of partition %s: %w", partition, driver.ErrHeld)
	}
	return lease, nil
}

// take takes a lease that is free, and reports whether it is.
func (l *Leases) take(ctx context.Context, lease *driver.Lease, lowest int64, ttl time.Duration) (free bool, err error) {
	of, owner, ms := key(lease.Group, lease.Partition), clean(lease.Owner), ttl.Milliseconds()
	update := write{l.sql.TakeLease, slices.Concat([]any{owner, lowest, ms}, of, []any{owner})}
	insert := write{l.sql.AddLease, slices.Concat(of, []any{owner, lowest, ms})}
	tx, err := l.db.BeginTx(ctx, l.dialect.txOptions())
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	if free, err = upsert(ctx, tx, l.dialect, update, insert); err != nil || !free {
		return false, err
	}
	if _, err := one(ctx, tx, l.sql.Epoch, of, &lease.Epoch, &lease.Began); err != nil {
		return false, err
	}
	return true, tx.Commit()
}

// renewFuture has leases that were renewed in the future, before the clock was set back, renewed
// now for the same time. The owner of such a lease may be gone.
func (l *Leases) renewFuture(ctx context.Context, group driver.Group) error {
	return retryBusy(ctx, l.dialect, l.busy, func() error {
		_, err := changed(ctx, l.db, l.sql.Future, key(group, "")[:3]...)
		return err
	})
}

// Renew implements [driver.LeaseStore].
func (l *Leases) Renew(ctx context.Context, lease driver.Lease, ttl time.Duration) error {
	args := append([]any{ttl.Milliseconds()}, leaseArgs(lease)...)
	n, err := changed(ctx, l.db, l.sql.Renew, args...)
	switch {
	case err != nil:
		return l.outage(ctx, "renew lease of partition "+lease.Partition, err)
	case n != 1:
		return fmt.Errorf("renew lease of partition %s: it is not %s's in epoch %d any more: %w", lease.Partition, lease.Owner, lease.Epoch, driver.ErrFenced)
	}
	return nil
}

// MarkBegan implements [driver.LeaseStore].
func (l *Leases) MarkBegan(ctx context.Context, lease driver.Lease, incarnation string) error {
	args := append([]any{clean(incarnation)}, leaseArgs(lease)...)
	n, err := changed(ctx, l.db, l.sql.MarkBegan, args...)
	if err == nil && n == 0 && l.sql.Began != "" { // MySQL may count a row that stays as it is as none
		var found bool
		if found, err = one(ctx, l.db, l.sql.Began, args, new(int)); found {
			n = 1
		}
	}
	switch {
	case err != nil:
		return l.outage(ctx, "mark lease of partition "+lease.Partition, err)
	case n != 1:
		return fmt.Errorf("mark lease of partition %s: it is not %s's in epoch %d any more: %w", lease.Partition, lease.Owner, lease.Epoch, driver.ErrFenced)
	}
	return nil
}

// renewAtOnce is how many leases one statement renews: a server may take 2,100 arguments.
const renewAtOnce = 256

// RenewAll implements [driver.LeaseRenewer].
func (l *Leases) RenewAll(ctx context.Context, leases []driver.Lease, ttl time.Duration) error {
	for some := range slices.Chunk(leases, renewAtOnce) {
		args := append([]any{ttl.Milliseconds()}, key(some[0].Group, "")[:3]...)
		args = append(args, clean(some[0].Owner))
		for _, lease := range some {
			args = append(args, clean(lease.Partition), lease.Epoch)
		}
		query := l.sql.RenewAll + ` (partition = ? AND epoch = ?` + strings.Repeat(` OR partition = ? AND epoch = ?`, len(some)-1) + `)`
		n, err := changed(ctx, l.db, l.dialect.rebind(query), args...)
		switch {
		case err != nil:
			return l.outage(ctx, fmt.Sprintf("renew %d leases", len(some)), err)
		case n != int64(len(some)):
			return fmt.Errorf("renew %d leases: %d of them are not %s's any more", len(some), int64(len(some))-n, some[0].Owner)
		}
	}
	return nil
}

// Release implements [driver.LeaseStore].
func (l *Leases) Release(ctx context.Context, lease driver.Lease) error {
	if _, err := changed(ctx, l.db, l.sql.Release, leaseArgs(lease)...); err != nil {
		return l.outage(ctx, "release lease of partition "+lease.Partition, err)
	}
	return nil
}

// List implements [driver.LeaseStore].
func (l *Leases) List(ctx context.Context, group driver.Group) ([]driver.LeaseInfo, error) {
	list, future, err := l.list(ctx, group)
	if future && err == nil {
		if err = l.renewFuture(ctx, group); err == nil {
			list, _, err = l.list(ctx, group)
		}
	}
	if err != nil {
		return nil, l.outage(ctx, "list leases of "+group.String(), err)
	}
	return list, nil
}

// list also reports whether a lease was renewed in the future.
func (l *Leases) list(ctx context.Context, group driver.Group) (list []driver.LeaseInfo, future bool, err error) {
	rows, err := l.db.QueryContext(ctx, l.sql.Leases, key(group, "")[:3]...)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	for rows.Next() {
		info := driver.LeaseInfo{Lease: driver.Lease{Group: group}}
		var ms int64
		var renewed storedTime
		var ahead bool
		if err := rows.Scan(&info.Partition, &info.Owner, &info.Epoch, &info.Began, &ms, &renewed, &ahead); err != nil {
			return nil, false, err
		}
		future = future || ahead
		info.Remaining, info.Renewed = time.Duration(ms)*time.Millisecond, renewed.Time
		list = append(list, info)
	}
	return list, future, rows.Err()
}

func (l *Leases) outage(ctx context.Context, what string, err error) error {
	return outage(ctx, l.dialect, l.name, what, err)
}

// leaseArgs names a lease in one epoch.
func leaseArgs(lease driver.Lease) []any {
	return append(key(lease.Group, lease.Partition), clean(lease.Owner), lease.Epoch)
}
