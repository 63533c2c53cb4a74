package sqlstore

import (
	"context"
	"database/sql"

	"github.com/sluice-go/sluice/driver"
)

var (
	_ driver.GroupLister = (*Leases)(nil)
	_ driver.GroupLister = (*Store)(nil)
)

// Groups implements [driver.GroupLister].
func (l *Leases) Groups(ctx context.Context, _ driver.Group) ([]driver.Group, error) {
	groups, err := groupsOf(ctx, l.db, `SELECT DISTINCT namespace, topic, consumer_group FROM sluice_leases`)
	if err != nil {
		return nil, l.outage(ctx, "list groups", err)
	}
	return groups, nil
}

// Groups implements [driver.GroupLister].
func (s *Store) Groups(ctx context.Context, _ driver.Group) ([]driver.Group, error) {
	groups, err := groupsOf(ctx, s.reader, `SELECT DISTINCT namespace, topic, consumer_group FROM sluice_checkpoints`)
	if err != nil {
		return nil, s.outage(ctx, "list groups", err)
	}
	return groups, nil
}

func groupsOf(ctx context.Context, db *sql.DB, query string) (groups []driver.Group, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var g driver.Group
		if err := rows.Scan(&g.Namespace, &g.Topic, &g.Name); err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	return groups, rows.Err()
}
