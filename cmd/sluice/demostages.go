package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/dashboard"
	"github.com/sluice-go/sluice/cmd/sluice/internal/demo"
	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/cmd/sluice/internal/progress"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline"
)

func (a *app) demoStages() *cobra.Command {
	var flags demoFlags
	cmd := &cobra.Command{
		Use:   "stages",
		Short: "Demo: three stages that feed each other, the second in memory",
		Long: `Send flight records to an embedded hub. The first stage turns records that cannot be
used into dead letters and sends the rest to a second hub. The second stage keeps 24
hours of them in memory and publishes figures of each airport and hour to a third hub.
The third stage upserts the figures into a SQLite table. At the end the table is
compared with one that is computed directly from the flights. Stop the demo at any
moment, in any way, and start it again: it continues where it stopped, and the second
stage rebuilds its memory from its hub.`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			return a.runDemoStages(ctx, flags)
		}),
	}
	f := cmd.Flags()
	f.Int64Var(&flags.events, "events", 20_000, "`number` of flights to send; after 20,000 the flights repeat, with other times")
	f.StringVar(&flags.dir, "data", "sluice-data/stages", "`directory` for the hubs' events and the database")
	f.BoolVar(&flags.once, "once", false, "exit when all flights are processed; fail unless the table equals the one computed directly")
	flags.web.add(f)
	flags.web.addScaling(f)
	return cmd
}

func (a *app) runDemoStages(ctx context.Context, flags demoFlags) error {
	interrupted, stop := term.UntilInterrupted(ctx)
	defer stop()
	d, err := demo.OpenStages(interrupted, flags.dir, a.log)
	if err != nil {
		return flights.UnlessCancelled(interrupted, err)
	}
	defer closeDemo(ctx, d)
	fmt.Fprintf(a.out, "hubs      %s (flights → clean → figures)\ndatabase  %s\npipeline  %s\n", d.Connection(), d.Database(), d.Config())
	if d.Restarted() {
		fmt.Fprintln(a.out, "starts from the beginning: the flights of the last run are too old for a memory of 24 hours")
	}
	var list []dashboard.Pipeline
	for _, name := range d.Names() {
		s := dashboard.Pipeline{Name: name, Parts: d.PartsOf(name), Unaudited: d.Unaudited(name)}
		if s.Unaudited == "" {
			s.Pipeline, s.Audit = d.Pipeline(), d.HubAudit
		}
		list = append(list, s)
	}
	b, err := a.beginDemo(interrupted, &flags, list...)
	if err != nil {
		return err
	}
	defer b.Close()

	var stages []progress.Stage
	var opts []*pipeline.Options
	var stopped []func() map[string]error
	for _, name := range d.Names() {
		m := progress.New(a.log.With("stage", name), driver.KindAcquired, driver.KindOpened, driver.KindReleased, driver.KindParked)
		stages, stopped = append(stages, progress.Stage{Name: name, Monitor: m}), append(stopped, m.Stopped)
		opts = append(opts, b.Options(name, &pipeline.Options{Observer: m}))
	}
	err = progress.ShowDuring(ctx, a.screen, func() error {
		return d.Run(interrupted, flags.events, flags.once, opts, stopped)
	}, stages...)
	if err != nil {
		return flights.UnlessCancelled(interrupted, err)
	}
	took := time.Since(started)
	audit, err := d.Audit(ctx)
	if err != nil {
		return err
	}
	if err := audit.Print(a.out, flags.once, d.Repeats(), took); err != nil {
		return err
	}
	switch {
	case flags.once && audit.Wrong > 0:
		return fmt.Errorf("the table differs from the one computed from the flights: %s", audit.First)
	case flags.once && !audit.Exact():
		return fmt.Errorf("%d flights sent, but %d counted and %d dead letters", audit.Sent, audit.Counted, audit.DeadLetters)
	}
	return nil
}
