package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
)

var (
	_ driver.GroupLister = (*Leases)(nil)
	_ driver.GroupLister = (*Store)(nil)
)

const groupsSQL = `
SELECT namespace, topic, consumer_group FROM @sluice_leases
UNION
SELECT namespace, topic, consumer_group FROM @sluice_checkpoints`

// Groups implements [driver.GroupLister].
func (l *Leases) Groups(ctx context.Context, _ driver.Group) ([]driver.Group, error) {
	conn, err := acquire(ctx, l.pool)
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	defer conn.Release()
	rows, _ := conn.Query(ctx, l.sql.text(groupsSQL)) // CollectRows returns the error
	groups, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (g driver.Group, err error) {
		return g, row.Scan(&g.Namespace, &g.Topic, &g.Name)
	})
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	return groups, nil
}

// Groups implements [driver.GroupLister].
func (s *Store) Groups(ctx context.Context, group driver.Group) ([]driver.Group, error) {
	return s.Leases().Groups(ctx, group)
}
