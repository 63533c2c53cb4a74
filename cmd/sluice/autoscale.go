package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

func (a *app) autoscale() *cobra.Command {
	return a.group("autoscale", "Scale what does the work by how much work waits",
		a.autoscaleRun(), a.autoscaleLog(), a.autoscaleRecord(), a.autoscaleBacktest())
}

func (a *app) autoscaleRun() *cobra.Command {
	var dry bool
	var part string
	cmd := &cobra.Command{
		Use:   "run CONFIG.yaml",
		Short: "Read metrics, decide and scale until interrupted",
		Long: `Read metrics, decide and scale until interrupted. Each decision that is not "leave
it as it is" is logged; all of them are kept: see sluice autoscale log.

The three parts, collector, logic and scaler, may run as processes of their own,
with the same file; queues in the file's state join them.`,
		Example: "  sluice autoscale run orders.yaml\n  sluice autoscale run orders.yaml --dry-run\n  sluice autoscale run orders.yaml --part collector",
		Args:    cobra.ExactArgs(1),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			which := config.Mode(part)
			switch {
			case which != config.AllParts && which != config.Collector && which != config.Logic && which != config.Scaler:
				return usage.Errorf("--part %s: write collector, logic or scaler", part)
			case dry && which != config.AllParts:
				return usage.Errorf("--dry-run runs all parts: leave out --part")
			case dry:
				which = config.DryRun
			}
			return a.runAutoscaler(ctx, args[0], which)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&dry, "dry-run", false, "decide, but scale nothing and remember nothing")
	f.StringVar(&part, "part", "", "run one `part` alone: collector, logic or scaler")
	return cmd
}

func (a *app) runAutoscaler(ctx context.Context, path string, which config.Mode) (err error) {
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	parts, err := c.Open(ctx, which, &config.Options{Log: a.log, OnRecord: a.logDecision})
	if err != nil {
		return unlessInterrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, closeSoon(ctx, parts.Close)) }()
	r := &c.Resource
	a.log.Info("autoscaling", "resource", r.Name, "every", r.Limits.Interval, "min", r.Limits.Min, "max", r.Limits.Max, "dry_run", which == config.DryRun)
	return parts.Run(ctx)
}

// logDecision shows a record; those that leave things as they are for the
// curious alone.
func (a *app) logDecision(r autoscale.Record) {
	log := a.log.Info
	switch r.Kind {
	case autoscale.Hold:
		log = a.log.Debug
	case autoscale.ActionFailed:
		log = a.log.Error
	}
	log(string(r.Kind), "resource", r.Resource, "instances", r.Instances, "wanted", r.Wanted, "reason", r.Reason)
}

// closeTimeout is what closing may take after an interrupt: workers are given
// their time to end.
const closeTimeout = 2 * time.Minute

func closeSoon(ctx context.Context, close func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return close(ctx)
}

// sinceFlag is a while ago.
type sinceFlag struct {
	within time.Duration
	limit  int
	json   bool
}

func (a *app) autoscaleLog() *cobra.Command {
	var flags sinceFlag
	cmd := &cobra.Command{
		Use:   "log CONFIG.yaml",
		Short: "Show the decisions, and the numbers behind each",
		Long: `Show the decisions, the oldest first: what was decided and why, also where that
was to leave things as they are; and what became of each action.`,
		Example: "  sluice autoscale log orders.yaml --since 1h\n  sluice autoscale log orders.yaml --json | jq 'select(.kind != \"hold\")'",
		Args:    cobra.ExactArgs(1),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			if flags.within < 0 || flags.limit < 0 {
				return usage.Errorf("--since and --limit must not be negative")
			}
			return a.showDecisions(ctx, args[0], flags)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&flags.json, "json", false, "a line of JSON for each record")
	f.DurationVar(&flags.within, "since", 0, "only those of this last `while`, such as 1h")
	f.IntVar(&flags.limit, "limit", 0, "only the last `n`")
	return cmd
}

func (a *app) showDecisions(ctx context.Context, path string, flags sinceFlag) (err error) {
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	store, done, err := c.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done(ctx)) }()
	var since time.Time
	if flags.within > 0 {
		since = time.Now().Add(-flags.within)
	}
	records, err := store.Records(ctx, c.Resource.Name, since, flags.limit)
	if err != nil {
		return err
	}
	if len(records) == 0 && !flags.json {
		fmt.Fprintln(a.screen, "no decisions")
		return nil
	}
	return writeDecisions(a.out, records, flags.json)
}
