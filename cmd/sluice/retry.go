package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/progress"
	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/deadletters"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

type retryFlags struct {
	selectFlags
	time   string
	delay  time.Duration
	noWait bool
	limit  time.Duration
}

func (a *app) deadLettersRetry() *cobra.Command {
	var r retryFlags
	cmd := &cobra.Command{
		Use:   "retry --config PIPELINE.yaml {ID…|--all|--where …} [--at TIME|--after DURATION]",
		Short: "Retry dead letters",
		Long: `Retry (redrive) dead letters and wait for the outcome. A dead letter that is applied is
deleted. One that fails again stays, and the command fails. The owner of a partition runs
its retries; this command runs those of partitions without an owner.

With --at, --after or --no-wait, dead letters are only marked: the owner of the partition
retries them. The dead letters of a program that uses the library (--database, --blob) are
always only marked: this command cannot apply them, the program does.
` + selecting + notDiscarded + namingStores,
		RunE: a.runE(func(ctx context.Context, args []string) error {
			f, err := r.must(args)
			if err != nil {
				return err
			}
			at, err := r.moment(time.Now())
			if err != nil {
				return err
			}
			stored, err := r.store.given(r.config, r.stage)
			if err != nil {
				return err
			}
			if stored || r.noWait || !at.IsZero() {
				return r.withAdmin(ctx, func(ctx context.Context, d *deadletters.Admin) error {
					letters, err := r.selected(ctx, d, f)
					if err != nil {
						return err
					}
					marked, err := d.Mark(ctx, letters, at)
					if err != nil {
						return err
					}
					return results.Marked(a.out, r.json, marked, at)
				})
			}
			return r.withPipeline(ctx, func(ctx context.Context, p *pipeline.Pipeline, parts *pipeline.Parts, d *deadletters.Admin) error {
				letters, err := r.selected(ctx, d, f)
				if err != nil {
					return err
				}
				if len(letters) == 0 {
					return results.Marked(a.out, r.json, 0, at)
				}
				// Before anything is marked: if the target cannot be opened, no dead letter
				// changes.
				if d.Redrive, err = a.redriver(ctx, p, parts); err != nil {
					return err
				}
				if _, err := d.Mark(ctx, letters, at); err != nil {
					return err
				}
				return a.follow(ctx, &r, d, letters)
			})
		}),
	}
	r.add(cmd)
	f := cmd.Flags()
	f.StringVar(&r.time, "at", "", "retry at this `time`, such as 2026-01-31T08:00:00Z")
	f.DurationVar(&r.delay, "after", 0, "retry after this `duration`, such as 90m")
	f.BoolVar(&r.noWait, "no-wait", false, "only mark: the owners of the partitions retry")
	f.DurationVar(&r.limit, "within", 10*time.Minute, "fail if some still wait after this `duration`; they stay marked")
	return cmd
}

// moment is the time of the retry; the zero time is now.
func (r *retryFlags) moment(now time.Time) (time.Time, error) {
	switch {
	case r.limit <= 0:
		return time.Time{}, usage.Errorf("--within %v: must be positive", r.limit)
	case r.time != "" && r.delay != 0:
		return time.Time{}, usage.Errorf("--at and --after exclude each other")
	case r.delay < 0:
		return time.Time{}, usage.Errorf("--after %v: must be positive", r.delay)
	case r.delay > 0:
		return now.Add(r.delay), nil
	case r.time == "":
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, r.time)
	if err != nil {
		return t, usage.Errorf("--at %s: write a time such as 2026-01-31T08:00:00Z", r.time)
	}
	return t, nil
}

// redriver makes the consumer that runs the retries of partitions without an owner. If the hub
// cannot be reached, it retries from stored bodies.
func (a *app) redriver(ctx context.Context, p *pipeline.Pipeline, parts *pipeline.Parts) (func(context.Context) (int, int, error), error) {
	var once sync.Once
	// The command reports the retries themselves.
	m := progress.New(a.log, driver.KindAcquired, driver.KindReleased, driver.KindRedriven, driver.KindRedriveFailed)
	c, err := parts.Consumer(ctx, &pipeline.Options{
		Observer: m,
		Source: &deadletters.OfflineSource{Source: parts.Source, Group: parts.Group, Checkpoints: parts.Checkpoints, Unreachable: func(err error) {
			once.Do(func() {
				a.log.Info(p.System.Noun()+" unreachable, retrying from stored bodies", "error", err)
			})
		}},
	})
	if err != nil {
		return nil, err
	}
	return c.Redrive, nil
}

// pace returns how many retries end a second, at least one, and how long the others take at this
// pace; 0 while none has ended.
func pace(so *deadletters.Outcome, took time.Duration) (perSecond int, left time.Duration) {
	done := so.Applied + len(so.Failed)
	if done == 0 || took <= 0 {
		return 0, 0
	}
	left = time.Duration(float64(took) / float64(done) * float64(len(so.Waiting)))
	return max(1, int(float64(done)/took.Seconds())), left.Round(time.Second)
}

// follow waits for the retries and reports them.
func (a *app) follow(ctx context.Context, r *retryFlags, d *deadletters.Admin, letters []sluice.DeadLetter) error {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	var mu sync.Mutex
	var latest deadletters.Outcome
	state := func() deadletters.Outcome {
		mu.Lock()
		defer mu.Unlock()
		return latest
	}
	watched, unwatch := context.WithCancel(ctx)
	began := time.Now()
	var watching sync.WaitGroup
	watching.Go(func() {
		a.screen.Follow(watched, func() string {
			so := state()
			line := fmt.Sprintf("%s applied  %s failed again  %s waiting",
				humanize.Count(so.Applied), humanize.Count(len(so.Failed)), humanize.Count(len(so.Waiting)))
			if perSecond, left := pace(&so, time.Since(began)); perSecond > 0 {
				line += fmt.Sprintf("  %s a second  %s left", humanize.Count(perSecond), humanize.Span(left))
			}
			return line
		}, func() {
			so := state()
			fields := []any{"applied", so.Applied, "failed", len(so.Failed), "waiting", len(so.Waiting)}
			if perSecond, left := pace(&so, time.Since(began)); perSecond > 0 {
				fields = append(fields, "per_second", perSecond, "left", left)
			}
			a.log.Info("progress", fields...)
		})
	})
	so, err := d.Follow(ctx, letters, func(so deadletters.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		latest = so
	})
	unwatch()
	watching.Wait()
	if printErr := results.RetryOutcome(a.out, r.json, so); printErr != nil {
		return printErr
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		return fmt.Errorf("%s after %v: see which processes own the partitions with `sluice checkpoints list`",
			humanize.Plural(len(so.Waiting), "dead letter still waits", "dead letters still wait"), r.limit)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return errors.New("interrupted: dead letters that still wait stay marked")
	case err != nil:
		return err
	case len(so.Failed) > 0:
		return fmt.Errorf("%s failed again", humanize.Plural(len(so.Failed), "dead letter", "dead letters"))
	}
	return nil
}
