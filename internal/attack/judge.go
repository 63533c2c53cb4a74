//go:build linux

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/history"
)

// mostFindings bounds a report.
const mostFindings = 20

// judge compares what the hub has with what is in the database, and searches
// for secrets. It leaves the servers stopped.
func (w *world) judge(ctx context.Context, r *Report) error {
	r.Acknowledged = w.load.acknowledged()
	var check history.Checker
	r.Records = map[string]int{}
	if err := w.histories(&check, r); err != nil {
		return err
	}
	if err := w.effects(ctx, &check, r); err != nil {
		return err
	}
	for _, f := range check.Findings(0) {
		switch f.Fault {
		case history.Doubled:
			r.Doubled++
		case history.Lost:
			r.Lost++
		}
		r.find("%v", f)
	}
	w.panics(r)
	for _, c := range w.consumers {
		_, life := c.now()
		r.Lives += life
	}
	_, r.HubLives = w.hub.now()
	if err := w.hub.retire(ctx); err != nil {
		r.find("hub: %v", err)
	}
	log := w.pg.Log()
	if err := os.WriteFile(filepath.Join(w.Dir, "postgres.log"), []byte(log), 0o644); err != nil {
		return err
	}
	if err := w.pg.Stop(); err != nil {
		return err
	}
	ready := func(path, line string) bool {
		return strings.HasPrefix(filepath.Base(path), "hub-") && strings.HasPrefix(line, "ready ")
	}
	found, searched, err := w.secrets.search(ready, w.Dir, w.pg.Dir())
	if err != nil {
		return err
	}
	r.Searched = searched
	for _, f := range found {
		r.find("%s", f)
	}
	return nil
}

func (r *Report) find(format string, args ...any) {
	if len(r.Findings) < mostFindings {
		r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
	}
}

// histories reads what the consumers have written.
func (w *world) histories(check *history.Checker, r *Report) error {
	files, err := filepath.Glob(historyOf(w.Dir, "*"))
	if err != nil {
		return err
	}
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		err = history.Read(file, func(record history.Record) {
			r.Records[string(record.Kind)]++
			check.Add(record)
		})
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("history %s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

// effects holds the hub's events against the database's rows and dead letters.
func (w *world) effects(ctx context.Context, check *history.Checker, r *Report) error {
	connection := "Endpoint=sb://" + w.hubAddr + ";SharedAccessKeyName=" + keyName + ";SharedAccessKey=" + w.secrets.key + ";UseDevelopmentEmulator=true"
	source, err := eventhub.New(connection, hubName, nil)
	if err != nil {
		return err
	}
	defer source.Close(context.WithoutCancel(ctx))
	seen := make([]bool, r.Acknowledged)
	for p := range partitions {
		id := fmt.Sprint(p)
		b, err := source.Bounds(ctx, id)
		if err != nil {
			return err
		}
		if b.First != 0 && b.Last.Sequence >= 0 {
			r.find("partition %s of the hub begins with event %d", id, b.First)
		}
		check.Add(history.Record{Kind: history.Sent, Partition: id, From: -1, To: b.Last.Sequence})
		r.Events += b.Last.Sequence + 1
		rows, letters, err := w.rows(ctx, id, check, r)
		if err != nil {
			return err
		}
		err = readAll(ctx, source, id, b.Last.Sequence, func(e *sluice.Event) {
			var f flight
			if err := json.Unmarshal(e.Body, &f); err != nil {
				r.find("partition %s: event %d is %q", id, e.Sequence, e.Body)
				return
			}
			if f.N < int64(len(seen)) {
				seen[f.N] = true
			}
			row, has := rows[e.Sequence]
			switch {
			case f.Delay == nil && has:
				r.find("partition %s: event %d cannot be mapped, and yet there is a row", id, e.Sequence)
			case f.Delay != nil && has && row != (mapped{*f.Delay, f.Distance, f.Origin}):
				r.find("partition %s: event %d is %s, its row is %v", id, e.Sequence, e.Body, row)
			case f.Delay != nil && letters[e.Sequence]:
				r.find("partition %s: event %d is %s, and yet a dead letter", id, e.Sequence, e.Body)
			}
		})
		if err != nil {
			return fmt.Errorf("read partition %s: %w", id, err)
		}
	}
	for n, ok := range seen {
		if !ok {
			r.find("record %d was acknowledged, and is not in the hub", n)
		}
	}
	return w.noOthers(ctx, r)
}

// mapped is what the pipeline makes of a flight.
type mapped struct {
	delay, distance int64
	origin          string
}

// rows reads a partition's rows and dead letters.
func (w *world) rows(ctx context.Context, partition string, check *history.Checker, r *Report) (map[int64]mapped, map[int64]bool, error) {
	rows := map[int64]mapped{}
	var sequence int64
	var m mapped
	result, _ := w.db.Query(ctx, `SELECT sequence_number, delay, distance, coalesce(origin, '') FROM flights WHERE hub_partition = $1`, partition)
	_, err := pgx.ForEachRow(result, []any{&sequence, &m.delay, &m.distance, &m.origin}, func() error {
		check.Add(history.Record{Kind: history.Effect, Partition: partition, To: sequence})
		rows[sequence] = m
		r.Rows++
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read rows: %w", err)
	}
	letters := map[int64]bool{}
	result, _ = w.db.Query(ctx, `SELECT sequence_number FROM sluice_dead_letters WHERE partition = $1`, partition)
	_, err = pgx.ForEachRow(result, []any{&sequence}, func() error {
		check.Add(history.Record{Kind: history.Letter, Partition: partition, To: sequence})
		letters[sequence] = true
		r.Letters++
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read dead letters: %w", err)
	}
	return rows, letters, nil
}

// noOthers sees that there are no rows of partitions that don't exist.
func (w *world) noOthers(ctx context.Context, r *Report) error {
	var n int
	err := w.db.QueryRow(ctx, `SELECT (SELECT count(*) FROM flights WHERE hub_partition::int NOT BETWEEN 0 AND $1) + (SELECT count(*) FROM sluice_dead_letters WHERE partition::int NOT BETWEEN 0 AND $1)`, partitions-1).Scan(&n)
	if err == nil && n > 0 {
		r.find("%d rows and dead letters are of no partition", n)
	}
	return err
}

// readAll hands on all events of a partition up to last.
func readAll(ctx context.Context, source *eventhub.Source, partition string, last int64, see func(*sluice.Event)) (err error) {
	if last < 0 {
		return nil
	}
	reader, err := source.Open(ctx, partition, sluice.Origin, 1<<40)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Close(ctx)) }()
	for next := int64(0); next <= last; {
		events, err := reader.Read(ctx, 1000)
		if err != nil {
			return err
		}
		for _, e := range events {
			see(e)
			next = e.Sequence + 1
		}
	}
	return nil
}

// panics looks for what a program must never print.
func (w *world) panics(r *Report) {
	files, _ := filepath.Glob(filepath.Join(w.Dir, "*.err")) // the pattern is well-formed
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			r.find("%v", err)
			continue
		}
		for _, bad := range []string{"panic: ", "fatal error: ", "DATA RACE"} {
			if at := strings.Index(string(text), bad); at >= 0 {
				r.find("%s: %s", filepath.Base(path), tail(string(text[at:min(len(text), at+500)])))
			}
		}
	}
}
