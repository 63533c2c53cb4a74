package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/pipelines"
	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

func (a *app) checkpoints() *cobra.Command {
	return a.group("checkpoints", "List, set or import the checkpoints of a pipeline", a.checkpointsList(), a.checkpointsSet(), a.checkpointsImport())
}

// withTable opens the pipeline and calls fn. It creates a database that is missing, so that
// checkpoints can be set before the first start. A dry run creates none: where there is none,
// nothing is stored.
func withTable(ctx context.Context, config, stage string, dryRun bool, fn func(context.Context, *checkpoint.Table) error) error {
	open := (*pipeline.Pipeline).Open
	if dryRun {
		open = openDry
	}
	return withParts(ctx, open, config, stage, func(ctx context.Context, t *checkpoint.Table) error {
		t.DryRun = dryRun
		return fn(ctx, t)
	})
}

func openDry(p *pipeline.Pipeline, ctx context.Context) (*pipeline.Parts, error) {
	parts, err := p.OpenExisting(ctx)
	if !errors.Is(err, pipeline.ErrDatabaseMissing) {
		return parts, err
	}
	if parts, err = p.OpenLog(ctx); err != nil {
		return nil, err
	}
	parts.Leases, parts.Checkpoints, parts.DeadLetters = checkpoint.NoLeases{}, checkpoint.NoCheckpoints{}, checkpoint.NoDeadLetters{}
	return parts, nil
}

// opening is a method of a pipeline that opens it.
type opening func(*pipeline.Pipeline, context.Context) (*pipeline.Parts, error)

func withParts(ctx context.Context, open opening, config, stage string, fn func(context.Context, *checkpoint.Table) error) error {
	return withPipeline(ctx, open, config, stage, func(ctx context.Context, _ *pipeline.Pipeline, t *checkpoint.Table) error { return fn(ctx, t) })
}

func withPipeline(ctx context.Context, open opening, config, stage string, fn func(context.Context, *pipeline.Pipeline, *checkpoint.Table) error) error {
	ctx, stop := term.UntilInterrupted(ctx)
	defer stop()
	p, err := loadStageWithCheckpoints(ctx, config, stage)
	if err != nil {
		return err
	}
	parts, err := open(p, ctx)
	if err != nil {
		return err
	}
	defer pipelines.CloseParts(ctx, parts)
	return fn(ctx, p, &checkpoint.Table{
		Noun: p.System.Noun(), Group: parts.Group, SDKGroup: p.SDKGroup(parts.Group), Source: parts.Source, Leases: parts.Leases, Checkpoints: parts.Checkpoints, DeadLetters: parts.DeadLetters,
		AtLeastOnce: p.AtLeastOnce() && !p.InBatches(), InBatches: p.InBatches(), ManyReaders: p.System != pipeline.EventHubs,
	})
}

// withStores opens an existing pipeline, or the store of a program without one, and calls fn. It
// creates nothing: a wrong name must not look like a pipeline without checkpoints, and a database
// that an operator creates as another user cannot be opened by the pipeline.
func withStores(ctx context.Context, config, stage string, store *storeFlags, fn func(context.Context, *checkpoint.Table) error) error {
	stored, err := store.given(config, stage)
	if err != nil {
		return err
	}
	if !stored {
		return withParts(ctx, (*pipeline.Pipeline).OpenExisting, config, stage, fn)
	}
	ctx, stop := term.UntilInterrupted(ctx)
	defer stop()
	stores, err := store.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stores.Close(context.WithoutCancel(ctx)) }()
	return fn(ctx, &checkpoint.Table{Group: stores.Group, Leases: stores.Leases, Checkpoints: stores.Checkpoints, DeadLetters: stores.DeadLetters})
}

func (a *app) checkpointsList() *cobra.Command {
	var config, stage string
	var store storeFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list --config PIPELINE.yaml",
		Short: "List position, lag, owner and dead letters of each partition",
		Long: `List position, lag, owner and dead letters of each partition. The position is the
sequence number of the last event of which all effects are committed, "origin" before
the first event, or "-" if no consumer has started. The lag is the number of events in
the hub after the position, or "?" if the hub cannot be reached. LEASE is the time until
the owner's lease expires. A SQLite database that does not exist is not created.

Of a program that uses the library, named by its store, the partitions are those that the
store knows, and the lag is "?".` + namingStores,
		Example: "  sluice checkpoints list --config flights.yaml\n  sluice checkpoints list --config stages.yaml --stage clean --json",
		Args:    cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			return withStores(ctx, config, stage, &store, func(ctx context.Context, t *checkpoint.Table) error {
				rows, hub, err := t.List(ctx)
				if err != nil {
					return err
				}
				if hub != nil {
					a.log.Warn("lag unknown, the hub or topic does not answer", "error", hub)
				}
				if asJSON {
					return results.JSON(a.out, results.DescribeCheckpoints(rows))
				}
				return results.CheckpointTable(a.out, rows)
			})
		}),
	}
	cmd.Flags().StringVar(&config, "config", "", "the `PIPELINE.yaml` that the checkpoints belong to")
	stageFlag(cmd.Flags(), &stage)
	store.add(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

type setFlags struct {
	config     string
	stage      string
	json       bool
	partitions []string
	all        bool
	start      string
	force      bool
	dryRun     bool
}

func (a *app) checkpointsSet() *cobra.Command {
	var s setFlags
	cmd := &cobra.Command{
		Use:   "set --config PIPELINE.yaml {--partition P…|--all} --to START",
		Short: "Set the position from which partitions are read",
		Long: `Set the position from which partitions are read: earliest, latest, a time such as
2026-01-31T08:00:00Z, "24h ago", "sequence N" or "offset O". The event at START is the
first to be delivered; if START is after the newest event, the next new event is. Events
that were processed can then be delivered again, and others can be skipped: the command
prints how many.

Dead letters: a pipeline into a database delivers their events again too, also discarded
ones, and the outcome replaces the dead letter. One that posts batches in order does so too,
and the dead letters stay. Other pipelines do not read these events again: the command marks
their dead letters for a retry, and discarded ones stay discarded. The command prints how many.

The command refuses to change anything while a partition has a live owner. With --force
the owner is fenced: it cannot commit any more. With --dry-run it is not disturbed; what is
printed then goes by the hub's runtime information, which can be seconds old.

Deduplication state that was dropped in the meantime is not restored: if an earlier stage
sent a message twice, once before START and once after it, both can take effect.`,
		Example: `  sluice checkpoints set --config flights.yaml --all --to earliest --dry-run
  sluice checkpoints set --config flights.yaml --partition 3 --to "sequence 1200"`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			if s.all == (len(s.partitions) > 0) {
				return usage.Errorf("choose partitions: pass --partition P or --all")
			}
			if s.start == "" {
				return usage.Errorf("--to is missing: pass earliest, latest, a time, \"24h ago\", \"sequence N\" or \"offset O\"")
			}
			start, err := sluice.ParseStart(s.start)
			if err != nil {
				return usage.Errorf("--to: %v", err)
			}
			return withTable(ctx, s.config, s.stage, s.dryRun, func(ctx context.Context, t *checkpoint.Table) error {
				return a.setCheckpoints(ctx, t, &s, start)
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&s.config, "config", "", "the `PIPELINE.yaml` that the checkpoints belong to")
	stageFlag(f, &s.stage)
	f.BoolVar(&s.json, "json", false, "print JSON")
	f.StringSliceVar(&s.partitions, "partition", nil, "a `partition`; can be repeated")
	f.BoolVar(&s.all, "all", false, "all partitions")
	f.StringVar(&s.start, "to", "", "`position` to read from")
	f.BoolVar(&s.force, "force", false, "also if a partition has a live owner, which is fenced")
	f.BoolVar(&s.dryRun, "dry-run", false, "print what would change, and change nothing")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

// afterOthers adds to an error that n checkpoints are set already: results of a command that fails
// are not all printed.
func afterOthers(err error, n int) error {
	if n == 0 {
		return err
	}
	return fmt.Errorf("%w (%s before: see `sluice checkpoints list`)", err, humanize.Plural(n, "checkpoint was set", "checkpoints were set"))
}

// setCheckpoints plans all moves before it makes the first.
func (a *app) setCheckpoints(ctx context.Context, t *checkpoint.Table, s *setFlags, start sluice.Start) error {
	if s.all {
		topic, err := t.Source.Describe(ctx)
		if err != nil {
			return err
		}
		s.partitions = topic.Partitions
	}
	var moves []checkpoint.Move
	for _, p := range s.partitions {
		m, err := t.Plan(ctx, p, start, s.force)
		if err != nil {
			return err
		}
		moves = append(moves, m)
	}
	for i, p := range s.partitions {
		if !s.dryRun {
			m, err := t.Set(ctx, p, start, s.force)
			if err != nil {
				return afterOthers(err, i)
			}
			moves[i] = m
		}
		if !s.json {
			fmt.Fprintln(a.out, results.Move(moves[i], s.dryRun))
		}
	}
	if s.json {
		return results.JSON(a.out, results.DescribeMoves(moves))
	}
	return nil
}
