package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/pipelines"
	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/deadletters"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

func (a *app) deadLetters() *cobra.Command {
	return a.group("deadletters", "List events that failed permanently, show why, retry or discard them",
		a.deadLettersList(), a.deadLettersShow(), a.deadLettersRetry(), a.deadLettersDiscard())
}

// selectFlags select dead letters.
type selectFlags struct {
	config string
	stage  string
	store  storeFlags
	json   bool
	all    bool
	where  string
	ids    []int64
}

const selecting = `
Select dead letters by their ids, by conditions with --where, or all of them with --all:

  --where "partition=3, error~timeout, since=24h ago, status=dead, key=LAX, sequence=10..20"`

const notDiscarded = `

Discarded dead letters are not selected, except by id or by status.`

func (l *selectFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	l.addPipeline(f)
	f.BoolVar(&l.all, "all", false, "select all dead letters")
	f.StringVar(&l.where, "where", "", "select the dead letters that meet all `conditions`")
}

// addPipeline adds the flags of a command that does not select.
func (l *selectFlags) addPipeline(f *pflag.FlagSet) {
	f.StringVar(&l.config, "config", "", "the `PIPELINE.yaml` that the dead letters belong to")
	stageFlag(f, &l.stage)
	l.store.add(f)
	f.BoolVar(&l.json, "json", false, "print JSON")
}

// filter makes a filter from flags and ids.
func (l *selectFlags) filter(args []string) (sluice.DeadLetterFilter, error) {
	var f sluice.DeadLetterFilter
	if l.all && l.where != "" || l.all && len(args) > 0 {
		return f, usage.Errorf("--all excludes ids and --where")
	}
	if l.where != "" {
		var err error
		if f, err = deadletters.ParseFilter(l.where, time.Now()); err != nil {
			return f, usage.Errorf("--where: %v", err)
		}
	}
	for _, text := range args {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return f, usage.Errorf("%q is not the id of a dead letter", text)
		}
		if !slices.Contains(l.ids, id) {
			l.ids = append(l.ids, id)
		}
	}
	f.IDs = l.ids
	if len(f.IDs) == 0 && len(f.Status) == 0 {
		f.Status = []sluice.DeadLetterStatus{sluice.StatusDead, sluice.StatusRetry}
	}
	return f, nil
}

// must is filter for commands that change what they select.
func (l *selectFlags) must(args []string) (sluice.DeadLetterFilter, error) {
	if !l.all && l.where == "" && len(args) == 0 {
		return sluice.DeadLetterFilter{}, usage.Errorf("select dead letters: pass ids, --where or --all")
	}
	return l.filter(args)
}

// selected lists what the filter selects. An id that does not exist is an error.
func (l *selectFlags) selected(ctx context.Context, d *deadletters.Admin, f sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
	letters, err := d.Select(ctx, f)
	if err != nil || l.where != "" {
		return letters, err
	}
	for _, id := range l.ids {
		if !slices.ContainsFunc(letters, func(d sluice.DeadLetter) bool { return d.ID == id }) {
			return nil, fmt.Errorf("dead letter %d: %w", id, sluice.ErrNotFound)
		}
	}
	return letters, nil
}

// withAdmin opens the pipeline, or the store of a program without one, and calls fn.
func (l *selectFlags) withAdmin(ctx context.Context, fn func(context.Context, *deadletters.Admin) error) error {
	stored, err := l.store.given(l.config, l.stage)
	if err != nil {
		return err
	}
	if !stored {
		return l.withPipeline(ctx, func(ctx context.Context, _ *pipeline.Pipeline, _ *pipeline.Parts, d *deadletters.Admin) error {
			return fn(ctx, d)
		})
	}
	ctx, stop := term.UntilInterrupted(ctx)
	defer stop()
	stores, err := l.store.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stores.Close(context.WithoutCancel(ctx)) }()
	return fn(ctx, &deadletters.Admin{Group: stores.Group, DeadLetters: stores.DeadLetters})
}

// withPipeline opens the pipeline and calls fn.
func (l *selectFlags) withPipeline(ctx context.Context, fn func(context.Context, *pipeline.Pipeline, *pipeline.Parts, *deadletters.Admin) error) error {
	ctx, stop := term.UntilInterrupted(ctx)
	defer stop()
	p, err := loadStageWithCheckpoints(ctx, l.config, l.stage)
	if err != nil {
		return err
	}
	parts, err := p.OpenExisting(ctx)
	if err != nil {
		return err
	}
	defer pipelines.CloseParts(ctx, parts)
	return fn(ctx, p, parts, &deadletters.Admin{Group: parts.Group, DeadLetters: parts.DeadLetters})
}

func (a *app) deadLettersList() *cobra.Command {
	var l selectFlags
	var limit int
	cmd := &cobra.Command{
		Use:   "list --config PIPELINE.yaml [ID…|--all|--where …]",
		Short: "List dead letters",
		Long:  "List dead letters, each with its position and the beginning of its error. sluice\ndeadletters show prints the whole error and the event.\n" + selecting + "\n\nDiscarded dead letters are listed with --all, or if selected by id or by status." + namingStores,
		RunE: a.runE(func(ctx context.Context, args []string) error {
			f, err := l.filter(args)
			if err != nil {
				return err
			}
			if limit < 0 {
				return usage.Errorf("--limit %d: must not be negative", limit)
			}
			if l.all {
				f.Status = nil
			}
			f.Limit = limit
			return l.withAdmin(ctx, func(ctx context.Context, d *deadletters.Admin) error {
				letters, err := l.selected(ctx, d, f)
				if err != nil {
					return err
				}
				if l.json {
					return results.JSON(a.out, results.DescribeDeadLetters(letters))
				}
				return results.DeadLetterTable(a.out, letters)
			})
		}),
	}
	l.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 0, "largest `number` to list (default all)")
	return cmd
}

func (a *app) deadLettersShow() *cobra.Command {
	var l selectFlags
	cmd := &cobra.Command{
		Use:   "show --config PIPELINE.yaml ID…",
		Short: "Show dead letters with their events",
		Long:  "Show dead letters with their events: the position in the hub, why the event failed, and\nits body if that was stored." + namingStores,
		Args:  needs(1, 0, "name dead letters: pass their ids, which sluice deadletters list shows"),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			if _, err := l.filter(args); err != nil {
				return err
			}
			return l.withAdmin(ctx, func(ctx context.Context, d *deadletters.Admin) error {
				var letters []sluice.DeadLetter
				for _, id := range l.ids {
					letter, err := d.DeadLetters.Get(ctx, d.Group, id)
					if errors.Is(err, sluice.ErrNotFound) {
						return fmt.Errorf("dead letter %d: %w", id, sluice.ErrNotFound)
					}
					if err != nil {
						return err
					}
					letters = append(letters, letter)
				}
				if l.json {
					return results.JSON(a.out, results.DescribeDeadLetters(letters))
				}
				return results.DeadLetterDetails(a.out, letters)
			})
		}),
	}
	l.addPipeline(cmd.Flags())
	return cmd
}

func (a *app) deadLettersDiscard() *cobra.Command {
	var l selectFlags
	cmd := &cobra.Command{
		Use:   "discard --config PIPELINE.yaml {ID…|--all|--where …}",
		Short: "Discard dead letters",
		Long:  "Discard dead letters. They are kept with the status discarded, and can\nstill be retried by id.\n" + selecting + notDiscarded + namingStores,
		RunE: a.runE(func(ctx context.Context, args []string) error {
			f, err := l.must(args)
			if err != nil {
				return err
			}
			return l.withAdmin(ctx, func(ctx context.Context, d *deadletters.Admin) error {
				letters, err := l.selected(ctx, d, f)
				if err != nil {
					return err
				}
				n, err := d.Discard(ctx, letters)
				if err != nil {
					return err
				}
				if l.json {
					return results.JSON(a.out, map[string]int64{"discarded": n})
				}
				fmt.Fprintf(a.out, "%s discarded\n", humanize.Plural(n, "dead letter", "dead letters"))
				return nil
			})
		}),
	}
	l.add(cmd)
	return cmd
}
