package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
	"github.com/sluice-go/sluice/cmd/sluice/internal/rowaudit"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/humanize"
)

type auditFlags struct {
	config, stage string
	consumerGroup string
	bin           time.Duration
	json          bool
	html          string
}

func (a *app) auditHub() *cobra.Command {
	var flags auditFlags
	cmd := &cobra.Command{
		Use:   "hub --config PIPELINE.yaml",
		Short: "Compare what a hub holds with the rows and dead letters of a pipeline, event by event",
		Long: `Read a hub from its first event to its last and look for each event's row or dead
letter, by partition and sequence number. What the checkpoint has passed must
have exactly one of them. The pipeline may run meanwhile.

The pipeline must insert into a table that has columns mapped from partition and
sequence. The hub is read by a consumer group of the audit's own, which must be
there.

It exits with 0 if nothing is lost and nothing duplicated, with 1 if something is,
and with 2 if it could not tell.`,
		Example: "  sluice audit hub --config flights.yaml\n  sluice audit hub --config flights.yaml --consumer-group audit --html audit.html",
		Args:    cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			if flags.bin < time.Minute {
				return usage.Errorf("--bin %v: must be at least 1m", flags.bin)
			}
			ctx, stop := untilInterrupted(ctx)
			defer stop()
			return undecided(ctx, a.runAuditHub(ctx, &flags))
		}),
	}
	f := cmd.Flags()
	f.StringVar(&flags.config, "config", "", "the `PIPELINE.yaml` that is audited")
	stageFlag(f, &flags.stage)
	f.StringVar(&flags.consumerGroup, "consumer-group", "sluice-audit", "`name` of the consumer group that the audit reads by")
	f.DurationVar(&flags.bin, "bin", time.Hour, "`length` of the report's bins of time")
	f.BoolVar(&flags.json, "json", false, "print the report as JSON")
	f.StringVar(&flags.html, "html", "", "write the report to an HTML `file`")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

func (a *app) runAuditHub(ctx context.Context, flags *auditFlags) error {
	p, err := loadStageWithCheckpoints(flags.config, flags.stage)
	if err != nil {
		return err
	}
	if flags.consumerGroup == p.Group.Name {
		return usage.Errorf("--consumer-group %s is the pipeline's own: the hub lets no second reader into it", flags.consumerGroup)
	}
	var read atomic.Int64
	var watching sync.WaitGroup
	watched, unwatch := context.WithCancel(ctx)
	watching.Go(func() { a.watchAudit(watched, &read) })
	report, err := rowaudit.Run(ctx, p, flags.consumerGroup, audit.Config{Bin: flags.bin, Progress: read.Store})
	unwatch()
	watching.Wait()
	if err != nil {
		return err
	}
	if flags.html != "" {
		if err := create(flags.html, func(w io.Writer) error { return report.WriteHTML(w) }); err != nil {
			return err
		}
	}
	if flags.json {
		err = report.WriteJSON(a.out)
	} else {
		err = results.Audit(a.out, report)
	}
	switch {
	case err != nil:
		return err
	case report.Undecided():
		return &verdictError{exitUndecided, "can't tell of all events whether they were lost"}
	case !report.Exact():
		return &verdictError{exitLoss, "not exact: events are lost or duplicated"}
	}
	return nil
}

func (a *app) watchAudit(ctx context.Context, read *atomic.Int64) {
	began := time.Now()
	var speed term.Speed
	speed.At(began, 0)
	a.screen.Follow(ctx, func() string {
		now, n := time.Now(), read.Load()
		return fmt.Sprintf("%s read  %s/s  %s", humanize.Plural(n, "event", "events"), humanize.Count(speed.At(now, n)), now.Sub(began).Truncate(time.Second))
	}, func() {
		n := read.Load()
		a.log.Info("progress", "read", n, "per_second", speed.At(time.Now(), n))
	})
}
