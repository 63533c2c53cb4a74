package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/dashboard"
	"github.com/sluice-go/sluice/cmd/sluice/internal/demo"
	"github.com/sluice-go/sluice/cmd/sluice/internal/progress"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
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
		Short: "See it work: documents through an embedded hub into Cosmos DB, at a set rate",
		Long: `Send documents of 1,000 bytes to an embedded hub and write them into an embedded
Cosmos DB account, in bulk, at the RU per second that it has, and not above. At
the end Azure's own client reads every document back. Stop it at any moment, in
any way, and start it again: the hub goes on where it was. The account is in
memory, so it is filled anew from the hub.`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			if flags.ru < 400 || flags.ru > 10_000_000 {
				return usage.Errorf("--ru %d: must be 400, the least that Cosmos DB has, to 10,000,000", flags.ru)
			}
			return a.runDemoCosmos(ctx, flags)
		}),
	}
	f := cmd.Flags()
	f.Int64Var(&flags.events, "events", 50_000, "send so `many` documents; each takes about 6.3 RU")
	f.IntVar(&flags.ru, "ru", 50_000, "request `units` a second that the account has, shared by a physical partition for each 10,000")
	f.StringVar(&flags.dir, "data", "sluice-data/cosmos", "`directory` of the hub's events and the checkpoints")
	f.BoolVar(&flags.once, "once", false, "end when all is done; fail unless each document is there exactly once")
	flags.web.add(f)
	flags.web.addScaling(f)
	return cmd
}

func (a *app) runDemoCosmos(ctx context.Context, flags demoCosmosFlags) error {
	interrupted, stop := untilInterrupted(ctx)
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
		return unlessCancelled(interrupted, err)
	}

	m := progress.New(a.log, sluice.KindAcquired, sluice.KindOpened, sluice.KindReleased)
	err = a.showProgress(ctx, func() error {
		return d.Run(interrupted, flags.events, flags.once, b.Options("cosmos", &pipeline.Options{Observer: m}), m.Stopped)
	}, progress.Stage{Monitor: m})
	if err != nil {
		return unlessCancelled(interrupted, err)
	}
	pace, err := d.Pace() // before reading spends RU too
	if err != nil {
		return err
	}
	audit, err := d.Audit(ctx)
	if err != nil {
		return err
	}
	a.printCosmosAudit(audit, pace, flags)
	switch {
	case audit.Faults > 0:
		return fmt.Errorf("not exactly once: %s", audit.First)
	case flags.once && audit.DeadLetters > 0:
		return errors.New("there are dead letters, and no document should be one")
	case flags.once && !audit.Exact():
		return fmt.Errorf("%s not written", humanize.Plural(audit.Waiting, "document is", "documents are"))
	}
	return nil
}

// atFullRate is how long a demo must last at the rate that is set to tell how
// much of it was used.
const atFullRate = 5 * time.Second

func (a *app) printCosmosAudit(audit *demo.Audit, pace demo.Pace, flags demoCosmosFlags) {
	var b strings.Builder
	line := func(n int64, what string) {
		fmt.Fprintf(&b, "%12s  %s\n", humanize.Count(n), what)
	}
	b.WriteByte('\n')
	line(audit.Sent, "events in the hub")
	line(audit.Written, "documents in the container, each read back")
	line(audit.DeadLetters, "dead letters")
	if audit.Waiting > 0 {
		line(audit.Waiting, "still to do: start the demo again to go on")
	}
	if audit.Exact() && audit.DeadLetters == 0 {
		fmt.Fprintf(&b, "\n%s = %s, each exactly once: every document was compared with what was sent.\n",
			humanize.Count(audit.Sent), humanize.Count(audit.Written))
	}
	if seconds := pace.Took.Seconds(); seconds > 0 {
		fmt.Fprintf(&b, "%s RU in %s", humanize.Count(int64(math.Round(pace.RU))), humanize.Span(pace.Took))
		// At first partitions are taken one a second, and the rate is not what holds it up.
		if pace.RU > atFullRate.Seconds()*float64(flags.ru) {
			fmt.Fprintf(&b, ", %.1f %% of the %s RU/s that there are, %s documents/s",
				100*pace.RU/seconds/float64(flags.ru), humanize.Count(flags.ru), humanize.Count(int64(float64(audit.Written)/seconds)))
		}
		fmt.Fprintf(&b, "; %s answered 429.\n", humanize.Plural(pace.Throttled, "attempt was", "attempts were"))
	}
	fmt.Fprint(a.out, b.String())
}
