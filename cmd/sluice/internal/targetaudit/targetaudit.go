// Package targetaudit audits a pipeline by what its events left behind at its target: rows that
// record the partition and the sequence number of their events, documents, messages, or identities
// that a query returns.
package targetaudit

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline"
)

// Config has the settings of an audit.
type Config struct {
	// ConsumerGroup reads the log. It must be the audit's own.
	ConsumerGroup string
	// TargetGroup is the consumer group that reads the hub which the pipeline sends to. Default:
	// ConsumerGroup.
	TargetGroup string
	// Subscription shows the messages of a topic of Service Bus. Default: none, so that what it has
	// is not decidable.
	Subscription string
	// RU is the most request units a second that the audit may use, if the target is in Cosmos DB.
	RU int
	// Audit has the settings of the report. Run sets StampsFrom, Filter, Effect and MayRepeat.
	Audit audit.Config
}

// Run compares the events of the pipeline's log with what they left behind at its target, and with
// its dead letters.
func Run(ctx context.Context, p *pipeline.Pipeline, cfg Config) (*audit.Report, error) {
	if p.Rollup {
		return nil, fmt.Errorf("%s: keeps its statistics in memory, with neither checkpoints nor dead letters: there is nothing to audit", p.Name)
	}
	source, err := p.SourceAs(cfg.ConsumerGroup)
	if err != nil {
		return nil, err
	}
	return run(ctx, p, source, cfg)
}

// run is [Run] with the log, which it closes.
func run(ctx context.Context, p *pipeline.Pipeline, source pipeline.Source, cfg Config) (report *audit.Report, err error) {
	a := &runner{pipeline: p, source: source, cfg: cfg}
	a.onClose(source.Close)
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		for _, end := range a.closers {
			_ = end(closing)
		}
	}()
	a.cfg.Audit.StampsFrom = p.StampsFrom()
	if p.Filter() != nil {
		a.cfg.Audit.Filter = p.Handles
	}
	ledger, err := a.ledger(ctx)
	if err != nil {
		return nil, err
	}
	group := p.Group
	if group.Namespace == "" { // only the log knows it
		topic, err := source.Describe(ctx)
		if err != nil {
			return nil, err
		}
		group.Namespace = topic.Namespace
	}
	if p.System == pipeline.EventHubs {
		if group, err = driver.Spelling(ctx, group, ledger); err != nil {
			return nil, err
		}
	}
	if report, err = audit.Run(ctx, source, ledger, group, &a.cfg.Audit); err == nil && a.notes != nil {
		report.Notes = a.notes()
	}
	return report, err
}

// runner is what an audit opens.
type runner struct {
	pipeline *pipeline.Pipeline
	source   pipeline.Source
	cfg      Config
	closers  []func(context.Context) error
	notes    func() []string // nil: none
}

func (a *runner) onClose(end func(context.Context) error) { a.closers = append(a.closers, end) }

// ledger opens what the pipeline's events left behind.
func (a *runner) ledger(ctx context.Context) (audit.Ledger, error) {
	if a.pipeline.Table != "" {
		return a.table()
	}
	parts, err := a.pipeline.OpenExisting(ctx)
	if err != nil {
		return nil, err
	}
	a.onClose(parts.Close)
	ledger := &storeLedger{parts: parts}
	return ledger, a.open(ctx, ledger)
}

// table is the ledger in the database of a pipeline's rows.
func (a *runner) table() (audit.Ledger, error) {
	lineage, err := a.pipeline.Lineage()
	if err != nil {
		return nil, err
	}
	tables := make([]audit.Table, len(lineage))
	for i, t := range lineage {
		tables[i] = audit.Table{Name: t.Table, Partition: t.Partition, Sequence: t.Sequence, Topic: t.Topic}
	}
	db, dialect, err := openDatabase(lineage[0].Database)
	if err != nil {
		return nil, err
	}
	a.onClose(func(context.Context) error { return db.Close() })
	return audit.NewSQLLedger(db, dialect, tables[0], tables[1:]...), nil
}

// open opens the target, and sets how the ledger finds events there.
func (a *runner) open(ctx context.Context, ledger *storeLedger) error {
	docs, err := a.pipeline.Documents(ctx, a.cfg.RU)
	switch {
	case err != nil:
		return err
	case docs != nil:
		a.onClose(docs.Close)
		a.cfg.Audit.Effect, ledger.find = "document", docs.Find
		a.notes = func() []string { return sharedNote(docs.Shared()) }
		return nil
	}
	if is := a.openMessages(ledger); is {
		return nil
	}
	if a.pipeline.HasIdentities() {
		return a.listIdentities(ledger)
	}
	a.cfg.Audit.Effect, ledger.find = "effect", unknown(unlisted[a.pipeline.Kind()])
	return nil
}

// unlisted are the reasons why nothing is known of what a target has.
var unlisted = map[string]string{
	"statement": "the checkpoint has passed it, and what the statement wrote does not show its event: target.statement.audit can name a query",
	"routes":    "the checkpoint has passed it, and of routes only those to tables can be audited",
	"http":      "the receiver has accepted it, and only its own database shows what it did: target.http.audit can name a query",
}

// listIdentities lists what the target has by the query in the file.
func (a *runner) listIdentities(ledger *storeLedger) error {
	db, list, err := a.pipeline.Identities()
	if err != nil {
		return err
	}
	a.onClose(func(context.Context) error { return db.Close() })
	a.cfg.Audit.Effect = "identity"
	ledger.list = func(ctx context.Context, topic sluice.Topic, partition string, last int64) iter.Seq2[int64, error] {
		return func(yield func(int64, error) bool) {
			for number, err := range list(ctx, topic, partition) {
				if err == nil && number > last {
					return // it may be newer than what is known of the log
				}
				if !yield(number, err) {
					return
				}
			}
		}
	}
	return nil
}

// sharedNote says how many documents cannot show which event wrote them.
func sharedNote(n int64, atLeast bool) []string {
	some := ""
	switch {
	case atLeast:
		some = "at least "
	case n == 0:
		return nil
	}
	return []string{fmt.Sprintf("%s%d with the id of an earlier event's document (which of them wrote it is not recorded: conditional: true records it)", some, n)}
}

var _ audit.Ledger = (*storeLedger)(nil)

// unknown is the answer for events of which nothing is known.
func unknown(why string) func(context.Context, sluice.Topic, []*sluice.Event) ([]pipeline.Found, error) {
	return func(_ context.Context, _ sluice.Topic, events []*sluice.Event) ([]pipeline.Found, error) {
		found := make([]pipeline.Found, len(events))
		for i := range found {
			found[i].Unknown = why
		}
		return found, nil
	}
}
