package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/backtest"
	"github.com/sluice-go/sluice/cmd/sluice/internal/dashboard"
	"github.com/sluice-go/sluice/cmd/sluice/internal/demo"
	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/cmd/sluice/internal/scalingview"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/humanize"
)

type demoAutoscaleFlags struct {
	demoFlags // without the number of events, which follows from the load
	plot      string
}

func (a *app) demoAutoscale() *cobra.Command {
	var flags demoAutoscaleFlags
	cmd := &cobra.Command{
		Use:   "autoscale",
		Short: "Demo: the load rises and falls, and the number of workers follows",
		Long: `Send documents to an embedded hub at a rate that rises and falls. Workers write them
into an embedded Cosmos DB account: processes of "sluice run" with balanced partitions,
each of which can handle 300 events per second. The hub's lag decides how many workers
run; before one is stopped, a subscription of an embedded Service Bus must be empty
too. Every decision that changes something is logged with the metrics behind it. At the
end, Azure's own client reads every document back. The demo starts from the beginning
every time.`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			if !drawable(flags.plot) {
				return usage.Errorf(notDrawable, flags.plot)
			}
			if _, err := flags.web.config(); err != nil {
				return err
			}
			return a.runDemoAutoscale(ctx, flags)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&flags.dir, "data", "sluice-data/autoscale", "`directory` for the hub's events, the checkpoints and the output of the workers")
	f.StringVar(&flags.plot, "plot", "", "plot lag, workers and decisions to a `file`, .svg")
	f.BoolVar(&flags.once, "once", false, "exit after one rise and fall; fail unless all events are written exactly once and the number of workers is back at its minimum")
	flags.web.add(f)
	return cmd
}

func (a *app) runDemoAutoscale(ctx context.Context, flags demoAutoscaleFlags) error {
	interrupted, stop := term.UntilInterrupted(ctx)
	defer stop()
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	d, err := demo.OpenAutoscale(interrupted, flags.dir, &demo.AutoscaleConfig{Program: program, OnRecord: a.logScaling, Log: a.quieter()})
	if err != nil {
		return err
	}
	defer closeDemo(ctx, d)
	fmt.Fprintf(a.out, "hub       %s (hub docs)\naccount   %s (container db/docs)\nworkers   sluice run %s\n", d.Connection(), d.Endpoint(), d.Config())
	resource, store := d.Scaling()
	b, err := a.beginDemo(interrupted, &flags.demoFlags, dashboard.Pipeline{Name: "worker", Pipeline: d.Pipeline(), Parts: d.Parts(), Elsewhere: true,
		Scaling: scalingview.New(store, resource), Audit: d.HubAudit})
	if err != nil {
		return err
	}
	defer b.Close()

	var watching sync.WaitGroup
	watched, unwatch := context.WithCancel(ctx)
	watching.Go(func() { a.showScaling(watched, d) })
	err = d.Run(interrupted, flags.once)
	unwatch()
	watching.Wait()
	if err != nil {
		return flights.UnlessCancelled(interrupted, err)
	}
	log, err := d.Log(ctx)
	if err != nil {
		return err
	}
	audit, err := d.Audit(ctx)
	if err != nil {
		return err
	}
	if err := demo.PrintScaling(a.out, audit, log, d.State(ctx), d.SecondWorker()); err != nil {
		return err
	}
	if flags.plot != "" {
		if err := plotInto(flags.plot, []*backtest.Result{demo.BacktestResult(log)}); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "The plot is in %s.\n", flags.plot)
	}
	return demo.Verdict(audit, flags.once)
}

// quieter is the log with warnings and errors only: the decisions are logged separately.
func (a *app) quieter() *slog.Logger { return slog.New(warnings{a.log.Handler()}) }

// warnings drops log lines below warnings, unless debug lines are enabled.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return w.Handler.Enabled(ctx, l) && (l >= slog.LevelWarn || w.Handler.Enabled(ctx, slog.LevelDebug))
}

func (w warnings) WithAttrs(list []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(list)}
}
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }

// logScaling logs decisions that change something, and their outcomes.
func (a *app) logScaling(r autoscale.Record) {
	switch r.Kind {
	case autoscale.Up, autoscale.Down:
		a.log.Info("scale "+string(r.Kind), "from", r.Instances, "to", r.Wanted, "reason", r.Reason)
	case autoscale.ActionSucceeded:
		a.log.Info("scaled", "workers", r.Instances, "reason", r.Reason)
	case autoscale.ActionFailed:
		a.log.Error("not scaled", "workers", r.Instances, "reason", r.Reason)
	}
}

// showScaling updates the status line until ctx ends.
func (a *app) showScaling(ctx context.Context, d *demo.Autoscale) {
	began := time.Now()
	a.screen.Follow(ctx, func() string {
		s := d.State(ctx)
		return fmt.Sprintf("%s  load %s/s  lag %s  %s written  %d orders waiting  %s",
			humanize.Plural(s.Workers, "worker", "workers"), humanize.Count(s.Load), lagText(s.Lag), humanize.Count(s.Written), s.Waiting,
			time.Since(began).Truncate(time.Second))
	}, func() {
		s := d.State(ctx)
		a.log.Info("progress", "workers", s.Workers, "load", s.Load, "lag", lagText(s.Lag), "written", s.Written, "orders_waiting", s.Waiting)
	})
}

func lagText(lag int64) string {
	if lag < 0 {
		return "?"
	}
	return humanize.Count(lag)
}
