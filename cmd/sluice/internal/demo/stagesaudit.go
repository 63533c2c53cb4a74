package demo

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/stamp"
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

// Exact reports whether the table is right.
func (a *StagesAudit) Exact() bool { return a.Wrong == 0 && a.Sent == a.Counted+a.DeadLetters }

type slot struct{ airport, hour string }

type figures struct{ flights, delay, worst int64 }

// Audit reads the flights back from the first hub, computes the table from
// them directly, and compares. No stage must run.
func (d *Stages) Audit(ctx context.Context) (*StagesAudit, error) {
	a := &StagesAudit{}
	want, err := d.compute(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("audit the flights: %w", err)
	}
	deadLetters, err := d.parts.DeadLetters.List(ctx, d.stages[0].Group, sluice.DeadLetterFilter{})
	if err != nil {
		return nil, fmt.Errorf("audit the dead letters: %w", err)
	}
	a.DeadLetters = int64(len(deadLetters))
	if err := d.compare(ctx, a, want); err != nil {
		return nil, fmt.Errorf("audit the table: %w", err)
	}
	return a, nil
}

// compute makes the table from the flights.
func (d *Stages) compute(ctx context.Context, a *StagesAudit) (map[slot]figures, error) {
	const epoch = 1 << 40 // above all that may still be closing
	want := map[slot]figures{}
	for p := range flights.Partitions {
		err := readAll(ctx, d.parts.Source, strconv.Itoa(p), epoch, func(e *sluice.Event) error {
			a.Sent++
			var f departure
			if err := json.Unmarshal(e.Body, &f); err != nil || f.Delay == nil {
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

// HubAudit looks for what the first stage has made of each flight: a message in
// the second hub, whose stamp names it, or a dead letter. A message that is
// there twice counts once, because the second stage drops the second one. Both
// hubs are read by a consumer group of the audit's own.
func (d *Stages) HubAudit(ctx context.Context, consumerGroup string, progress func(events int64)) (*audit.Report, error) {
	return d.hubAudit(ctx, consumerGroup, progress, func(ctx context.Context, found flights.Found) error {
		if err := d.messages(ctx, consumerGroup, found); err != nil {
			return fmt.Errorf("read hub %s: %w", hubClean, err)
		}
		return nil
	})
}

// messages finds the flights of which there are messages in the second hub.
func (d *Stages) messages(ctx context.Context, consumerGroup string, found flights.Found) error {
	source, err := d.stages[1].SourceAs(consumerGroup)
	if err != nil {
		return err
	}
	defer source.Close(context.WithoutCancel(ctx))
	there := map[string][]int64{}
	for p := range flights.Partitions {
		err := readAll(ctx, source, strconv.Itoa(p), 0, func(e *sluice.Event) error {
			stamp, is, err := stamp.From(e.Properties)
			if err == nil && !is {
				err = errors.New("it has no stamp")
			}
			if err != nil {
				return fmt.Errorf("event %d of partition %s: its stamp names no flight: %w", e.Sequence, e.Partition, err)
			}
			there[stamp.ID.Partition] = append(there[stamp.ID.Partition], stamp.ID.Sequence)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for partition, list := range there {
		slices.Sort(list)
		for _, sequence := range slices.Compact(list) {
			found(partition, sequence)
		}
	}
	return nil
}

// Unaudited says why the events of a stage can't be looked for one by one, and
// what to do instead.
func (d *Stages) Unaudited(name string) string {
	const instead = "stop the demo and start it with --once, which computes the table from the flights directly, and compares."
	switch name {
	case "figures":
		return "Each figure is made of many events and names none of them: " + instead
	case "table":
		return "Each row is overwritten by newer figures, and keeps nothing of those before: " + instead
	}
	return ""
}

// readAll gives all events to take that a partition holds now.
func readAll(ctx context.Context, source driver.Source, partition string, epoch int64, take func(*sluice.Event) error) error {
	b, err := source.Bounds(ctx, partition)
	if err != nil || b.Last.Sequence < 0 {
		return err
	}
	r, err := source.Open(ctx, partition, driver.Origin, epoch)
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
			if err := take(e); err != nil {
				return err
			}
		}
		next += int64(len(events))
	}
	return nil
}

func (d *Stages) compare(ctx context.Context, a *StagesAudit, want map[slot]figures) error {
	db, err := sql.Open("sqlite", "file:"+d.database+"?_pragma=busy_timeout(10000)")
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
