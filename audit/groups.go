package audit

import (
	"context"
	"fmt"

	"github.com/sluice-go/sluice/driver"
)

var _ driver.GroupLister = (*SQLLedger)(nil)

// Groups implements [driver.GroupLister].
func (l *SQLLedger) Groups(ctx context.Context, _ driver.Group) (groups []driver.Group, err error) {
	rows, err := l.db.QueryContext(ctx, `SELECT DISTINCT namespace, topic, consumer_group FROM sluice_checkpoints`)
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var g driver.Group
		if err := rows.Scan(&g.Namespace, &g.Topic, &g.Name); err != nil {
			return nil, fmt.Errorf("list groups: %w", err)
		}
		groups = append(groups, g)
	}
	return groups, rows.Err()
}
