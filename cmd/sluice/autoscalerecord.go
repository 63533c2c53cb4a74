package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/backtest"
	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

func (a *app) autoscaleRecord() *cobra.Command {
	var out string
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "record CONFIG.yaml --out FILE.csv",
		Short: "Record metrics into a file, for sluice autoscale backtest",
		Long: `Read the metrics at the file's interval and append them to a CSV file, until
interrupted. If the autoscaler runs with the same state, the number of instances
that it knows is recorded too.`,
		Example: "  sluice autoscale record orders.yaml --out week.csv\n  sluice autoscale record orders.yaml --out hour.csv --for 1h",
		Args:    needs(1, 1, noAutoscaler),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			if out == "" {
				return usage.Errorf("--out is needed: the file to write")
			}
			if within < 0 {
				return usage.Errorf("--for must not be negative")
			}
			return a.recordMetrics(ctx, args[0], out, within)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "`file` to append to (CSV)")
	f.DurationVar(&within, "for", 0, "stop after this `duration`")
	return cmd
}

func (a *app) recordMetrics(ctx context.Context, path, out string, within time.Duration) (err error) {
	ctx, stop := term.UntilInterrupted(ctx)
	defer stop()
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	c, err := config.Load(path)
	if err != nil {
		return notThere(err, autoscalerFiles)
	}
	collector, done, err := c.OpenSources(ctx, &config.Options{Log: a.log})
	if err != nil {
		return unlessInterrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, closeSoon(ctx, done)) }()
	store, closeStore, err := c.OpenStore(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist): // the autoscaler has not run
		store = nil
	case err != nil:
		return unlessInterrupted(ctx, err)
	default:
		defer func() { err = errors.Join(err, closeSoon(ctx, closeStore)) }()
	}

	columns := append(slices.Clone(c.Resource.Metrics), backtest.InstancesColumn)
	file, appends, err := openRecording(out, columns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := backtest.NewWriter(file, columns, appends)
	rows := 0
	tick := time.NewTicker(c.Resource.Limits.Interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		points := collector.Read(ctx)
		if ctx.Err() != nil {
			break
		}
		for _, p := range points {
			if p.State == autoscale.Failed {
				a.log.Warn("reading metric failed", "metric", p.Metric, "error", p.Cause)
			}
		}
		if err := w.Write(now, points, knownInstances(ctx, c, store, now)); err != nil {
			return err
		}
		rows++
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	a.log.Info("recorded", "rows", rows, "file", out)
	return nil
}

// knownInstances returns the number of instances in the autoscaler's state, nil if
// there is none or it is stale.
func knownInstances(ctx context.Context, c *config.Config, store autoscale.Store, now time.Time) map[string]float64 {
	if store == nil {
		return nil
	}
	m, err := store.Load(ctx, c.Resource.Name)
	if err != nil || now.Sub(m.Reported) > c.Resource.Limits.StaleAfter {
		return nil
	}
	return map[string]float64{backtest.InstancesColumn: float64(m.Instances)}
}

// openRecording opens a new file, or one with the same columns to append to.
func openRecording(path string, columns []string) (_ *os.File, appends bool, err error) {
	if old, err := os.Open(path); err == nil {
		r, err := backtest.Read(path, old)
		if err := errors.Join(err, old.Close()); err != nil {
			return nil, false, fmt.Errorf("append to recording: %w", err)
		}
		if !slices.Equal(r.Metrics, columns) {
			return nil, false, fmt.Errorf("append to recording: %s has the columns %v, not %v: choose another file with --out", path, r.Metrics, columns)
		}
		appends = true
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("recording: %w", err)
	}
	return file, appends, nil
}
