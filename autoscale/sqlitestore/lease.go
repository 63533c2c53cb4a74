package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// TakeLease implements [autoscale.Store], by the clock of this machine. If that was set
// back by more than the duration of a lease, the lease has expired; by less, it lasts so
// much longer.
func (s *Store) TakeLease(ctx context.Context, resource string, l autoscale.Lease) (held *autoscale.Lease, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		now := time.Now()
		held, err = otherLease(ctx, tx, resource, l.Owner, now)
		if err != nil || held != nil {
			return err
		}
		content, err := json.Marshal(l)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO leases (resource, owner, until, content) VALUES (?, ?, ?, ?)",
			resource, l.Owner, now.Add(l.Duration).UnixNano(), string(content))
		return err
	})
	if err != nil {
		return nil, s.fail("take lease of "+resource, err)
	}
	return held, nil
}

// otherLease returns the lease of another owner, nil if there is none that has not
// expired.
func otherLease(ctx context.Context, tx *sql.Tx, resource, owner string, now time.Time) (*autoscale.Lease, error) {
	var until int64
	var content string
	err := tx.QueryRowContext(ctx, "SELECT until, content FROM leases WHERE resource = ? AND owner <> ?", resource, owner).Scan(&until, &content)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	held := &autoscale.Lease{}
	if err := json.Unmarshal([]byte(content), held); err != nil {
		return nil, err
	}
	if left := time.Unix(0, until).Sub(now); left <= 0 || left > 2*held.Duration {
		return nil, nil
	}
	return held, nil
}

// ReleaseLease implements [autoscale.Store].
func (s *Store) ReleaseLease(ctx context.Context, resource, owner string) error {
	if _, err := s.db.ExecContext(ctx, "DELETE FROM leases WHERE resource = ? AND owner = ?", resource, owner); err != nil {
		return s.fail("release lease of "+resource, err)
	}
	return nil
}
