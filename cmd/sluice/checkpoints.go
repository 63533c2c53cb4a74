package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/pipelines"
	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

func (a *app) checkpoints() *cobra.Command {
	return a.group("checkpoints", "Look at how far a pipeline is, or set where it goes on", a.checkpointsList(), a.checkpointsSet(), a.checkpointsImport())
}

// atTable opens the pipeline for fn.
func atTable(ctx context.Context, config, stage string, fn func(context.Context, *checkpoint.Table) error) error {
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	p, err := loadStageWithCheckpoints(config, stage)
	if err != nil {
		return err
	}
	parts, err := p.Open(ctx)
	if err != nil {
		return err
	}
	defer pipelines.CloseParts(ctx, parts)
	return fn(ctx, &checkpoint.Table{
		Group: p.Group, Source: parts.Source, Leases: parts.Leases, Checkpoints: parts.Checkpoints, DeadLetters: parts.DeadLetters,
	})
}

func (a *app) checkpointsList() *cobra.Command {
	var config, stage string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list --config PIPELINE.yaml",
		Short: "List position, lag, owner and dead letters of each partition",
		Long: `List position, lag, owner and dead letters of each partition. The position is the
sequence number of the event up to which all are done: "origin" before the first,
"-" where no consumer has begun. The lag is how many events the hub holds behind
it, "?" if the hub is out of reach; the lease is what is left of the owner's.`,
		Example: "  sluice checkpoints list --config flights.yaml\n  sluice checkpoints list --config stages.yaml --stage clean --json",
		Args:    cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			return atTable(ctx, config, stage, func(ctx context.Context, t *checkpoint.Table) error {
				rows, hub, err := t.List(ctx)
				if err != nil {
					return err
				}
				if hub != nil {
					a.log.Warn("the hub is out of reach: lag is not known", "error", hub)
				}
				if asJSON {
					return results.JSON(a.out, results.DescribeCheckpoints(rows))
				}
				return results.CheckpointTable(a.out, rows)
			})
		}),
	}
	cmd.Flags().StringVar(&config, "config", "", "the `PIPELINE.yaml` whose checkpoints these are")
	stageFlag(cmd.Flags(), &stage)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for scripts")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

type setFlags struct {
	config     string
	stage      string
	json       bool
	partitions []string
	all        bool
	to         string
	force      bool
	dryRun     bool
}

func (a *app) checkpointsSet() *cobra.Command {
	var s setFlags
	cmd := &cobra.Command{
		Use:   "set --config PIPELINE.yaml {--partition P…|--all} --to START",
		Short: "Set where partitions go on",
		Long: `Set where partitions go on: earliest, latest, a time like 2026-01-31T08:00:00Z,
"24h ago", "sequence N" or "offset O"; the event there is the first to be
delivered, or the next to come where START is past the newest. Events that were
done are then delivered again, or others passed over; the command says how many.

It refuses while a partition has a live owner, before it has changed anything.
With --force the owner is fenced off: what it has not committed yet it never will.

Going back brings back no ids of a stage before that were forgotten since: of a
message that it sent twice, before START and behind it, both may take effect.`,
		Example: `  sluice checkpoints set --config flights.yaml --all --to earliest --dry-run
  sluice checkpoints set --config flights.yaml --partition 3 --to "sequence 1200"`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			if s.all == (len(s.partitions) > 0) {
				return usage.Errorf("say which: --partition P or --all")
			}
			if s.to == "" {
				return usage.Errorf("say where to: --to earliest, latest, a time, \"24h ago\", \"sequence N\" or \"offset O\"")
			}
			start, err := sluice.ParseStart(s.to)
			if err != nil {
				return usage.Errorf("--to: %v", err)
			}
			return atTable(ctx, s.config, s.stage, func(ctx context.Context, t *checkpoint.Table) error {
				return a.setCheckpoints(ctx, t, &s, start)
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&s.config, "config", "", "the `PIPELINE.yaml` whose checkpoints these are")
	stageFlag(f, &s.stage)
	f.BoolVar(&s.json, "json", false, "print JSON, for scripts")
	f.StringSliceVar(&s.partitions, "partition", nil, "the `partition`; repeat for more")
	f.BoolVar(&s.all, "all", false, "all partitions")
	f.StringVar(&s.to, "to", "", "`where` to go on")
	f.BoolVar(&s.force, "force", false, "even if a partition has a live owner")
	f.BoolVar(&s.dryRun, "dry-run", false, "say what would change, and change nothing")
	_ = cmd.MarkFlagRequired("config")
	return cmd
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
				return err
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
