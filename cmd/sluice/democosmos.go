package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/dashboard"
	"github.com/sluice-go/sluice/cmd/sluice/internal/demo"
	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/cmd/sluice/internal/progress"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

type demoCosmosFlags struct {
	demoFlags
	ru int
}

func (a *app) demoCosmos() *cobra.Command {
	var flags demoCosmosFlags
	cmd := &cobra.Command{
		Use:   "cosmos",
		Short: "Demo: documents through an embedded hub into Cosmos DB, at a limited rate",
		Long: `Send documents of 1,000 bytes to an embedded hub and write them into an embedded Cosmos
DB account, in bulk, with all of the account's RU per second and no more. At the end,
Azure's own client reads every document back. Stop the demo at any moment, in any way,
and start it again: the hub continues where it stopped. The account is in memory, so it
is filled again from the hub.`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			if flags.ru < 400 || flags.ru > 10_000_000 {
				return usage.Errorf("--ru %d: must be 400, the smallest throughput of Cosmos DB, to 10,000,000", flags.ru)
			}
			return a.runDemoCosmos(ctx, flags)
		}),
	}
	f := cmd.Flags()
	f.Int64Var(&flags.events, "events", 50_000, "`number` of documents to send; each costs about 6.3 RU")
	f.IntVar(&flags.ru, "ru", 50_000, "request `units` per second of the account; it has one physical partition per 10,000")
	f.StringVar(&flags.dir, "data", "sluice-data/cosmos", "`directory` for the hub's events and the checkpoints")
	f.BoolVar(&flags.once, "once", false, "exit when all documents are written; fail unless each exists exactly once")
	flags.web.add(f)
	flags.web.addScaling(f)
	return cmd
}

func (a *app) runDemoCosmos(ctx context.Context, flags demoCosmosFlags) error {
	interrupted, stop := term.UntilInterrupted(ctx)
	defer stop()
	d, err := demo.OpenCosmos(interrupted, flags.dir, flags.ru, a.log)
	if err != nil {
		return err
	}
	defer closeDemo(ctx, d)
	fmt.Fprintf(a.out, "hub       %s (hub docs)\naccount   %s (container db/docs, %s RU/s)\npipeline  %s\n",
		d.Connection(), d.Endpoint(), humanize.Count(flags.ru), d.Config())
	b, err := a.beginDemo(interrupted, &flags.demoFlags, dashboard.Pipeline{Name: "cosmos", Pipeline: d.Pipeline(), Parts: d.Parts(), Audit: d.HubAudit})
	if err != nil {
		return err
	}
	defer b.Close()

	if err := d.Fill(interrupted, flags.events); err != nil {
		return flights.UnlessCancelled(interrupted, err)
	}

	m := progress.New(a.log, driver.KindAcquired, driver.KindOpened, driver.KindReleased)
	err = progress.ShowDuring(ctx, a.screen, func() error {
		return d.Run(interrupted, flags.events, flags.once, b.Options("cosmos", &pipeline.Options{Observer: m}), m.Stopped)
	}, progress.Stage{Monitor: m})
	if err != nil {
		return flights.UnlessCancelled(interrupted, err)
	}
	throughput, err := d.Throughput() // before the audit, which spends RU too
	if err != nil {
		return err
	}
	audit, err := d.Audit(ctx)
	if err != nil {
		return err
	}
	if err := demo.PrintDocuments(a.out, audit, throughput, flags.ru); err != nil {
		return err
	}
	return demo.Verdict(audit, flags.once)
}
