// Package flights is the first demo, and what the other demos have in common with it.
//
// [Demo] is a hub or a topic of Kafka, a producer of real flight records, and a consumer that
// writes them to SQLite. Stopped at any moment and started again, it continues where it stopped;
// nothing is sent or written twice. [Command] is the whole command. A [Scenario] is what other
// demos use too.
//
// The program cmd/sluice/demo compiles this package and what it imports: keep both small.
package flights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/sqlstore"
)

// Source is a log that can be closed.
type Source interface {
	driver.Source
	Close(ctx context.Context) error
}

// Demo is a hub or a topic, and a consumer that writes to SQLite, over one directory.
type Demo struct {
	*Scenario
	records *Records
	files   files
	openLog func(consumerGroup string) (Source, error)
	log     Source
	store   *sqlstore.Store
}

// OpenDemo opens the directory, which is created if it is missing, and starts the
// hub in it. One process at a time can have it.
func OpenDemo(ctx context.Context, dir string, log *slog.Logger) (*Demo, error) {
	s, err := StartScenario(dir, log, "flights")
	if err != nil {
		return nil, err
	}
	source := fmt.Sprintf("eventhub:\n    connection: %s\n    hub: flights", Quote(s.Connection()))
	return NewDemo(ctx, s, source, func(consumerGroup string) (Source, error) {
		return eventhub.New(s.Connection(), "flights", &eventhub.Config{ConsumerGroup: consumerGroup})
	})
}

// NewDemo makes the demo over a log, which it closes. source is the log in a pipeline file; open
// opens it for a consumer group, or for the demo itself if that is empty.
func NewDemo(ctx context.Context, s *Scenario, source string, open func(consumerGroup string) (Source, error)) (*Demo, error) {
	d := &Demo{Scenario: s, openLog: open}
	s.Record = d.record
	if err := d.begin(ctx, source); err != nil {
		return nil, errors.Join(err, d.Close(ctx))
	}
	return d, nil
}

func (d *Demo) begin(ctx context.Context, source string) (err error) {
	if d.records, err = UnpackRecords(); err != nil {
		return err
	}
	if d.files, err = writeFiles(d.Dir, source); err != nil {
		return err
	}
	if d.log, err = d.openLog(""); err != nil {
		return err
	}
	if d.store, err = sqlstore.OpenSQLite(d.files.database, nil); err != nil {
		return err
	}
	if _, err := d.store.DB().ExecContext(ctx, createTable); err != nil {
		return fmt.Errorf("create table flights in %s: %w", d.files.database, err)
	}
	d.Source, d.Checkpoints, d.DeadLetters = health.NewSharedSource(d.log), d.store, d.store
	return nil
}

// Close closes the log and the database.
func (d *Demo) Close(ctx context.Context) error {
	var errs []error
	if d.log != nil {
		errs = append(errs, d.log.Close(ctx))
	}
	if d.store != nil {
		errs = append(errs, d.store.Close())
	}
	return errors.Join(append(errs, d.CloseLog())...)
}

// Store has the leases, checkpoints and dead letters of the consumer.
func (d *Demo) Store() *sqlstore.Store { return d.store }

// Config is the path of the pipeline file that says what the consumer does.
func (d *Demo) Config() string { return d.files.strict }

func (d *Demo) record(i int64) (Record, error) {
	body, err := d.records.Body(i)
	return Record{Body: body}, err
}

// flight is a record.
type flight struct {
	Date        string `json:"date"`
	Delay       *int64 `json:"delay,omitempty"` // the demo leaves it out of some
	Distance    int64  `json:"distance"`
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
}

// createTable is what the pipeline files create too.
const createTable = `CREATE TABLE IF NOT EXISTS flights (hub_partition TEXT, sequence_number INTEGER,
	date TEXT, delay INTEGER, distance INTEGER, origin TEXT, destination TEXT)`

var columns = []string{"hub_partition", "sequence_number", "date", "delay", "distance", "origin", "destination"}

// insert is the handler: a row for each event. Checkpoint and dead letters commit with the rows.
func insert(ctx context.Context, tx *sqlstore.Tx, b driver.Batch) error {
	rows := make([][]any, len(b.Events))
	for i, e := range b.Events {
		var f flight
		err := json.Unmarshal(e.Body, &f)
		if err == nil && f.Delay == nil {
			err = errors.New("column delay: body.delay: is missing")
		}
		if err != nil {
			return &driver.EventError{Index: i, Err: driver.Reject(err)}
		}
		rows[i] = []any{e.Partition, e.Sequence, f.Date, *f.Delay, f.Distance, f.Origin, f.Destination}
	}
	return tx.Insert(ctx, "flights", columns, rows)
}

// Run is [Scenario.Run] with the demo's consumer. It reads source, or the demo's own if that is
// nil. stopped returns the halted partitions.
func (d *Demo) Run(ctx context.Context, events int64, once bool, source driver.Source, observer driver.Observer, stopped func() map[string]error) error {
	if source == nil {
		source = d.Source
	}
	consumer, err := sluice.New(source, d.store.Leases(), sluice.Transactional(d.store, sluice.Handler[*sqlstore.Tx](insert)),
		&sluice.Config{Owner: Owner, Logger: slog.New(slog.DiscardHandler), Observer: observer})
	if err != nil {
		return err
	}
	return d.Scenario.Run(ctx, events, once, consumer, func(ctx context.Context) error {
		return AwaitEnd(ctx, d.Source, d.store, stopped)
	})
}

// HubAudit looks for the row of each event while the demo runs, see [Scenario.HubAudit].
func (d *Demo) HubAudit(ctx context.Context, consumerGroup string, progress func(events int64)) (*audit.Report, error) {
	source, err := d.openLog(consumerGroup)
	if err != nil {
		return nil, err
	}
	return d.Scenario.HubAudit(ctx, source, progress, d.findRows)
}

func (d *Demo) findRows(ctx context.Context, found Found) error {
	rows, err := d.store.DB().QueryContext(ctx, "SELECT hub_partition, sequence_number FROM flights")
	if err != nil {
		return fmt.Errorf("read the rows: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var partition string
		var sequence int64
		if err := rows.Scan(&partition, &sequence); err != nil {
			return fmt.Errorf("read the rows: %w", err)
		}
		found(partition, sequence)
	}
	return rows.Err()
}
