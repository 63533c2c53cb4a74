package sqlstore

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// What finds redrives every second reads none of the dead letters that are parked, however many
// there are, and stops at the first that is due.
func TestDuePartitionsOfManyDeadLetters(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	conn, err := s.DB().Conn(t.Context())
	suite.NoError(t, "connect", err)
	defer conn.Close()
	const each = 5000 // in four partitions
	_, err = conn.ExecContext(t.Context(), `
		INSERT INTO sluice_dead_letters (namespace, topic, consumer_group, incarnation, `+"`partition`"+`, sequence_number, event_offset, enqueued_at,
			failed_at, error, attempts, status, partition_key, message_id, correlation_id, content_type, has_body)
		SELECT 'n', 't', 'g', '1', seq % 4, seq, '', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), 'no', 1, 'dead', '', '', '', '', 0 FROM seq_1_to_20000`)
	suite.NoError(t, "fill", err)
	for _, text := range []string{
		"UPDATE sluice_dead_letters SET status = 'retry', next_attempt = UTC_TIMESTAMP(6) WHERE `partition` = '2'",
		"ANALYZE TABLE sluice_dead_letters",
		"FLUSH STATUS",
	} {
		_, err := conn.ExecContext(t.Context(), text)
		suite.NoError(t, text, err)
	}
	rows, err := conn.QueryContext(t.Context(), s.sql.DuePartitions, array([]string{"0", "1", "2", "3", "4"}), "n", "t", "g")
	suite.NoError(t, "find", err)
	var due []string
	for rows.Next() {
		var name string
		suite.NoError(t, "scan", rows.Scan(&name))
		due = append(due, name)
	}
	suite.NoError(t, "find", rows.Err())
	suite.NoError(t, "close", rows.Close())
	var read int
	err = conn.QueryRowContext(t.Context(), `SELECT SUM(VARIABLE_VALUE) FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME LIKE 'HANDLER_READ%'`).Scan(&read)
	suite.NoError(t, "count", err)
	if len(due) != 1 || due[0] != "2" || read > 100 {
		t.Errorf("found %q, reading %d rows of %d", due, read, 4*each)
	}
}
