// Package rowaudit audits a pipeline by the rows that it inserts. Each row records the partition and
// the sequence number of its event.
package rowaudit

import (
	"context"
	"database/sql"
	"time"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/pipeline"
)

// Run compares the events of the pipeline's log with its rows and dead letters. It reads the log
// with the given consumer group, which must be the audit's own. Run sets cfg.Start and
// cfg.StampsFrom.
func Run(ctx context.Context, p *pipeline.Pipeline, consumerGroup string, cfg audit.Config) (*audit.Report, error) {
	db, ledger, err := open(p)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	source, err := p.SourceAs(consumerGroup)
	if err != nil {
		return nil, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = source.Close(closing)
	}()
	group := p.Group
	if group.Namespace == "" { // only the log knows it
		topic, err := source.Describe(ctx)
		if err != nil {
			return nil, err
		}
		group.Namespace = topic.Namespace
	}
	cfg.Start, cfg.StampsFrom = p.Start(), p.StampsFrom()
	return audit.Run(ctx, source, ledger, group, &cfg)
}

// open opens the database of a pipeline's rows, and the ledger in it.
func open(p *pipeline.Pipeline) (*sql.DB, audit.Ledger, error) {
	t, err := p.Lineage()
	if err != nil {
		return nil, nil, err
	}
	table := audit.Table{Name: t.Table, Partition: t.Partition, Sequence: t.Sequence}
	db, dialect, err := openDatabase(t.Database)
	if err != nil {
		return nil, nil, err
	}
	return db, audit.NewSQLLedger(db, dialect, table), nil
}
