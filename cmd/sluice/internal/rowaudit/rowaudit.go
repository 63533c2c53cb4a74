// Package rowaudit audits a pipeline by the rows that it inserts: they say which event each one
// belongs to.
package rowaudit

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/pipeline"
)

// Run compares the events of the pipeline's hub with its rows and dead letters. It reads the hub
// with a consumer group of its own. The start of cfg is set here.
func Run(ctx context.Context, p *pipeline.Pipeline, consumerGroup string, cfg audit.Config) (*audit.Report, error) {
	ledger, err := openLedger(p)
	if err != nil {
		return nil, err
	}
	defer ledger.Close()
	source, err := p.SourceAs(consumerGroup)
	if err != nil {
		return nil, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = source.Close(closing)
	}()
	cfg.Start = p.Start()
	return audit.Hub(ctx, source, ledger, p.Group, &cfg)
}

// openLedger opens the table that a pipeline inserts into.
func openLedger(p *pipeline.Pipeline) (*audit.SQL, error) {
	t, err := p.Trace()
	if err != nil {
		return nil, err
	}
	table := audit.Table{Name: t.Table, Partition: t.Partition, Sequence: t.Sequence}
	if t.SQLite != "" {
		return audit.OpenSQLite(t.SQLite, table)
	}
	return audit.OpenPostgres(t.Postgres, table)
}
