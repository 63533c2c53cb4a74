package demo

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-go/sluice"
)

// StagesAudit compares the table at the end of the stages with what follows
// from the flights at their beginning.
type StagesAudit struct {
	Sent        int64 // flights that the first hub holds
	DeadLetters int64 // flights that the first stage threw out
	Counted     int64 // flights, by the table
	Rows        int64
	Wrong       int64  // rows that are not as they should be, missing or too many
	First       string // of them
}

// Exact tells whether the table is what it should be.
func (a *StagesAudit) Exact() bool { return a.Wrong == 0 && a.Sent == a.Counted+a.DeadLetters }

type slot struct{ airport, hour string }

type figures struct{ flights, delay, worst int64 }

// Audit reads the flights back from the first hub, computes the table from
// them directly, and compares. Nobody must be at work.
func (d *Stages) Audit(ctx context.Context) (*StagesAudit, error) {
	a := &StagesAudit{}
	want, err := d.compute(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("audit the flights: %w", err)
	}
	letters, err := d.parts.DeadLetters.List(ctx, d.works[0].Group, sluice.DeadLetterFilter{})
	if err != nil {
		return nil, fmt.Errorf("audit the dead letters: %w", err)
	}
	a.DeadLetters = int64(len(letters))
	if err := d.compare(ctx, a, want); err != nil {
		return nil, fmt.Errorf("audit the table: %w", err)
	}
	return a, nil
}

// compute makes the table from the flights.
func (d *Stages) compute(ctx context.Context, a *StagesAudit) (map[slot]figures, error) {
	want := map[slot]figures{}
	for p := range partitions {
		err := d.readAll(ctx, strconv.Itoa(p), func(body []byte) error {
			a.Sent++
			var f departure
			if err := json.Unmarshal(body, &f); err != nil || f.Delay == nil {
				return err
			}
			at := slot{f.Origin, f.Departure.Truncate(time.Hour).Format(time.RFC3339)}
			so, known := want[at]
			if !known || *f.Delay > so.worst {
				so.worst = *f.Delay
			}
			so.flights++
			so.delay += *f.Delay
			want[at] = so
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return want, nil
}

// readAll reads all events of a partition of the first hub.
func (d *Stages) readAll(ctx context.Context, partition string, take func(body []byte) error) error {
	b, err := d.parts.Source.Bounds(ctx, partition)
	if err != nil || b.Last.Sequence < 0 {
		return err
	}
	const epoch = 1 << 40 // above all that may still be closing
	r, err := d.parts.Source.Open(ctx, partition, sluice.Origin, epoch)
	if err != nil {
		return err
	}
	defer r.Close(context.WithoutCancel(ctx))
	for next := int64(0); next <= b.Last.Sequence; {
		events, err := r.Read(ctx, 1000)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := take(e.Body); err != nil {
				return err
			}
		}
		next += int64(len(events))
	}
	return nil
}

func (d *Stages) compare(ctx context.Context, a *StagesAudit, want map[slot]figures) error {
	db, err := sql.Open("sqlite", d.database)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, `SELECT airport, hour, flights, delay, worst FROM airports`)
	if err != nil {
		return err
	}
	defer rows.Close()
	wrong := func(format string, args ...any) {
		if a.Wrong++; a.Wrong == 1 {
			a.First = fmt.Sprintf(format, args...)
		}
	}
	for rows.Next() {
		var at slot
		var got figures
		if err := rows.Scan(&at.airport, &at.hour, &got.flights, &got.delay, &got.worst); err != nil {
			return err
		}
		a.Rows++
		a.Counted += got.flights
		if so := want[at]; got != so {
			wrong("%s at %s: the row says %d flights, %d minutes, %d at worst; there were %d, %d, %d",
				at.airport, at.hour, got.flights, got.delay, got.worst, so.flights, so.delay, so.worst)
		}
		delete(want, at)
	}
	for at := range want {
		wrong("%s at %s: there is no row", at.airport, at.hour)
	}
	return rows.Err()
}
