package postgres

import "errors"

// ErrPrepared is why a claim waits for a blocker whose number is 0: there is no session to end.
var ErrPrepared = errors.New("a prepared transaction holds the checkpoint: find its name in pg_prepared_xacts, check what it wrote, and end it by ROLLBACK PREPARED 'name'")

// Blockers finds the sessions that hold what a session, $1, waits for: number, user, application,
// and whether they are of its user and database. Of a queue for a row, a session waits for the one
// before it: all wait for the one that holds the row, and those that wait are not among the
// results. Number 0 stands for prepared transactions, which have no session.
const Blockers = `
WITH RECURSIVE queued AS (SELECT pid FROM pg_locks WHERE locktype = 'tuple' AND NOT granted),
waiting AS (
	SELECT CAST($1 AS integer) AS pid
	UNION
	SELECT unnest(pg_blocking_pids(waiting.pid)) FROM waiting JOIN queued USING (pid))
SELECT pid, coalesce(usename, ''), coalesce(application_name, ''), coalesce(usename = session_user AND datname = current_database(), false)
FROM pg_stat_activity
WHERE pid IN (SELECT unnest(pg_blocking_pids(pid)) FROM waiting WHERE pid NOT IN (SELECT pid FROM queued))
UNION ALL
SELECT 0, '', '', false WHERE EXISTS (SELECT FROM waiting WHERE 0 = ANY (pg_blocking_pids(pid)))`
