package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
	"github.com/sluice-go/sluice/cmd/sluice/internal/targetaudit"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

type auditFlags struct {
	config, stage string
	consumerGroup string
	bin           time.Duration
	ru            int
	ruGiven       bool
	targetGroup   string
	subscription  string
	json          bool
	html          string
}

func (a *app) auditHub() *cobra.Command {
	var flags auditFlags
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "hub --config PIPELINE.yaml",
		Short: "Compare the events of a hub with what a pipeline has made of them",
		Long: `Read a hub from its first event to its last, and look for the effect or the dead letter of
each event. Each event from where the checkpoint says that it began up to the checkpoint
must have exactly one of them. Events before the beginning are not checked. The pipeline
can run at the same time.

A table needs columns for partition and sequence. Documents of Cosmos DB are looked up by
the pipeline's id and partition key, messages in a hub, a topic or a queue by the ids of
their events. For a statement or HTTP target the pipeline file can name a query. The audit
reads the hub with its own consumer group, which must exist. docs/audit.md says what can be
known of each target.

Exit codes: 0 if no event is lost, duplicated, expired or stray, 1 if some are, 3 if none
is known to be but the audit cannot decide for all, or a checkpoint does not say where it
began, 2 if flags are wrong.`,
		Example: "  sluice audit hub --config flights.yaml\n  sluice audit hub --config flights.yaml --consumer-group audit --html audit.html",
		Args:    cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			switch {
			case flags.bin < time.Minute:
				return usage.Errorf("--bin %v: must be at least 1m", flags.bin)
			case flags.ru < 1 || flags.ru > maxAuditRU:
				return usage.Errorf("--ru %d: must be 1 to %d", flags.ru, maxAuditRU)
			}
			flags.ruGiven = cmd.Flags().Changed("ru")
			ctx, stop := term.UntilInterrupted(ctx)
			defer stop()
			return undecided(ctx, a.runAuditHub(ctx, &flags))
		}),
	}
	f := cmd.Flags()
	f.StringVar(&flags.config, "config", "", "the `PIPELINE.yaml` to audit")
	stageFlag(f, &flags.stage)
	f.StringVar(&flags.consumerGroup, "consumer-group", flights.AuditGroup, "`name` of the consumer group that the audit reads with")
	f.DurationVar(&flags.bin, "bin", time.Hour, "`length` of a time bin in the report")
	f.StringVar(&flags.targetGroup, "target-consumer-group", "", "`name` of the consumer group that reads the hub which the pipeline sends to (default: that of --consumer-group)")
	f.StringVar(&flags.subscription, "subscription", "", "`name` of the subscription in which to look for messages, if the target is a topic of Service Bus")
	f.IntVar(&flags.ru, "ru", 400, "`number` of request units a second for reading documents of Cosmos DB")
	f.BoolVar(&flags.json, "json", false, "print the report as JSON")
	f.StringVar(&flags.html, "html", "", "write the report to an HTML `file`")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

// maxAuditRU is the most request units a second.
const maxAuditRU = 10_000_000

func (a *app) runAuditHub(ctx context.Context, flags *auditFlags) error {
	p, err := loadStageWithCheckpoints(ctx, flags.config, flags.stage)
	if err != nil {
		return err
	}
	if p.System == pipeline.EventHubs && strings.EqualFold(flags.consumerGroup, p.Group.Name) {
		return usage.Errorf("--consumer-group %s is the pipeline's own consumer group, and the hub allows it no second reader: name another group", flags.consumerGroup)
	}
	switch kind := p.Kind(); {
	case flags.ruGiven && kind != "cosmos":
		return usage.Errorf("--ru %d is for a target in Cosmos DB, and that of %s is %s: remove it", flags.ru, p.Name, kind)
	case flags.targetGroup != "" && kind != "eventhub":
		return usage.Errorf("--target-consumer-group %s is for a hub as the target, and that of %s is %s: remove it", flags.targetGroup, p.Name, kind)
	case flags.subscription != "" && kind != "topic":
		return usage.Errorf("--subscription %s is for a topic of Service Bus as the target, and that of %s is %s: remove it", flags.subscription, p.Name, kind)
	}
	var read atomic.Int64
	var watching sync.WaitGroup
	watched, unwatch := context.WithCancel(ctx)
	watching.Go(func() { a.watchAudit(watched, &read) })
	report, err := targetaudit.Run(ctx, p, targetaudit.Config{
		ConsumerGroup: flags.consumerGroup, TargetGroup: flags.targetGroup, Subscription: flags.subscription, RU: flags.ru,
		Audit: audit.Config{Bin: flags.bin, Progress: read.Store},
	})
	unwatch()
	watching.Wait()
	if err != nil {
		return err
	}
	if flags.html != "" {
		if err := create(flags.html, func(w io.Writer) error { return report.WriteHTML(w) }); err != nil {
			return err
		}
	}
	if flags.json {
		err = report.WriteJSON(a.out)
	} else {
		err = results.Audit(a.out, report)
	}
	switch {
	case err != nil:
		return err
	case report.Undecided():
		return &verdictError{exitUndecided, cannotDecide(report, flags)}
	case !report.Exact():
		return &verdictError{exitLoss, "not exact: events are lost or duplicated"}
	}
	return nil
}

// cannotDecide says why an audit is undecided and what to do: of the first partition in doubt, for
// the others are mostly like it.
func cannotDecide(r *audit.Report, flags *auditFlags) string {
	i := slices.IndexFunc(r.Partitions, func(p audit.Partition) bool { return p.Doubt != "" })
	if i < 0 {
		return "cannot decide for all events whether they were lost"
	}
	p := &r.Partitions[i]
	file := "--config " + flags.config
	if flags.stage != "" {
		file += " --stage " + flags.stage
	}
	text := fmt.Sprintf("cannot decide: partition %s %s", p.ID, p.Doubt)
	switch p.Doubt {
	case audit.NoCheckpoint:
		text += fmt.Sprintf(": run the pipeline, which records the start or halts if the checkpoint was removed; see sluice checkpoints list %s", file)
	case audit.NoBeginning, audit.EarlierEffects, audit.BeganLater:
		text += fmt.Sprintf(": to have later events checked, stop the pipeline and record where they begin: sluice checkpoints set %s --partition %s --to \"sequence %d\"", file, p.ID, max(p.Checkpoint+1, 0))
	}
	return text
}

func (a *app) watchAudit(ctx context.Context, read *atomic.Int64) {
	began := time.Now()
	var speed term.Speed
	speed.Add(began, 0)
	a.screen.Follow(ctx, func() string {
		now, n := time.Now(), read.Load()
		return fmt.Sprintf("%s read  %s/s  %s", humanize.Plural(n, "event", "events"), humanize.Count(speed.Add(now, n)), now.Sub(began).Truncate(time.Second))
	}, func() {
		n := read.Load()
		a.log.Info("progress", "read", n, "per_second", speed.Add(time.Now(), n))
	})
}
