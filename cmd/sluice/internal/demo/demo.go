// Package demo runs Sluice with embedded servers on one machine:
//
//   - [Demo]: a hub or a topic of Kafka, a producer of real flight records, and a pipeline into
//     SQLite. Stopped at any moment and started again, it continues where it stopped; nothing is sent
//     or written twice.
//   - [Cosmos]: a hub, a producer of documents, and a pipeline into a Cosmos DB account, at a rate
//     in RU per second.
//   - [Stages]: three pipelines that feed each other through hubs.
//   - [Autoscale]: a load that rises and falls, and a number of workers that follows.
//
// A scenario is what they have in common.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/sluice-go/sluice/pipeline"
)

// Demo is a hub or a topic, and a pipeline into SQLite over one directory.
type Demo struct {
	*scenario
	flights *flights
	files   files
}

// Open opens the directory, which is created if it is missing, and starts the
// hub in it. One process at a time can have it.
func Open(ctx context.Context, dir string, log *slog.Logger) (*Demo, error) {
	all, err := unpackFlights()
	if err != nil {
		return nil, err
	}
	l, err := startScenario(dir, log, "flights")
	if err != nil {
		return nil, err
	}
	d := &Demo{scenario: l, flights: all}
	l.record = d.flightRecord
	if err := d.begin(ctx, fmt.Sprintf("eventhub:\n    connection: %s\n    hub: flights", quote(d.Connection()))); err != nil {
		return nil, errors.Join(err, d.Close(ctx))
	}
	return d, nil
}

func (d *Demo) flightRecord(i int64) (record, error) {
	body, err := d.flights.record(i)
	return record{body: body}, err
}

// begin opens the pipeline, whose source is a mapping of its file.
func (d *Demo) begin(ctx context.Context, source string) (err error) {
	if d.files, err = writeFiles(d.dir, source); err != nil {
		return err
	}
	p, err := pipeline.Load(d.files.strict)
	if err != nil {
		return err
	}
	return d.open(ctx, p)
}
