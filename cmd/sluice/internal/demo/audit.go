package demo

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"

	_ "modernc.org/sqlite" // to read the rows without Sluice

	"github.com/sluice-go/sluice"
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

func (a *Audit) fault(format string, args ...any) {
	if a.Faults++; a.Faults == 1 {
		a.First = fmt.Sprintf(format, args...)
	}
}

// Audit compares the events of the hub with the rows and the dead letters. It reads the rows itself.
func (d *Demo) Audit(ctx context.Context) (*Audit, error) {
	return d.audit(ctx, func(a *Audit, effect recordEffect) error {
		if err := d.auditRows(ctx, a, effect); err != nil {
			return fmt.Errorf("audit the rows: %w", err)
		}
		return nil
	})
}

// recordEffect takes note of an event's effect.
type recordEffect func(what, partition string, sequence int64)

// audit compares the events of the hub with the effects that written finds, and with the dead
// letters.
func (l *scenario) audit(ctx context.Context, written func(*Audit, recordEffect) error) (*Audit, error) {
	a := &Audit{Noun: l.pipeline.System.Noun()}
	effects := make([][]byte, partitions) // how many each event has, by sequence number
	for p := range effects {
		b, err := l.parts.Source.Bounds(ctx, strconv.Itoa(p))
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		effects[p] = make([]byte, b.Last.Sequence+1)
		a.Sent += b.Last.Sequence + 1
	}
	effect := func(what, partition string, sequence int64) {
		p, err := strconv.Atoi(partition)
		if err != nil || p < 0 || p >= partitions || sequence < 0 || sequence >= int64(len(effects[p])) {
			a.fault("%s of event %d of partition %s, which the %s does not have", what, sequence, partition, a.Noun)
			return
		}
		if effects[p][sequence]++; effects[p][sequence] > 1 {
			a.fault("event %d of partition %s has more than one effect", sequence, partition)
			effects[p][sequence] = 1
		}
	}
	if err := written(a, effect); err != nil {
		return nil, err
	}
	topic, err := l.parts.Source.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	deadLetters, err := l.parts.DeadLetters.List(ctx, topic.Group, sluice.DeadLetterFilter{})
	if err != nil {
		return nil, fmt.Errorf("audit the dead letters: %w", err)
	}
	for _, d := range deadLetters {
		a.DeadLetters++
		effect("a dead letter", d.Event.Partition, d.Event.Sequence)
	}
	for _, of := range effects {
		for _, n := range of {
			if n == 0 {
				a.Waiting++
			}
		}
	}
	return a, nil
}

// flight is a row without the delay, which may be missing after a retry.
type flight struct {
	Date        string `json:"date"`
	Distance    int64  `json:"distance"`
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
}

// auditRows counts the rows and compares them with what was sent under their
// partition and sequence number.
func (d *Demo) auditRows(ctx context.Context, a *Audit, effect recordEffect) error {
	db, err := sql.Open("sqlite", d.files.database)
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
		body, err := d.flights.record(recordAt(p, sequence))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(body, &want); err != nil {
			return err
		}
		if got != want {
			a.fault("the row of event %d of partition %s is not the record that was to be sent", sequence, partition)
		}
	}
	return rows.Err()
}
