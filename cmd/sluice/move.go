package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/move"
	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/pipeline"
)

type moveFlags struct {
	config, stage   string
	origin          move.Origin
	back            bool
	toGroup, toBlob string
	toTable         string
	limit, every    time.Duration
	apply, force    bool
	json            bool
	report          string
}

// maxLook bounds the time between two looks.
const maxLook = time.Hour

func (a *app) move() *cobra.Command {
	var f moveFlags
	cmd := &cobra.Command{
		Use:   "move --config PIPELINE.yaml {--from-group GROUP|--from-blob CONTAINER-URL|--from-table DATABASE-URL|--back {--to-group GROUP|--to-blob CONTAINER-URL|--to-table DATABASE-URL}}",
		Short: "Move from another consumer to a pipeline, or back",
		Long: `Move the positions and the dead letters of another consumer of the same hub or topic to this
pipeline, so that it continues where that consumer stopped, and report what is known of the
seam between the two. Without --apply it changes nothing.

--from-group, --from-blob and --from-table name the other consumer's checkpoints as in
` + "`sluice checkpoints import`" + `, which says what is read there. A sink of Kafka Connect has the
group connect-NAME. Beside a table, the rows of ` + azurecheckpoints.PublishedDeadLetters + ` become dead letters.

Steps:
  1. It looks twice at the other consumer, --every apart: at its owners, and whether its
     checkpoints move. While it runs, the command refuses, or with --within waits until it
     has drained the log and was stopped. A table shows no owners: then whether the consumer
     runs is unknown, and the report says so.
  2. It moves each partition: first its dead letters, then its checkpoint, which records that
     the pipeline began there. Killed at any moment, it can be run again, and moves nothing
     twice. A partition that the pipeline has continued since stays as it is.
  3. It reads back what it has stored, and whether the other consumer stood still meanwhile.

The report has for each partition the last event of the old consumer, the end of the log, the
first event of the new one, its checkpoint if it runs already, the dead letters, the rows in
the pipeline's table on both sides if they record partition and sequence, and whether the seam
is proved or what is unknown. --report keeps it.

--back is the way from this pipeline to a processor of the Azure SDKs, a fixed-partition
processor, a table, or a group of Kafka. The pipeline must have stopped. Its open dead letters
stay.`,
		Example: `  sluice move --config flights.yaml --from-blob https://ACCOUNT.blob.core.windows.net/CONTAINER
  sluice move --config flights.yaml --from-table env:OLD_DATABASE_URL --apply --report move.json
  sluice move --config kafka.yaml --from-group connect-flights --within 10m --apply
  sluice move --config flights.yaml --back --to-blob https://ACCOUNT.blob.core.windows.net/CONTAINER --apply`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if f.back {
				return a.moveBack(ctx, &f)
			}
			return a.moveHere(ctx, &f)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "the `PIPELINE.yaml` of this pipeline")
	stageFlag(flags, &f.stage)
	fromFlags(flags, &f.origin)
	flags.StringVar(&f.origin.DeadLetters, "dead-letters-table", azurecheckpoints.PublishedDeadLetters, "with --from-table: `name` of the table of dead letters, or none")
	flags.BoolVar(&f.back, "back", false, "move from the pipeline to the other consumer")
	flags.StringVar(&f.toGroup, "to-group", "", "with --back: `name` of the consumer group of Kafka")
	flags.StringVar(&f.toBlob, "to-blob", "", "with --back: the `URL` of the container")
	flags.StringVar(&f.toTable, "to-table", "", "with --back: the `URL` of the database of --table, or env:NAME")
	flags.DurationVar(&f.limit, "within", 0, "wait so `long` until the other consumer has stopped (default not at all)")
	flags.DurationVar(&f.every, "every", 5*time.Second, "`time` between two looks at the other consumer")
	flags.BoolVar(&f.apply, "apply", false, "change what is reported")
	flags.BoolVar(&f.force, "force", false, "also if a consumer still reads, a checkpoint is replaced by an earlier one, or events are gone")
	flags.BoolVar(&f.json, "json", false, "print the report as JSON")
	flags.StringVar(&f.report, "report", "", "also write the report to a `file`, as JSON")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

func (f *moveFlags) check() error {
	from := f.origin.Group + f.origin.Blob + f.origin.Database
	to := 0
	for _, flag := range []string{f.toGroup, f.toBlob, f.toTable} {
		if flag != "" {
			to++
		}
	}
	switch {
	case f.back && (from != "" || f.limit != 0):
		return usage.Errorf("--back goes with --to-group, --to-blob or --to-table, not with --from-group, --from-blob, --from-table or --within")
	case f.back && to != 1:
		return usage.Errorf("name where the other consumer reads its checkpoints: --to-group GROUP, --to-blob CONTAINER-URL or --to-table DATABASE-URL")
	case f.back && f.toTable == "" && (f.origin.Topic != "" || f.origin.Table != azurecheckpoints.PublishedTable):
		return usage.Errorf("--table and --topic go with --to-table")
	case !f.back && to > 0:
		return usage.Errorf("--to-group, --to-blob and --to-table go with --back")
	case f.every < 100*time.Millisecond || f.every > maxLook:
		return usage.Errorf("--every %v: must be 100ms to %v", f.every, maxLook)
	case f.limit < 0:
		return usage.Errorf("--within %v: must not be negative", f.limit)
	}
	return nil
}

// moveHere moves from another consumer to the pipeline.
func (a *app) moveHere(ctx context.Context, f *moveFlags) error {
	f.origin.Active = true
	source, err := f.origin.Open()
	if err != nil {
		return err
	}
	defer source.Close()
	open := (*pipeline.Pipeline).Open
	if !f.apply {
		open = openDry
	}
	return withPipeline(ctx, open, f.config, f.stage, func(ctx context.Context, p *pipeline.Pipeline, t *checkpoint.Table) error {
		t.DryRun = !f.apply
		effects := move.NewEffects(p)
		defer effects.Close()
		parker, _ := t.DeadLetters.(move.Parker)
		m := &move.Mover{Table: t, Source: source, Parker: parker, Effects: effects, Every: f.every, Limit: f.limit, Apply: f.apply, Force: f.force, Log: a.log.Info}
		report, err := m.Run(ctx)
		return a.keep(f, report, err)
	})
}

// moveBack moves from the pipeline to another consumer.
func (a *app) moveBack(ctx context.Context, f *moveFlags) error {
	target, err := move.OpenTarget(f.toGroup, f.toBlob, f.toTable, f.origin)
	if err != nil {
		return err
	}
	defer target.Close()
	return withPipeline(ctx, (*pipeline.Pipeline).OpenExisting, f.config, f.stage, func(ctx context.Context, _ *pipeline.Pipeline, t *checkpoint.Table) error {
		m := &move.Backer{Table: t, Target: target, Apply: f.apply, Force: f.force}
		report, err := m.Run(ctx)
		return a.keep(f, report, err)
	})
}

// keep prints a report and writes it to the file. The error of what it reports wins.
func (a *app) keep(f *moveFlags, r *move.Report, failed error) error {
	if r == nil {
		return failed
	}
	var err error
	if f.report != "" {
		err = create(f.report, func(w io.Writer) error { return results.JSON(w, r) })
	}
	if err == nil && f.json {
		err = results.JSON(a.out, r)
	} else if err == nil {
		_, err = r.WriteTo(a.out)
	}
	if failed != nil {
		return failed
	}
	return err
}
