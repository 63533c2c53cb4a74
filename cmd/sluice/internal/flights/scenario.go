package flights

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/catchup"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
)

// Partitions is how many each hub has.
const Partitions = 4

// Scenario is what the demos have in common: a hub over a directory, or a topic of Kafka, a
// producer of numbered records, and a consumer that reads them.
type Scenario struct {
	Dir      string
	Noun     string           // hub or topic
	Where    string           // what it is and where, for people
	Hub      *emulator.Server // nil: there is none
	Dial     func() (Connection, error)
	CloseLog func() error
	Record   func(i int64) (Record, error) // number i, counted from 0

	// What the consumer reads, and where it keeps what is done.
	Source      driver.Source
	Checkpoints catchup.Checkpoints
	DeadLetters driver.DeadLetterStore
}

// Record is what is sent.
type Record struct {
	Body []byte
	Key  string // the partition key, which goes by the record's place; empty for none
}

// StartScenario opens the directory, which is created if it is missing, and starts
// the hub in it, and further empty hubs. One process at a time can have it.
func StartScenario(dir string, log *slog.Logger, name string, more ...string) (*Scenario, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("demo's directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("demo's directory: %w", err)
	}
	hubs := []emulator.Hub{{Name: name, Partitions: Partitions}}
	for _, other := range more {
		hubs = append(hubs, emulator.Hub{Name: other, Partitions: Partitions})
	}
	// The load and the counts of what is lost need runtime information that is exact.
	hub, err := emulator.Start(hubs, &emulator.Config{Dir: filepath.Join(dir, "hub"), Log: log, AsAzure: &emulator.AsAzure{}})
	if err != nil {
		return nil, err
	}
	return &Scenario{
		Dir: dir, Noun: "hub", Hub: hub, Where: fmt.Sprintf("hub       %s (hub %s)", hub.ConnectionString(), name),
		Dial: func() (Connection, error) { return dialHub(hub.ConnectionString(), name) }, CloseLog: hub.Close,
	}, nil
}

// Connection is the connection string of the hub, while it is open.
func (s *Scenario) Connection() string { return s.Hub.ConnectionString() }

// Owner is always the same, so that a restart after a crash need not wait for the leases to expire.
// The lock on the hub's directory ensures that there is only one process.
const Owner = "demo"

// Runner is a consumer, or several.
type Runner interface {
	Run(ctx context.Context) error
	Stop(ctx context.Context) error
}

// Run produces records until the log has so many, and consumes them. With once it returns when done
// has waited until all that was produced is committed; without once it continues to produce at a
// low rate until ctx ends, which is no error.
func (s *Scenario) Run(ctx context.Context, events int64, once bool, consumer Runner, done func(context.Context) error) error {
	working, fail := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	// The consumer outlives ctx, so that it is stopped gracefully.
	work.Go(func() {
		if err := consumer.Run(context.WithoutCancel(ctx)); err != nil {
			fail(err)
		}
	})
	err := s.ProduceAll(working, events)
	switch {
	case err == nil && once:
		err = done(working)
	case err == nil:
		err = s.produceSlowly(working)
	}
	cause := context.Cause(working)
	fail(nil)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = consumer.Stop(stopping)
	work.Wait()
	switch {
	case ctx.Err() != nil && !once:
		return nil
	case cause != nil:
		return cause
	}
	return err
}

// AwaitEnd waits until the checkpoints have reached the present end of the log. stopped returns the
// halted partitions.
func AwaitEnd(ctx context.Context, source driver.Source, checkpoints catchup.Checkpoints, stopped func() map[string]error) error {
	ends, err := catchup.Now(ctx, source)
	if err != nil {
		return err
	}
	return ends.Wait(ctx, checkpoints, stopped)
}
