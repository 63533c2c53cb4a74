package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/backtest"
	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

type backtestFlags struct {
	rules   []string
	metrics string
	plot    string
	json    bool
	model   backtest.Model
}

func (a *app) autoscaleBacktest() *cobra.Command {
	var flags backtestFlags
	cmd := &cobra.Command{
		Use:   "backtest",
		Short: "Run a rule on recorded metrics",
		Long: `Run a rule on recorded metrics and show what it would have decided. With --drain,
a model computes the backlog: what arrives, less what the instances process. What
arrives is the column --load, or is computed from the recorded backlog and the
recorded instances (the column "instances").

The recording is a CSV file whose first column is the time; sluice autoscale
record writes one. Give --rules several times to compare rules.`,
		Example: "  sluice autoscale backtest --rules orders.yaml --metrics week.csv --plot week.svg\n" +
			"  sluice autoscale backtest --rules a.yaml --rules b.yaml --metrics load.csv --load arrivals --drain 50",
		Args: cobra.NoArgs,
		RunE: a.runE(func(_ context.Context, _ []string) error {
			switch {
			case len(flags.rules) == 0 || flags.metrics == "":
				return usage.Errorf("--rules and --metrics are needed: an autoscaler's file, and the CSV file that sluice autoscale record has written")
			case len(flags.rules) > backtest.MaxPlotted:
				return usage.Errorf("%d rules: at most %d can be compared", len(flags.rules), backtest.MaxPlotted)
			case !drawable(flags.plot):
				return usage.Errorf(notDrawable, flags.plot)
			case flags.model.DrainRate < 0 || flags.model.StartupTime < 0 || flags.model.InitialInstances < 0:
				return usage.Errorf("--drain, --startup and --start must not be negative")
			}
			return a.backtest(flags)
		}),
	}
	f := cmd.Flags()
	f.StringArrayVar(&flags.rules, "rules", nil, "`file` of an autoscaler, or one with only a rule")
	f.StringVar(&flags.metrics, "metrics", "", "`file` with the recorded metrics (CSV)")
	f.StringVar(&flags.plot, "plot", "", "draw a plot into a `file`, .svg")
	f.BoolVar(&flags.json, "json", false, "write one line of JSON for each rule, with its decisions")
	f.Float64Var(&flags.model.DrainRate, "drain", 0, "`number` of messages that an instance processes per second; 0: the metrics stay as recorded")
	f.StringVar(&flags.model.Load, "load", "", "`column` with the number of messages that arrived since the row before")
	f.StringVar(&flags.model.Backlog, "backlog", "", "`metric` that the model computes; default: the rule's, if it has only one")
	f.DurationVar(&flags.model.StartupTime, "startup", 0, "`time` until a new instance starts to process")
	f.IntVar(&flags.model.InitialInstances, "start", 0, "`instances` at the start; default: as recorded, else the minimum")
	return cmd
}

func (a *app) backtest(flags backtestFlags) error {
	file, err := os.Open(flags.metrics)
	var failed *os.PathError
	if errors.As(err, &failed) {
		return notThere(fmt.Errorf("%s: cannot be read: %w", flags.metrics, failed.Err), "check the path; sluice autoscale record writes such a file")
	} else if err != nil {
		return err
	}
	defer file.Close()
	recording, err := backtest.Read(flags.metrics, file)
	if err != nil {
		return err
	}
	var results []*backtest.Result
	for _, path := range flags.rules {
		c, err := config.LoadRule(path, ruleMetrics(recording, flags.model))
		if err != nil {
			return notThere(err, autoscalerFiles)
		}
		result, err := backtest.Run(&c.Resource, recording, &flags.model)
		if err != nil {
			return fmt.Errorf("%s on %s: %w", path, flags.metrics, err)
		}
		result.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		results = append(results, result)
	}
	if flags.plot != "" {
		if err := plotInto(flags.plot, results); err != nil {
			return err
		}
	}
	if flags.json {
		return writeResultsJSON(a.out, results)
	}
	return writeResults(a.out, results)
}

// ruleMetrics returns the metrics that a rule may use if its file names none: the
// columns, and the backlog that the model computes.
func ruleMetrics(r *backtest.Recording, m backtest.Model) []string {
	metrics := slices.DeleteFunc(slices.Clone(r.Metrics), func(column string) bool {
		return column == backtest.InstancesColumn
	})
	if m.Backlog != "" && !slices.Contains(metrics, m.Backlog) {
		metrics = append(metrics, m.Backlog)
	}
	return metrics
}

const notDrawable = "--plot %s: plots are SVG: name a file that ends in .svg"

// drawable says whether a plot can be drawn into a file, or is not wanted.
func drawable(path string) bool {
	return path == "" || strings.EqualFold(filepath.Ext(path), ".svg")
}

func plotInto(path string, results []*backtest.Result) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	if err := errors.Join(backtest.Plot(file, results...), file.Close()); err != nil {
		return fmt.Errorf("plot %s: %w", path, err)
	}
	return nil
}

func writeResultsJSON(w io.Writer, results []*backtest.Result) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	for _, r := range results {
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("write results: %w", err)
		}
	}
	return nil
}

func writeResults(w io.Writer, results []*backtest.Result) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "RULE\tMAX BACKLOG\tMEAN BACKLOG\tFINAL BACKLOG\tINSTANCE-HOURS\tMAX INSTANCES\tACTIONS\tUP\tDOWN\t")
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.1f\t%d\t%d\t%d\t%d\t\n", r.Name, autoscale.FormatNumber(r.MaxBacklog), autoscale.FormatNumber(r.MeanBacklog), autoscale.FormatNumber(r.FinalBacklog),
			r.InstanceHours, r.MaxInstances, r.Actions, r.ScaleUps, r.ScaleDowns)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if len(results) > 1 {
		return nil
	}
	fmt.Fprintln(w)
	return writeDecisions(w, results[0].Decisions, false)
}
