//go:build linux

package attack

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
)

// mostFindings bounds a report.
const mostFindings = 20

// check compares the events in the hub with the database, and searches all
// outputs for secrets. It leaves the servers stopped.
func (w *world) check(ctx context.Context, r *Report) error {
	r.Acknowledged = w.source.acknowledged()
	var check history.Checker
	r.Records = map[string]int{}
	if err := histories(w.Dir, &check, r.Records); err != nil {
		return err
	}
	done, err := w.checkEffects(ctx, &check, r)
	if err != nil {
		return err
	}
	if w.receiver != nil {
		w.receiver.report(r)
	}
	for _, f := range check.Findings(0) {
		r.count(f)
	}
	if err := w.checkAudit(ctx, done, r); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	panics(w.Dir, r.find)
	for _, c := range w.consumers {
		_, life := c.now()
		r.Lives += life
		r.Refused += c.refusals()
	}
	w.source.stop(ctx, r)
	log := w.server.Log()
	if err := os.WriteFile(filepath.Join(w.Dir, "database.log"), []byte(log), 0o644); err != nil {
		return err
	}
	if err := w.server.Stop(); err != nil {
		return err
	}
	// A planted secret shows that the search works.
	planted := filepath.Join(w.Dir, "planted")
	if err := os.WriteFile(planted, []byte(w.secrets.password), 0o600); err != nil {
		return err
	}
	may := func(path, line string) bool {
		return path == planted || readyLine(path, line)
	}
	found, searched, err := w.secrets.search(may, w.Dir, w.server.Dir())
	if err != nil {
		return err
	}
	if searched.Allowed == 0 {
		r.find("the search for secrets did not find the planted secret, so its result means nothing")
	}
	r.Searched = searched
	for _, f := range found {
		r.find("%s", f)
	}
	return nil
}

// histories reads the histories of the consumers into check, and counts their
// records by kind.
func histories(dir string, check *history.Checker, counts map[string]int) error {
	files, err := filepath.Glob(historyOf(dir, "*"))
	if err != nil {
		return err
	}
	for _, path := range files {
		if err := readHistory(path, func(record history.Record) {
			counts[string(record.Kind)]++
			check.Add(record)
		}); err != nil {
			return err
		}
	}
	return nil
}

func readHistory(path string, add func(history.Record)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := history.Read(file, add); err != nil {
		return fmt.Errorf("history %s: %w", filepath.Base(path), err)
	}
	return nil
}

// checkEffects compares the log's events with the rows and dead letters in the
// database.
func (w *world) checkEffects(ctx context.Context, check *history.Checker, r *Report) (*effects, error) {
	done, err := readEffects(ctx, w.db, w.Engine.partition)
	if err != nil {
		return nil, err
	}
	r.Rows, r.DeadLetters = done.addTo(check)
	return done, w.source.compare(ctx, done, check, r)
}

// effects are the rows and dead letters in the database, by partition, in the
// order in which they were read, duplicates included.
type effects struct {
	rows        map[string][]mapped
	deadLetters map[string][]int64
}

// mapped is the row that the pipeline makes of a flight.
type mapped struct {
	sequence, delay, distance int64
	origin                    string
}

// readEffects reads both tables; partition is the column of the second.
func readEffects(ctx context.Context, db *sql.DB, partition string) (*effects, error) {
	e := &effects{rows: map[string][]mapped{}, deadLetters: map[string][]int64{}}
	err := each(ctx, db, `SELECT hub_partition, sequence_number, delay, distance, coalesce(origin, '') FROM flights`, func(rows *sql.Rows) error {
		var partition string
		var m mapped
		err := rows.Scan(&partition, &m.sequence, &m.delay, &m.distance, &m.origin)
		e.rows[partition] = append(e.rows[partition], m)
		return err
	})
	if err == nil {
		err = each(ctx, db, `SELECT `+partition+`, sequence_number FROM sluice_dead_letters`, func(rows *sql.Rows) error {
			var partition string
			var sequence int64
			err := rows.Scan(&partition, &sequence)
			e.deadLetters[partition] = append(e.deadLetters[partition], sequence)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read rows and dead letters: %w", err)
	}
	return e, nil
}

func each(ctx context.Context, db *sql.DB, query string, fn func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// addTo adds the effects to a checker, and counts them.
func (e *effects) addTo(check *history.Checker) (rows, deadLetters int64) {
	for partition, list := range e.rows {
		rows += int64(len(list))
		for _, m := range list {
			check.Add(history.Record{Kind: history.Effect, Partition: partition, To: m.sequence})
		}
	}
	for partition, list := range e.deadLetters {
		deadLetters += int64(len(list))
		for _, sequence := range list {
			check.Add(history.Record{Kind: history.DeadLetter, Partition: partition, To: sequence})
		}
	}
	return rows, deadLetters
}

// panics searches the programs' outputs for panics and data races.
func panics(dir string, find func(string, ...any)) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.err")) // the pattern is well-formed
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			find("%v", err)
			continue
		}
		for _, bad := range []string{"panic: ", "fatal error: ", "DATA RACE"} {
			if at := strings.Index(string(text), bad); at >= 0 {
				find("%s: %s", filepath.Base(path), text[at:min(len(text), at+500)])
			}
		}
	}
}
