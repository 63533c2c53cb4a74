package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

func (a *app) autoscale() *cobra.Command {
	return a.group("autoscale", "Autoscale workers on backlog",
		a.autoscaleRun(), a.autoscaleLog(), a.autoscaleRecord(), a.autoscaleBacktest(), a.autoscaleKEDA())
}

// What to do without an autoscaler's file.
const (
	autoscalerFiles = "check the path; docs/autoscale.md has examples, sluice help autoscale-file all keys"
	noAutoscaler    = "name the autoscaler's file: pass CONFIG.yaml; docs/autoscale.md has examples, sluice help autoscale-file all keys"
)

func (a *app) autoscaleRun() *cobra.Command {
	var dry, once bool
	var part, metrics string
	var round onceFlags
	cmd := &cobra.Command{
		Use:   "run CONFIG.yaml...",
		Short: "Read metrics, decide and scale until interrupted",
		Long: `Read metrics, decide and scale until interrupted. Decisions that scale and the
outcomes of actions are logged; all decisions are kept: see sluice autoscale log.

The three parts, collector, logic and scaler, may run as separate processes, all
started with the same file. The queues between them are in the state that the file names.

With several files, each resource is on its own: what fails for one delays no other, and
a file that is not valid is read again until it is. Two files with the same resource or
target are refused.

Of several processes with the same file and state, one is active. The others stand by, and
take over when it stops, or within 20 seconds after it was killed.

With --once, for timers: complete what an earlier run has left, read, decide and scale
once, then exit. If another process works on the resource, exit without doing anything.`,
		Example: "  sluice autoscale run orders.yaml\n  sluice autoscale run orders.yaml mail.yaml\n  sluice autoscale run orders.yaml --dry-run\n" +
			"  sluice autoscale run orders.yaml --part collector\n  sluice autoscale run orders.yaml --once --wait 2m",
		Args: needs(1, 0, noAutoscaler),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			which := config.Mode(part)
			switch {
			case which != config.AllParts && which != config.Collector && which != config.Logic && which != config.Scaler:
				return usage.Errorf("--part %s: write collector, logic or scaler", part)
			case dry && which != config.AllParts:
				return usage.Errorf("--dry-run runs all parts: leave out --part")
			case once && (dry || which != config.AllParts):
				return usage.Errorf("--once scales, with all parts: leave out --dry-run and --part")
			case !once && round != onceDefaults:
				return usage.Errorf("--wait and --detailed-exit-code need --once")
			case once && metrics != "":
				return usage.Errorf("--metrics serves until interrupted: leave out --once")
			case round.wait <= 0:
				return usage.Errorf("--wait must be positive")
			case dry:
				which = config.DryRun
			}
			group, err := config.LoadGroup(which, args...)
			if err != nil {
				return notThere(err, autoscalerFiles)
			}
			ctx, stop := term.UntilInterrupted(ctx)
			defer stop()
			opts := &config.Options{Log: a.log, OnRecord: a.logDecision}
			if once {
				return a.scaleOnce(group.Once(ctx, round.wait, opts), round.detailed)
			}
			m, err := a.startMonitoring(ctx, metrics)
			if err != nil {
				return err
			}
			defer m.Close()
			watched, err := m.Autoscalers(args...)
			if err != nil {
				return err
			}
			opts.Watch = watched
			opts.OnRecord = func(r autoscale.Record) { a.logDecision(r); watched.OnRecord(r) }
			return group.Run(ctx, opts)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&dry, "dry-run", false, "decide, but scale nothing and save nothing")
	f.StringVar(&metrics, "metrics", "", "serve /metrics (Prometheus), /livez and /readyz over plain HTTP at this `address`, such as 127.0.0.1:9090")
	f.StringVar(&part, "part", "", "run one `part` only: collector, logic or scaler")
	f.BoolVar(&once, "once", false, "decide and scale once, then exit: for timers")
	round.add(f)
	return cmd
}

// logDecision logs a record: a decision to change nothing at level debug, an action
// that failed at level error.
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

// closeTimeout bounds closing after an interrupt: workers need time for a graceful
// stop.
const closeTimeout = 2 * time.Minute

func closeSoon(ctx context.Context, close func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return close(ctx)
}

// logFlags are the flags of `sluice autoscale log`.
type logFlags struct {
	period time.Duration
	limit  int
	json   bool
}

func (a *app) autoscaleLog() *cobra.Command {
	var flags logFlags
	cmd := &cobra.Command{
		Use:   "log CONFIG.yaml",
		Short: "Show the decisions and the metrics behind each",
		Long: `Show the decisions, oldest first: what was decided and why, decisions to change
nothing too, and the outcome of each action.`,
		Example: "  sluice autoscale log orders.yaml --since 1h\n  sluice autoscale log orders.yaml --json | jq 'select(.kind != \"hold\")'",
		Args:    needs(1, 1, noAutoscaler),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			if flags.period < 0 || flags.limit < 0 {
				return usage.Errorf("--since and --limit must not be negative")
			}
			return a.showDecisions(ctx, args[0], flags)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&flags.json, "json", false, "write one line of JSON for each record")
	f.DurationVar(&flags.period, "since", 0, "show only records of the last `duration`, such as 1h")
	f.IntVar(&flags.limit, "limit", 0, "show only the last `n` records")
	return cmd
}

func (a *app) showDecisions(ctx context.Context, path string, flags logFlags) (err error) {
	c, err := config.Load(path)
	if err != nil {
		return notThere(err, autoscalerFiles)
	}
	store, done, err := c.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done(ctx)) }()
	var since time.Time
	if flags.period > 0 {
		since = time.Now().Add(-flags.period)
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
