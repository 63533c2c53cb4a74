package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// The statement that stores dead letters is that for one, with a row for each.
var (
	mysqlParkInto, mysqlParkRow, mysqlParkAgain = func() (into, row, again string) {
		into, rest, _ := strings.Cut(mysqlStatements.Park, "VALUES ")
		end := strings.Index(rest, ")") + 1
		return into + "VALUES ", rest[:end], rest[end:]
	}()

	// sequenceColumn is the index of a dead letter's sequence number in its row.
	sequenceColumn = slices.Index(strings.Split(strings.TrimPrefix(deadLetterColumns, "id, "), ", "), "sequence_number")
)

// park stores dead letters in one statement, or several if they are large.
func (d mysqlDialect) park(ctx context.Context, tx querier, rows [][]any) (done bool, err error) {
	for len(rows) > 0 {
		chunk := firstChunk(rows, d.chunk())
		text := mysqlParkInto + mysqlParkRow + strings.Repeat(", "+mysqlParkRow, len(chunk)-1) + mysqlParkAgain
		if _, err := tx.ExecContext(ctx, text, slices.Concat(chunk...)...); err != nil {
			return true, fmt.Errorf("dead letters of events %d to %d: %w", chunk[0][sequenceColumn], chunk[len(chunk)-1][sequenceColumn], err)
		}
		rows = rows[len(chunk):]
	}
	return true, nil
}
