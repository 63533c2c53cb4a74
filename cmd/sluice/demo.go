package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/dashboard"
	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline"
)

// started is when the process started, as far as a program knows.
var started = time.Now()

type demoFlags struct {
	events int64
	dir    string
	once   bool
	web    webFlags
}

func (d *demoFlags) check() error {
	if err := flights.CheckEvents(d.events); err != nil {
		return usage.Errorf("%v", err)
	}
	_, err := d.web.config()
	return err
}

func (a *app) demo() *cobra.Command {
	var flags demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Demo: flight records through an embedded hub into SQLite",
		Long: `Send real flight records to an embedded hub and write each one into a SQLite table,
exactly once. A few records lack the delay, which the table requires: they become dead
letters. Stop the demo at any moment, in any way, and start it again: it continues
where it stopped.`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			return a.runDemo(ctx, flags, func(ctx context.Context) (*flights.Demo, error) { return flights.OpenDemo(ctx, flags.dir, a.log) })
		}),
	}
	f := cmd.Flags()
	f.Int64Var(&flags.events, "events", 20_000, "`number` of records to send; after 20,000 the records repeat")
	f.StringVar(&flags.dir, "data", "sluice-data", "`directory` for the hub's events and the database")
	f.BoolVar(&flags.once, "once", false, "exit when all events are processed; fail unless each has exactly one effect")
	flags.web.add(f)
	flags.web.addScaling(f)
	cmd.AddCommand(a.demoKafka(), a.demoCosmos(), a.demoStages(), a.demoAutoscale())
	return cmd
}

func (a *app) runDemo(ctx context.Context, flags demoFlags, open func(context.Context) (*flights.Demo, error)) error {
	c := flights.Command{
		Dir: flags.dir, Events: flags.events, Once: flags.once, Started: started,
		Out: a.out, Screen: a.screen, Log: a.log, Program: invocation(), Open: open,
		View: func(ctx context.Context, d *flights.Demo) (*flights.View, error) { return a.viewDemo(ctx, &flags, d) },
	}
	return c.Run(ctx)
}

// viewDemo opens the dashboard of the flights if the flags ask for one.
func (a *app) viewDemo(ctx context.Context, flags *demoFlags, d *flights.Demo) (*flights.View, error) {
	if flags.web.address == "" {
		return nil, nil
	}
	p, err := pipeline.Load(d.Config())
	if err != nil {
		return nil, err
	}
	parts := &pipeline.Parts{Group: p.Group, Source: d.Source, Leases: d.Store().Leases(), Checkpoints: d.Store(), DeadLetters: d.DeadLetters}
	b, err := a.openDashboard(ctx, &flags.web, flags.dir, dashboard.Pipeline{Name: "flights", Pipeline: p, Parts: parts, Audit: d.HubAudit})
	if err != nil {
		return nil, err
	}
	shown := b.Options("flights", &pipeline.Options{Observer: driver.Observers()})
	return &flights.View{Address: b.String(), Observer: shown.Observer, Source: shown.Source, Close: b.Close}, nil
}

// beginDemo opens the dashboard if the flags ask for one, and prints how the demo ends.
func (a *app) beginDemo(ctx context.Context, flags *demoFlags, list ...dashboard.Pipeline) (*dashboard.Dashboard, error) {
	b, err := a.openDashboard(ctx, &flags.web, flags.dir, list...)
	if err != nil {
		return nil, err
	}
	if b != nil {
		fmt.Fprintf(a.out, "dashboard %s\n", b)
	}
	if !flags.once {
		fmt.Fprintln(a.out, "runs until you press ^C")
	}
	return b, nil
}

// closeDemo closes a demo at its end, where an error does not matter any more.
func closeDemo(ctx context.Context, d interface{ Close(context.Context) error }) {
	_ = d.Close(context.WithoutCancel(ctx))
}

// invocation is how this program was called, so that printed commands can be copied.
func invocation() string {
	// go run starts a program in a temporary directory, or in the build cache.
	path, err := os.Executable()
	cache, separator := os.Getenv("GOCACHE"), string(filepath.Separator)
	if err == nil && (strings.Contains(path, separator+"go-build") || cache != "" && strings.HasPrefix(path, cache+separator)) {
		return "go run ./cmd/sluice"
	}
	return flights.ShellWord(os.Args[0])
}
