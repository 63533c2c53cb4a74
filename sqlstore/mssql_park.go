package sqlstore

import (
	"context"
	"database/sql/driver"
	"slices"
	"strings"
	"time"
)

// mssqlTime is a time as an argument: a text, because SQL Server would convert the column to the
// type of a time.Time, datetimeoffset.
type mssqlTime struct{ time.Time }

// Value implements [driver.Valuer].
func (t mssqlTime) Value() (driver.Value, error) { return t.Format("2006-01-02T15:04:05.000000"), nil }

const (
	// parkRows is from how many dead letters on a bulk copy of them is worth its round trips.
	parkRows = 20
	// parkChunk is how many are stored by one statement: above 5,000 locks SQL Server locks the
	// table.
	parkChunk = 1000
)

// The dead letters of a step are copied to a table of the session, and stored from there.
var (
	mssqlParked     = strings.TrimPrefix(deadLetterColumns, "id, ") + heavyColumns
	mssqlParkTable  = `SELECT TOP (0) ` + mssqlParked + ` INTO #sluice_parked FROM sluice_dead_letters`
	mssqlParkDelete = `DELETE FROM #sluice_parked`
	mssqlParkAll    = `
		UPDATE d SET failed_at = p.failed_at, error = p.error, attempts = p.attempts, status = p.status, next_attempt = p.next_attempt
		FROM sluice_dead_letters AS d JOIN #sluice_parked AS p ON ` + mssqlParkedAs + `;
		INSERT INTO sluice_dead_letters (group_key, ` + mssqlParked + `)
		SELECT ` + mssqlParkedKey + `, ` + mssqlParked + ` FROM #sluice_parked AS p
		WHERE NOT EXISTS (SELECT 1 FROM sluice_dead_letters AS d WHERE ` + mssqlParkedAs + `)
		ORDER BY partition, sequence_number`
)

const (
	mssqlParkedKey = `CAST(HASHBYTES('SHA2_256', CONCAT(p.namespace, NCHAR(31), p.topic, NCHAR(31), p.consumer_group)) AS binary(32))`
	mssqlParkedAs  = `d.group_key = ` + mssqlParkedKey + ` AND d.partition = p.partition AND d.incarnation = p.incarnation AND d.sequence_number = p.sequence_number`
)

// park stores many dead letters in few round trips; few are left to the statement for one.
func (d mssqlDialect) park(ctx context.Context, tx querier, rows [][]any) (done bool, err error) {
	if len(rows) < parkRows {
		return false, nil
	}
	if _, err := tx.ExecContext(ctx, mssqlParkTable); err != nil {
		return true, err
	}
	for chunk := range slices.Chunk(rows, parkChunk) {
		if err := d.parkChunk(ctx, tx, chunk); err != nil {
			return true, err
		}
		if _, err := tx.ExecContext(ctx, mssqlParkDelete); err != nil {
			return true, err
		}
	}
	if d.plain { // a wrapper of the driver may keep it from resetting the session
		_, err = tx.ExecContext(ctx, "DROP TABLE #sluice_parked")
	}
	return true, err
}

// stage copies dead letters to the table of the session, or inserts them.
func (d mssqlDialect) stage(ctx context.Context, tx querier, rows [][]any) error {
	columns := strings.Split(mssqlParked, ", ")
	if !d.plain {
		for _, row := range rows {
			for i, v := range row {
				if t, ok := v.(mssqlTime); ok {
					row[i] = t.Time
				}
			}
		}
		_, err := tx.ExecContext(ctx, mssqlCopy, mssqlBulk{"#sluice_parked", columns, rows})
		return err
	}
	places := make([]string, len(columns))
	for i, name := range columns {
		if places[i] = "?"; name == "body" { // NULL is no text
			places[i] = "CONVERT(varbinary(max), ?)"
		}
	}
	tuple := "(" + strings.Join(places, ", ") + ")"
	for rest := rows; len(rest) > 0; {
		chunk := firstChunk(rest, d.variables()/len(columns))
		text := "INSERT INTO #sluice_parked (" + mssqlParked + ") VALUES " + tuple + strings.Repeat(", "+tuple, len(chunk)-1)
		if _, err := tx.ExecContext(ctx, d.rebind(text), slices.Concat(chunk...)...); err != nil {
			return err
		}
		rest = rest[len(chunk):]
	}
	return nil
}

// parkChunk stores dead letters again if another process has stored one of them in between: it sees
// that one then.
func (d mssqlDialect) parkChunk(ctx context.Context, tx querier, rows [][]any) error {
	err := d.stage(ctx, tx, rows)
	if err != nil {
		return err
	}
	for range 3 {
		if _, err = tx.ExecContext(ctx, mssqlParkAll); !d.duplicate(err) {
			return err
		}
	}
	return err
}
