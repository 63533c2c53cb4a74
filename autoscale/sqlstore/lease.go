package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// errRace: other processes have changed the lease again and again, each time between
// reading and writing it.
var errRace = errors.New("other processes change the lease all the time")

// maxRaces is how often a lease that another process has changed is read again.
const maxRaces = 10

// TakeLease implements [autoscale.Store], by the clock of the database, which is that of
// this machine for SQLite. If that was set back by more than the duration of a lease, the
// lease has expired; by less, it lasts so much longer.
func (s *Store) TakeLease(ctx context.Context, resource string, l autoscale.Lease) (*autoscale.Lease, error) {
	content, err := json.Marshal(l)
	for n := 0; err == nil; n++ {
		var held *autoscale.Lease
		var taken bool
		held, taken, err = s.tryTakeLease(ctx, resource, l, string(content))
		switch {
		case err == nil && (taken || held != nil):
			return held, nil
		case err == nil && n == maxRaces:
			err = errRace
		}
	}
	return nil, s.fail("take lease of "+resource, err)
}

// tryTakeLease replaces the lease that it has read: no other one, which a process may have
// taken in the meantime. Then it returns neither held nor taken.
func (s *Store) tryTakeLease(ctx context.Context, resource string, l autoscale.Lease, content string) (held *autoscale.Lease, taken bool, err error) {
	var owner, text string
	var until, now int64
	err = s.db.QueryRowContext(ctx, s.text("SELECT owner, until, content, {now} FROM {leases} WHERE resource = ?"), resource).Scan(&owner, &until, &text, &now)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, false, err
	}
	if err == nil && owner != l.Owner {
		held = &autoscale.Lease{}
		if err := json.Unmarshal([]byte(text), held); err != nil {
			return nil, false, err
		}
		if left := time.Duration(until - now); left > 0 && left <= 2*held.Duration {
			return held, false, nil
		}
	}
	n, err := s.exec(ctx, `INSERT INTO {leases} AS l (resource, owner, until, content) VALUES (?, ?, {now} + ?, ?)
		ON CONFLICT (resource) DO UPDATE SET owner = excluded.owner, until = excluded.until, content = excluded.content
		WHERE l.owner = ? AND l.until = ?`, resource, l.Owner, l.Duration.Nanoseconds(), content, owner, until)
	return nil, n == 1, err
}

// ReleaseLease implements [autoscale.Store].
func (s *Store) ReleaseLease(ctx context.Context, resource, owner string) error {
	if _, err := s.exec(ctx, "DELETE FROM {leases} WHERE resource = ? AND owner = ?", resource, owner); err != nil {
		return s.fail("release lease of "+resource, err)
	}
	return nil
}
