package azurecheckpoints

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// PublishedTable is the table of a published consumer that keeps its checkpoints in SQL Server, in
// one transaction with what it writes: Topic, PartitionID, SequenceNumber, Offset.
const PublishedTable = "EventHubCheckpoint"

// mostRows bounds what is read of a table.
const mostRows = 100_000

// tableName is a name that needs no quotes, with or without a schema.
var tableName = regexp.MustCompile(`^[\pL_][\pL\pN_$]*(\.[\pL_][\pL\pN_$]*)?$`)

// ReadTable finds the checkpoints of a topic in a table such as [PublishedTable]. Topics are
// compared case-insensitively, as SQL Server does by default. The table is only read. It knows
// neither a consumer group nor an owner. Found.Others are the other topics.
func ReadTable(ctx context.Context, db *sql.DB, table, topic string) (Found, error) {
	var found Found
	_, err := eachRow(ctx, db, table, func(r *tableRow) error {
		if !strings.EqualFold(r.topic.String, topic) {
			if !slices.Contains(found.Others, r.topic.String) {
				found.Others = append(found.Others, r.topic.String)
			}
			return nil
		}
		if r.ofLetters {
			return errors.New("is one of dead letters: name that of the checkpoints with --table")
		}
		c, there := r.checkpoint()
		if slices.ContainsFunc(found.Checkpoints, func(other Checkpoint) bool { return other.Partition == c.Partition }) {
			return fmt.Errorf("has several rows of partition %s, with topics that differ in case: delete all but one", c.Partition)
		}
		if there {
			found.Checkpoints = append(found.Checkpoints, c)
		}
		return nil
	})
	slices.SortFunc(found.Checkpoints, func(a, b Checkpoint) int { return compare(a.Partition, b.Partition) })
	return found, err
}

// eachRow reads a table with the columns of [PublishedTable], and calls fn with each row. The name
// of the table belongs before fn's errors. It returns the columns' names as the table has them, by
// those in lower case.
func eachRow(ctx context.Context, db *sql.DB, table string, fn func(*tableRow) error) (columns map[string]string, err error) {
	if !tableName.MatchString(table) {
		return nil, fmt.Errorf("%q is not the name of a table: write NAME or SCHEMA.NAME, of letters, digits and _", table)
	}
	if err := db.PingContext(ctx); err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, "SELECT * FROM "+table)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w: correct its name (--table), or grant SELECT on it", table, err)
	}
	defer rows.Close()
	row, err := newTableRow(rows)
	if err != nil {
		return nil, fmt.Errorf("table %s %w", table, err)
	}
	for n := 0; rows.Next(); n++ {
		if n == mostRows {
			return nil, fmt.Errorf("table %s has more than %d rows: check that it is the right table", table, mostRows)
		}
		if err := rows.Scan(row.columns...); err != nil {
			return nil, fmt.Errorf("table %s: row %d, partition %q: %w: correct it", table, n+1, row.partition.String, err)
		}
		row.trim()
		if err := fn(row); err != nil {
			return nil, fmt.Errorf("table %s %w", table, err)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("table %s: %w", table, err)
	}
	return row.names, nil
}

// tableRow is the destination of a row.
type tableRow struct {
	topic, partition, offset sql.NullString
	sequence                 sql.NullInt64
	failedAt, failure        any  // of [PublishedDeadLetters]; nil if there is no such column, or NULL
	ofLetters                bool // the table has both of these columns
	columns                  []any
	names                    map[string]string // of the columns, by those in lower case
}

// newTableRow finds the columns by their names, in any case and order; others are ignored.
func newTableRow(rows *sql.Rows) (*tableRow, error) {
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	r := &tableRow{names: map[string]string{}}
	missing := map[string]any{
		"topic": &r.topic, "partitionid": &r.partition, "sequencenumber": &r.sequence, "offset": &r.offset,
		"failedat": &r.failedAt, "error": &r.failure,
	}
	for _, name := range names {
		written := name
		name = strings.ToLower(name)
		r.names[name] = written
		column := missing[name]
		if delete(missing, name); column == nil {
			column = new(any)
		}
		r.columns = append(r.columns, column)
	}
	r.ofLetters = missing["failedat"] == nil && missing["error"] == nil
	for _, name := range []string{"topic", "partitionid", "sequencenumber", "offset"} {
		if missing[name] != nil {
			return nil, errors.New("does not have the columns Topic, PartitionID, SequenceNumber and Offset: name another with --table")
		}
	}
	return r, nil
}

// trim removes the blanks to which a column of type char(n) pads its values.
func (r *tableRow) trim() {
	for _, text := range []*sql.NullString{&r.topic, &r.partition, &r.offset} {
		text.String = strings.TrimRight(text.String, " ")
	}
}

// checkpoint returns the checkpoint of the row. There is false for a partition of which no event
// was processed: the consumer makes its row with number 0 and offset -1.
func (r *tableRow) checkpoint() (c Checkpoint, there bool) {
	c = Checkpoint{Partition: r.partition.String, Sequence: -1, Offset: offset(r.offset.String)}
	if n := r.sequence.Int64; r.sequence.Valid && (n > 0 || n == 0 && c.Offset != "") {
		c.Sequence = n
	}
	return c, c.Sequence >= 0 || c.Offset != ""
}
