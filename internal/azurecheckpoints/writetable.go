package azurecheckpoints

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// Words are how the SQL of a database writes parameters and names.
type Words struct {
	Placeholder func(n int) string // of the nth parameter, from 1 on
	Quote       func(name string) string
}

// WriteTable stores the checkpoints of a topic in a table such as [PublishedTable], in one
// transaction. The rows of other topics stay as they are. What the table then has is for the caller
// to read. A partition of which nothing is done gets the row that the published consumer makes:
// number 0, offset -1.
func WriteTable(ctx context.Context, db *sql.DB, w Words, table, topic string, list []Checkpoint) error {
	there := map[string]bool{}
	columns, err := eachRow(ctx, db, table, func(r *tableRow) error {
		if strings.EqualFold(r.topic.String, topic) {
			topic, there[r.partition.String] = r.topic.String, true
		}
		return nil
	})
	if err != nil {
		return err
	}
	column := func(name string) string { return w.Quote(columns[name]) }
	update := fmt.Sprintf("UPDATE %s SET %s = %s, %s = %s WHERE %s = %s AND %s = %s", table,
		column("sequencenumber"), w.Placeholder(1), column("offset"), w.Placeholder(2), column("topic"), w.Placeholder(3), column("partitionid"), w.Placeholder(4))
	insert := fmt.Sprintf("INSERT INTO %s (%s, %s, %s, %s) VALUES (%s, %s, %s, %s)", table,
		column("sequencenumber"), column("offset"), column("topic"), column("partitionid"), w.Placeholder(1), w.Placeholder(2), w.Placeholder(3), w.Placeholder(4))
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, c := range list {
		statement := insert
		if there[c.Partition] {
			statement = update
		}
		if _, err := tx.ExecContext(ctx, statement, max(0, c.Sequence), cmp.Or(c.Offset, "-1"), topic, c.Partition); err != nil {
			return fmt.Errorf("table %s, partition %s: %w: grant INSERT and UPDATE on it", table, c.Partition, err)
		}
	}
	return tx.Commit()
}
