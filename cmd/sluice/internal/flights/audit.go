package flights

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	_ "modernc.org/sqlite" // to read the rows without Sluice

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/humanize"
)

// Audit counts the effects of every event of the hub, by partition and sequence number.
type Audit struct {
	Noun        string // hub or topic
	Sent        int64  // events that it holds
	Written     int64  // rows, or documents
	DeadLetters int64
	Waiting     int64 // in the log, neither written nor a dead letter yet
	Faults      int64 // events with several effects, effects without an event, and effects with other contents than what was sent
	First       string
}

// Exact reports whether every event has exactly one effect.
func (a *Audit) Exact() bool { return a.Faults == 0 && a.Waiting == 0 }

// Verdict is an error if there is a fault, and with once also if an event waits. One and many say
// so of their number.
func (a *Audit) Verdict(once bool, one, many string) error {
	switch {
	case a.Faults > 0:
		return fmt.Errorf("not exactly once: %s", a.First)
	case once && a.Waiting > 0:
		return errors.New(humanize.Plural(a.Waiting, one, many))
	}
	return nil
}

// Fault counts a fault, and keeps the first.
func (a *Audit) Fault(format string, args ...any) {
	if a.Faults++; a.Faults == 1 {
		a.First = fmt.Sprintf(format, args...)
	}
}

// Audit compares the events of the hub with the rows and the dead letters. It reads the rows
// itself.
func (d *Demo) Audit(ctx context.Context) (*Audit, error) {
	return d.AuditBy(ctx, func(a *Audit, effect Effect) error {
		if err := d.auditRows(ctx, a, effect); err != nil {
			return fmt.Errorf("audit the rows: %w", err)
		}
		return nil
	})
}

// Effect takes note of an event's effect.
type Effect func(what, partition string, sequence int64)

// AuditBy compares the events of the hub with the effects that written finds, and with the dead
// letters.
func (s *Scenario) AuditBy(ctx context.Context, written func(*Audit, Effect) error) (*Audit, error) {
	a := &Audit{Noun: s.Noun}
	effects := make([][]byte, Partitions) // how many each event has, by sequence number
	for p := range effects {
		b, err := s.Source.Bounds(ctx, strconv.Itoa(p))
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		effects[p] = make([]byte, b.Last.Sequence+1)
		a.Sent += b.Last.Sequence + 1
	}
	effect := func(what, partition string, sequence int64) {
		p, err := strconv.Atoi(partition)
		if err != nil || p < 0 || p >= Partitions || sequence < 0 || sequence >= int64(len(effects[p])) {
			a.Fault("%s of event %d of partition %s, which the %s does not have", what, sequence, partition, a.Noun)
			return
		}
		if effects[p][sequence]++; effects[p][sequence] > 1 {
			a.Fault("event %d of partition %s has more than one effect", sequence, partition)
			effects[p][sequence] = 1
		}
	}
	if err := written(a, effect); err != nil {
		return nil, err
	}
	topic, err := s.Source.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	deadLetters, err := s.DeadLetters.List(ctx, topic.Group, driver.DeadLetterFilter{})
	if err != nil {
		return nil, fmt.Errorf("audit the dead letters: %w", err)
	}
	for _, d := range deadLetters {
		a.DeadLetters++
		effect("a dead letter", d.Event.Partition, d.Event.Sequence)
	}
	for _, counts := range effects {
		for _, n := range counts {
			if n == 0 {
				a.Waiting++
			}
		}
	}
	return a, nil
}

// auditRows counts the rows and compares them with what was sent under their
// partition and sequence number.
func (d *Demo) auditRows(ctx context.Context, a *Audit, effect Effect) error {
	db, err := sql.Open("sqlite", "file:"+d.files.database+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, `SELECT hub_partition, sequence_number, date, distance, origin, destination FROM flights`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var partition string
		var sequence int64
		var got, want flight
		if err := rows.Scan(&partition, &sequence, &got.Date, &got.Distance, &got.Origin, &got.Destination); err != nil {
			return err
		}
		a.Written++
		effect("a row", partition, sequence)
		p, err := strconv.Atoi(partition)
		if err != nil || p < 0 || sequence < 0 {
			continue // effect has counted the fault
		}
		body, err := d.records.Body(recordAt(p, sequence))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(body, &want); err != nil {
			return err
		}
		want.Delay = nil // may be missing after a retry
		if got != want {
			a.Fault("the row of event %d of partition %s is not the record that was to be sent", sequence, partition)
		}
	}
	return rows.Err()
}
