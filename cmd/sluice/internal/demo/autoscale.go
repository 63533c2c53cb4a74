package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/source/lag"
	"github.com/sluice-go/sluice/autoscale/sqlstore"
	"github.com/sluice-go/sluice/autoscale/target/workers"
	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/cmd/sluice/internal/loadgen"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/datadir"
	"github.com/sluice-go/sluice/pipeline"
)

// AutoscaleConfig configures [Autoscale].
type AutoscaleConfig struct {
	// Program is the program of the workers: sluice itself.
	Program string
	// OnRecord is called with each decision and each outcome.
	OnRecord func(autoscale.Record)
	// SettleWithin limits how long the demo takes to end after the load is over. Default: 2 min.
	SettleWithin time.Duration
	Log          *slog.Logger
}

// The metrics. The subscription's has the name that collectors publish by
// default.
const (
	LagMetric     = "lag"
	billingMetric = "orders-billing-backlog"
)

// UpperLag and LowerLag are the thresholds of the rule, in events.
const UpperLag, LowerLag = 400, 100

const (
	scaled = "workers"
	// workerRate is how many events per second a worker can handle.
	workerRate                = 300
	leastWorkers, mostWorkers = 1, flights.Partitions
)

// Autoscale is a hub whose load rises and falls, a subscription of a Service Bus
// beside it, and workers, processes of `sluice run`, as many as the hub's lag
// asks for. It starts from the beginning every time.
type Autoscale struct {
	*Cosmos  // the hub, and the account that the workers write to
	cfg      AutoscaleConfig
	lock     *datadir.DirLock
	sideLoad *sideLoad
	pool     *workers.Target
	store    *sqlstore.Store
	scaler   *autoscale.Autoscaler
	lag      *lag.Source

	secondWorker atomic.Int64 // when a second worker first had a partition, nanoseconds since 1970
	rewritten    atomic.Int64 // documents that were written more than once
	sent         atomic.Int64
	now          atomic.Int64 // the load, in events a second
	finished     atomic.Bool  // the load is over
}

// OpenAutoscale opens the directory, which is created if it is missing, removes
// the files of an earlier demo, and starts everything except the load. One
// process at a time can have it.
func OpenAutoscale(ctx context.Context, dir string, cfg *AutoscaleConfig) (*Autoscale, error) {
	docs, err := loadgen.NewDocuments(nil)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("demo's directory: %w", err)
	}
	lock, err := datadir.Lock(dir)
	if err != nil {
		return nil, fmt.Errorf("demo's directory: %w", err)
	}
	d := &Autoscale{cfg: *cfg, lock: lock, Cosmos: &Cosmos{docs: docs}}
	d.cfg.SettleWithin = cmp.Or(cfg.SettleWithin, 2*time.Minute)
	if err := d.begin(ctx, dir); err != nil {
		return nil, errors.Join(err, d.Close(ctx))
	}
	return d, nil
}

func (d *Autoscale) begin(ctx context.Context, dir string) (err error) {
	for _, old := range []string{"hub", "state"} {
		if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
			return fmt.Errorf("remove files of an earlier demo: %w", err)
		}
	}
	if d.scenario, err = startScenario(dir, d.cfg.Log, cosmosContainer); err != nil {
		return err
	}
	d.Record = func(i int64) (flights.Record, error) {
		return flights.Record{Body: d.docs.Append(nil, i), Key: d.docs.Key(i)}, nil
	}
	d.account, err = emulator.StartCosmos(
		[]emulator.CosmosContainer{{Database: cosmosDatabase, Name: cosmosContainer, KeyPaths: []string{"/key"}}},
		&emulator.CosmosConfig{OnWrite: d.written, Log: d.cfg.Log})
	if err != nil {
		return err
	}
	if d.sideLoad, err = startSideLoad(d.cfg.Log); err != nil {
		return err
	}
	if err := d.openPipeline(ctx); err != nil {
		return err
	}
	d.pool, err = workers.New(filepath.Join(d.Dir, "workers"), []string{d.cfg.Program, "run", d.config}, &workers.Config{
		Instances: leastWorkers, DiscardPrevious: true, StopWithParent: true, Grace: 15 * time.Second, Env: []string{"COSMOS_KEY=" + d.account.Key()}, Log: d.cfg.Log})
	if err != nil {
		return err
	}
	return d.openScaler()
}

// written counts the writes to the account that replace a document.
func (d *Autoscale) written(w emulator.CosmosWrite) {
	if w.Replaced {
		d.rewritten.Add(1)
	}
}

func (d *Autoscale) openPipeline(ctx context.Context) error {
	state := filepath.Join(d.Dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		return fmt.Errorf("checkpoints: %w", err)
	}
	d.config = filepath.Join(d.Dir, "worker.yaml")
	text := fmt.Sprintf(workerFile, d.account.Key(), flights.Quote(d.Connection()), flights.Quote("sqlite:"+filepath.Join(state, "workers.db")), workerRate,
		flights.Quote(d.account.Endpoint()), cosmosDatabase, cosmosContainer)
	if err := flights.WriteFile(d.config, text); err != nil {
		return err
	}
	p, err := pipeline.Parse(d.config, []byte(text), func(name string) (string, bool) {
		if name == "COSMOS_KEY" {
			return d.account.Key(), true
		}
		return os.LookupEnv(name)
	})
	if err != nil {
		return err
	}
	if err := d.open(ctx, p); err != nil {
		return err
	}
	d.lag = lag.New(d.parts.Source, d.parts.Checkpoints, p.Group, nil)
	return nil
}

func (d *Autoscale) openScaler() (err error) {
	if d.store, err = sqlstore.OpenSQLite(filepath.Join(d.Dir, "state", "autoscale.db")); err != nil {
		return err
	}
	d.scaler, err = autoscale.New(
		&autoscale.Resource{Name: scaled, Metrics: []string{LagMetric, billingMetric}, Rule: Rule(), Limits: autoscale.Limits{
			Min: leastWorkers, Max: mostWorkers, Interval: 500 * time.Millisecond, MinPoints: 3, Window: 1500 * time.Millisecond, StaleAfter: 5 * time.Second,
			CooldownUp: time.Second, CooldownDown: time.Second,
		}},
		map[string]autoscale.Source{LagMetric: d.lag, billingMetric: d.sideLoad.backlog}, d.pool,
		&autoscale.Config{Store: d.store, OnRecord: d.cfg.OnRecord, Log: d.cfg.Log})
	return err
}

// Rule is the demo's: the published one for the hub's lag, but down only while
// the subscription is empty too.
func Rule() autoscale.Rule {
	return quiet{autoscale.ThresholdRule{Metric: LagMetric, Upper: UpperLag, Lower: LowerLag}}
}

type quiet struct{ autoscale.ThresholdRule }

// Propose implements [autoscale.Rule].
func (r quiet) Propose(s autoscale.Situation) autoscale.Proposal {
	p := r.ThresholdRule.Propose(s)
	beside := s.Windows[billingMetric]
	if p.Instances < s.Instances && beside != nil && beside.All().Newest() > 0 {
		return autoscale.Proposal{Instances: s.Instances,
			Reason: fmt.Sprintf("%s, but %s is %s", p.Reason, billingMetric, autoscale.FormatNumber(beside.All().Newest()))}
	}
	return p
}

// String returns the rule as an expression.
func (r quiet) String() string {
	return r.ThresholdRule.String() + " && last(\"" + billingMetric + "\") == 0"
}

// Close ends the workers and closes everything else. It may be called early.
func (d *Autoscale) Close(ctx context.Context) error {
	var err error
	if d.pool != nil {
		err = d.pool.Stop(ctx)
	}
	if d.store != nil {
		err = errors.Join(err, d.store.Close())
	}
	if d.sideLoad != nil {
		err = errors.Join(err, d.sideLoad.Close(ctx))
	}
	if d.scenario != nil {
		err = errors.Join(err, d.Cosmos.Close(ctx))
	}
	return errors.Join(err, d.lock.Unlock())
}

// Run lets the load rise and fall, and the number of workers follow. With once it returns when the
// load is over, all events are written and the number of workers is back at its minimum. Without
// once the load starts again and again until ctx ends, which is no error.
func (d *Autoscale) Run(ctx context.Context, once bool) error {
	working, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var work sync.WaitGroup
	run := func(fn func(context.Context) error) {
		work.Go(func() {
			if err := fn(working); err != nil && working.Err() == nil {
				fail(err)
			}
		})
	}
	run(d.scaler.Run)
	run(d.sideLoad.drain)
	run(func(ctx context.Context) error { return d.load(ctx, once) })
	err := d.settled(working)
	fail(nil)
	work.Wait()
	if cause := context.Cause(working); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	// Each worker stops gracefully and stores its checkpoints.
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err = cmp.Or(err, d.pool.Stop(stopping))
	if ctx.Err() != nil && !once {
		return nil
	}
	return err
}

const lookEvery = 200 * time.Millisecond

// settled waits until the load is over, all events are written and the number of workers is back
// at its minimum.
func (d *Autoscale) settled(ctx context.Context) error {
	var late <-chan time.Time
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		finished := d.finished.Load() // before the state, or the state may be that of a moment before the end
		s := d.State(ctx)
		d.lookForSecondWorker(ctx)
		if finished {
			if late == nil {
				timer := time.NewTimer(d.cfg.SettleWithin)
				defer timer.Stop()
				late = timer.C
			}
			if s.Written == s.Sent && s.Lag == 0 && s.Waiting == 0 && s.Workers == leastWorkers && s.Wanted == leastWorkers {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-late:
			return fmt.Errorf("%v after the end of the load, %d of %d events are written, the lag is %d, %d messages wait, and %d workers run",
				d.cfg.SettleWithin, s.Written, s.Sent, s.Lag, s.Waiting, s.Workers)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lookForSecondWorker records when a second worker owns a partition.
func (d *Autoscale) lookForSecondWorker(ctx context.Context) {
	if d.secondWorker.Load() != 0 {
		return
	}
	leases, err := d.parts.Leases.List(ctx, d.pipeline.Group)
	if err != nil {
		return // the next poll asks again
	}
	owners := map[string]bool{}
	for _, l := range leases {
		if l.Live() && !l.Member() {
			owners[l.Owner] = true
		}
	}
	if len(owners) > 1 {
		d.secondWorker.Store(time.Now().UnixNano())
	}
}

// SecondWorker is when a second worker first owned a partition; zero if none did.
func (d *Autoscale) SecondWorker() time.Time {
	if n := d.secondWorker.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// State is the state of the demo at a moment.
type State struct {
	Load      int64 // events a second
	Sent      int64
	Written   int64
	Lag       int64 // -1: not known
	Waiting   int64 // messages in the subscription
	Workers   int   // that run
	Wanted    int
	Rewritten int64 // documents that were written more than once
}

// State looks at everything.
func (d *Autoscale) State(ctx context.Context) State {
	p := State{Load: d.now.Load(), Sent: d.sent.Load(), Lag: -1, Waiting: d.sideLoad.waiting(), Rewritten: d.rewritten.Load(), Workers: len(d.pool.Workers())}
	if stats, err := d.account.ContainerStats(cosmosDatabase, cosmosContainer); err == nil {
		p.Written = int64(stats.Documents)
	}
	if r, err := d.lag.Read(ctx); err == nil {
		p.Lag = int64(r.Value)
	}
	p.Wanted, _ = d.pool.Instances(ctx) // never fails
	return p
}

// Scaling returns the name of the scaled resource, and the store with the decisions.
func (d *Autoscale) Scaling() (resource string, store *sqlstore.Store) { return scaled, d.store }

// Log is the decision log.
func (d *Autoscale) Log(ctx context.Context) ([]autoscale.Record, error) {
	return d.store.Records(ctx, scaled, time.Time{}, 0)
}

const workerFile = `# The pipeline of the demo's workers.
# Written by sluice demo autoscale at every start. Hub and account are there
# while the demo runs. For other commands, the key that Microsoft publishes for
# its emulator:
#
#   export COSMOS_KEY=%s
name: worker
source:
  eventhub:
    connection: %s
    hub: docs
  start: earliest

# Each worker takes its fair share.
partitions: balanced

# Leases, checkpoints and dead letters.
leases:
  sql: %s
checkpoint_every: 1s

# The limit of one worker, so that there is something to scale.
rate: {events: %d}

target:
  cosmos:
    endpoint: %s
    key: ${COSMOS_KEY}
    database: %s
    container: %s
    id: body.id
    partition_key: body.key
`
