package demo

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/internal/datadir"
	"github.com/sluice-go/sluice/pipeline"
)

// The hubs between the stages.
const (
	hubFlights = "flights"
	hubClean   = "clean"
	hubFigures = "figures"
)

// freshFor is how long after its last flight a demo can be gone on with: the
// figures of flights count for twelve hours, see stagesFile, and flights are up
// to four hours old when they are sent.
const freshFor = 6 * time.Hour

// Stages is three hubs, and the pipelines that feed each other through them,
// over one directory.
type Stages struct {
	*scenario
	records   *flights.Records
	config    string
	database  string
	stages    []openStage
	restarted bool
}

// openStage is a stage.
type openStage struct {
	*pipeline.Pipeline
	parts *pipeline.Parts
}

// OpenStages opens the directory, which is created if it is missing, and starts
// the hubs in it. One process at a time can have it. What is there from many
// hours ago is removed: its flights would come too late.
func OpenStages(ctx context.Context, dir string, log *slog.Logger) (*Stages, error) {
	return openStages(ctx, dir, freshFor, log)
}

func openStages(ctx context.Context, dir string, fresh time.Duration, log *slog.Logger) (*Stages, error) {
	all, err := flights.UnpackRecords()
	if err != nil {
		return nil, err
	}
	d := &Stages{records: all}
	for {
		if d.scenario, err = startScenario(dir, log, hubFlights, hubClean, hubFigures); err != nil {
			return nil, err
		}
		d.Record = d.flightNow
		d.config, d.database = filepath.Join(d.Dir, "stages.yaml"), filepath.Join(d.Dir, "stages.db")
		err := d.begin(ctx)
		if err == nil && d.restarted {
			return d, nil
		}
		stale := false
		if err == nil {
			stale, err = d.stale(ctx, fresh)
		}
		if err == nil && !stale {
			return d, nil
		}
		if err = errors.Join(err, d.Close(ctx)); err == nil {
			err = d.remove()
		}
		if err != nil {
			return nil, err
		}
		d.stages, d.restarted = nil, true
	}
}

func (d *Stages) begin(ctx context.Context) error {
	if err := d.createTable(ctx); err != nil {
		return fmt.Errorf("create the table: %w", err)
	}
	if err := flights.WriteFile(d.config, fmt.Sprintf(stagesFile, flights.Quote(d.Connection()), flights.Quote("sqlite:"+d.database))); err != nil {
		return err
	}
	f, err := pipeline.LoadFile(d.config)
	if err != nil {
		return err
	}
	for _, p := range f.Stages {
		parts, err := p.Open(ctx)
		if err != nil {
			return err
		}
		d.stages = append(d.stages, openStage{p, parts})
	}
	d.read(d.stages[0].Pipeline, d.stages[0].parts)
	return nil
}

func (d *Stages) createTable(ctx context.Context) error {
	if err := datadir.CreateFile(d.database); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+d.database+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS airports (
		airport TEXT, hour TEXT, flights INTEGER, delay INTEGER, worst INTEGER, version INTEGER, PRIMARY KEY (airport, hour))`)
	return err
}

// stale reports whether the newest flight is too old to continue from.
func (d *Stages) stale(ctx context.Context, fresh time.Duration) (bool, error) {
	var newest time.Time
	for p := range flights.Partitions {
		b, err := d.parts.Source.Bounds(ctx, strconv.Itoa(p))
		if err != nil {
			return false, err
		}
		if b.LastEnqueued.After(newest) {
			newest = b.LastEnqueued
		}
	}
	return !newest.IsZero() && time.Since(newest) > fresh, nil
}

// remove removes what the demo has made, nothing else.
func (d *Stages) remove() error {
	err := os.RemoveAll(filepath.Join(d.Dir, "hub"))
	files, globErr := filepath.Glob(d.database + "*") // SQLite's own files beside it
	for _, path := range files {
		err = errors.Join(err, os.Remove(path))
	}
	if err = errors.Join(err, globErr); err != nil {
		return fmt.Errorf("remove flights that are too old: %w", err)
	}
	return nil
}

// Close closes the pipelines and the hubs.
func (d *Stages) Close(ctx context.Context) error {
	var err error
	for i := len(d.stages) - 1; i > 0; i-- {
		err = errors.Join(err, d.stages[i].parts.Close(ctx))
	}
	return errors.Join(err, d.scenario.Close(ctx)) // with the first stage's
}

// Config is the path of the pipelines' file.
func (d *Stages) Config() string { return d.config }

// Database is the path of the database.
func (d *Stages) Database() string { return d.database }

// Restarted reports whether the files of the last run were too old, and so were removed.
func (d *Stages) Restarted() bool { return d.restarted }

// Names are those of the stages.
func (d *Stages) Names() []string {
	names := make([]string, len(d.stages))
	for i, w := range d.stages {
		names[i] = w.Name
	}
	return names
}

// PartsOf are the parts of the stage of a name, nil if there is none.
func (d *Stages) PartsOf(name string) *pipeline.Parts {
	for _, w := range d.stages {
		if w.Name == name {
			return w.parts
		}
	}
	return nil
}

// Repeats is how many events came to the memory a second time, and were not
// counted again.
func (d *Stages) Repeats() int64 {
	n := int64(0)
	for _, w := range d.stages {
		n += w.parts.RollupStats().Duplicates
	}
	return n
}

// departure is a flight as the first stage takes it.
type departure struct {
	Departure   time.Time `json:"departure"`
	Delay       *int64    `json:"delay,omitempty"`
	Distance    int64     `json:"distance"`
	Origin      string    `json:"origin"`
	Destination string    `json:"destination"`
}

// flightNow is record number i, brought forward from 2001 into the last hours.
// What is sent again after a failure may have another time: of two only one is
// in the hub.
func (d *Stages) flightNow(i int64) (flights.Record, error) {
	body, err := d.records.Body(i)
	if err != nil {
		return flights.Record{}, err
	}
	var f struct {
		departure
		Date string `json:"date"`
	}
	if err := json.Unmarshal(body, &f); err != nil {
		return flights.Record{}, fmt.Errorf("flight record %d: %w", i, err)
	}
	at, err := time.Parse("2006/01/02 15:04", f.Date)
	if err != nil {
		return flights.Record{}, fmt.Errorf("flight record %d: %w", i, err)
	}
	const eighth = 8 // of a day, three hours
	ago := at.Sub(at.Truncate(24*time.Hour)) / eighth
	f.Departure = time.Now().UTC().Add(-ago).Truncate(time.Minute)
	body, err = json.Marshal(f.departure)
	return flights.Record{Body: body, Key: f.Origin}, err
}

// Run produces flights until the hub has so many, and runs all stages. With
// once it returns when the last stage has processed all of them; without once it goes on
// producing at a gentle rate until ctx ends, which is no error. For each
// stage there are options, and a function that returns its halted partitions.
func (d *Stages) Run(ctx context.Context, events int64, once bool, opts []*pipeline.Options, stopped []func() map[string]error) error {
	all := &pipeline.Consumers{}
	for i, w := range d.stages {
		opts[i].Owner = flights.Owner
		c, err := w.parts.Consumer(ctx, opts[i])
		if err != nil {
			return err
		}
		all.Add(w.Name, c)
	}
	return d.Scenario.Run(ctx, events, once, all, func(ctx context.Context) error {
		for i, w := range d.stages {
			if err := flights.AwaitEnd(ctx, w.parts.Source, w.parts.Checkpoints, stopped[i]); err != nil {
				return fmt.Errorf("stage %s: %w", w.Name, err)
			}
		}
		return nil
	})
}

const stagesFile = `# The pipelines of the demo of stages.
# Written by sluice demo stages at every start. The hubs are there while the
# demo runs.
eventhub:
  connection: %s
partitions: all
database: %s

stages:
  # Turns records that cannot be used into dead letters.
  clean:
    source: {eventhub: {hub: flights}}
    order: none
    checkpoint_every: 1s
    target:
      eventhub:
        hub: clean
        key: body.origin
        body:
          airport: body.origin
          departure: {from: body.departure, type: timestamp}
          delay: {from: body.delay, type: integer}

  # Keeps 24 hours in memory, rebuilt at every start.
  figures:
    source: {eventhub: {hub: clean}}
    memory:
      keep: 24h
      late: 12h
      group: {airport: body.airport, hour: hour(body.departure)}
      figures: {flights: count, delay: sum(body.delay), worst: max(body.delay)}
    target:
      eventhub: {hub: figures, key: airport}

  # Figures can come twice, and older ones late: a row never goes back to an older version.
  table:
    source: {eventhub: {hub: figures}}
    target:
      statement:
        sql: |
          INSERT INTO airports (airport, hour, flights, delay, worst, version)
          VALUES (:airport, :hour, :flights, :delay, :worst, :version)
          ON CONFLICT (airport, hour) DO UPDATE
          SET flights = excluded.flights, delay = excluded.delay, worst = excluded.worst, version = excluded.version
          WHERE excluded.version > airports.version
        parameters:
          airport: body.airport
          hour: body.hour
          flights: {from: body.flights, type: bigint}
          delay: {from: body.delay, type: bigint}
          worst: {from: body.worst, type: bigint}
          version: {from: body.version, type: bigint}
`
