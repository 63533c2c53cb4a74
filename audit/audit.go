package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice"
)

// ErrUndecided is that an audit can't tell whether events were lost.
var ErrUndecided = errors.New("the audit can't tell")

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Start is where the consumer began that is audited. If it isn't Earliest,
	// its first effect in a partition counts as the beginning there: what came
	// before is skipped. Default: Earliest.
	Start sluice.Start
	// Bin is the length of the report's bins. Default: 1 h.
	Bin time.Duration
	// MaxFaults is how many runs of events with faults a report names for each
	// partition. Default: 1,000.
	MaxFaults int
	// Parallel is how many partitions are read at once. Default: 4.
	Parallel int
	// Progress is told every so often how many events were read. It is called
	// from several goroutines. Default: nobody is told.
	Progress func(events int64)
}

func (cfg *Config) withDefaults() Config {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.Bin = cmp.Or(max(c.Bin, 0), time.Hour)
	c.MaxFaults = cmp.Or(max(c.MaxFaults, 0), 1000)
	c.Parallel = cmp.Or(max(c.Parallel, 0), 4)
	return c
}

// Run compares what a log holds with what consuming it has left behind. The
// source reads for the audit alone, as a consumer group of its own; the ledger
// and the group are those of the pipeline.
//
// Events that come while it works are not looked at. An error that is
// [ErrUndecided] says why there is no verdict; it is none if something is
// wrong: that is in the report.
func Run(ctx context.Context, source driver.Source, ledger Ledger, group sluice.Group, cfg *Config) (*Report, error) {
	began := time.Now()
	topic, err := source.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	topic.Group = group
	a := &auditor{source: source, ledger: ledger, topic: topic, cfg: cfg.withDefaults()}
	r := &Report{Topic: topic, Began: began, Partitions: make([]Partition, len(topic.Partitions))}
	faults := make([][]Fault, len(topic.Partitions))
	var next atomic.Int64
	errs := make([]error, len(topic.Partitions))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	for range min(a.cfg.Parallel, len(topic.Partitions)) {
		work.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(topic.Partitions)); i = next.Add(1) - 1 {
				p := &partitionAudit{auditor: a, Partition: Partition{ID: topic.Partitions[i]}}
				if errs[i] = p.run(ctx); errs[i] != nil {
					errs[i] = fmt.Errorf("audit partition %s: %w", p.ID, errs[i])
					cancel()
					return
				}
				r.Partitions[i], faults[i] = p.Partition, p.faults
			}
		})
	}
	work.Wait()
	if err := firstError(errs); err != nil {
		return nil, err
	}
	var named int64
	for i := range r.Partitions {
		r.Total.add(&r.Partitions[i].Count)
		r.Faults = append(r.Faults, faults[i]...)
	}
	for _, f := range r.Faults {
		named += f.Events()
	}
	r.UnlistedEvents = r.faultyEvents() - named
	r.Took = time.Since(began)
	return r, nil
}

// firstError is the error that ended the work, not what the others then met.
func firstError(errs []error) error {
	var found error
	for _, err := range errs {
		if err != nil && (found == nil || errors.Is(found, context.Canceled)) {
			found = err
		}
	}
	return found
}

// auditor is what the partitions of an audit share.
type auditor struct {
	source     driver.Source
	ledger     Ledger
	topic      sluice.Topic
	cfg        Config
	eventsRead atomic.Int64
}

// readBatch is how many events are asked of the log at once.
const readBatch = 1000

// addRead counts events read.
func (a *auditor) addRead(events int) {
	n := a.eventsRead.Add(int64(events))
	if a.cfg.Progress != nil {
		a.cfg.Progress(n)
	}
}
