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
	"github.com/sluice-go/sluice/stamp"
)

// ErrUndecided means that an audit cannot decide whether events were lost.
var ErrUndecided = errors.New("the audit is undecided")

// Config has the optional settings of an audit. The zero value is ready to use.
type Config struct {
	// StampsFrom are the stages whose stamps the audited consumer believes, as in
	// [sluice.Config]. Default: none.
	StampsFrom []stamp.Source
	// Filter reports whether the audited consumer handles an event, as the filter of
	// [sluice.Config] does: one that it leaves out needs neither an effect nor a dead letter.
	// Events that the log no longer has are not counted as lost then, because they may have been
	// left out. An error ends the audit. Default: none.
	Filter func(context.Context, *driver.Event) (bool, error)
	// Bin is the length of the report's bins. Default: 1 h.
	Bin time.Duration
	// MaxFaults is the number of faults that a report lists for each partition.
	// The rest is only counted. Default: 1,000.
	MaxFaults int
	// Effect is what reports call an effect, such as document. If it is set, the headline
	// names the first faults and each reason why something is not known. Default: row.
	Effect string
	// MayRepeat says that the target delivers at least once by contract: duplicated
	// events are counted and listed, but the report is exact. Default: false.
	MayRepeat bool
	// Parallel is the number of partitions that are read at once. Default: 4.
	Parallel int
	// Progress, if set, is called from time to time with the number of events
	// read so far. It is called from several goroutines.
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

// Run compares the events of a log with the effects of its consumer. The source
// reads for the audit only, in a consumer group of its own. The ledger and the
// group are the pipeline's.
//
// Events that arrive during the audit are ignored. An [ErrUndecided] says why
// there is no result. Faults are not an error: they are in the report.
func Run(ctx context.Context, source driver.Source, ledger Ledger, group driver.Group, cfg *Config) (*Report, error) {
	began := time.Now()
	topic, err := source.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	topic.Group = group
	a := &auditor{source: source, ledger: ledger, topic: topic, cfg: cfg.withDefaults()}
	a.stamps = stamp.NewReader(a.cfg.StampsFrom)
	r := &Report{Topic: topic, Began: began, Effect: a.cfg.Effect, MayRepeat: a.cfg.MayRepeat, Partitions: make([]Partition, len(topic.Partitions))}
	faults := make([][]Fault, len(topic.Partitions))
	var next atomic.Int64
	errs := make([]error, len(topic.Partitions))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	for range min(a.cfg.Parallel, len(topic.Partitions)) {
		work.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(topic.Partitions)); i = next.Add(1) - 1 {
				p := newPartition(a, topic.Partitions[i])
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
	for _, n := range r.Total.Faults {
		r.UnlistedEvents += n
	}
	r.UnlistedEvents -= named
	r.Took = time.Since(began)
	return r, nil
}

// firstError returns the error that ended the audit, rather than the
// cancellations that followed it.
func firstError(errs []error) error {
	var found error
	for _, err := range errs {
		if err != nil && (found == nil || errors.Is(found, context.Canceled)) {
			found = err
		}
	}
	return found
}

// auditor is shared by the partitions of an audit.
type auditor struct {
	source     driver.Source
	ledger     Ledger
	topic      driver.Topic
	cfg        Config
	stamps     *stamp.Reader
	eventsRead atomic.Int64
}

// readBatch is the most events of one read.
const readBatch = 1000

// addRead counts events that were read, and reports the progress.
func (a *auditor) addRead(events int) {
	n := a.eventsRead.Add(int64(events))
	if a.cfg.Progress != nil {
		a.cfg.Progress(n)
	}
}
