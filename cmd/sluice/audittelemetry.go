package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/loganalytics"
	"github.com/sluice-go/sluice/cmd/sluice/internal/telemetry"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

type telemetryFlags struct {
	filter    telemetry.Filter
	bin       time.Duration
	zone      string
	holidays  []string
	reference string
	tolerance float64
	workspace string
	query     string
	period    time.Duration
	json      bool
	html, svg string
	png       string // refused
	workbook  string
}

func (a *app) auditTelemetry() *cobra.Command {
	var flags telemetryFlags
	cmd := &cobra.Command{
		Use:   "telemetry [FILE.csv | FILE.jsonl | --workspace ID]",
		Short: "Distinguish sampling from loss in telemetry that counts events",
		Long: `Compare, day by day, the stored items of a custom event in Application Insights with the
number of events that they represent, and decide whether a drop is sampling, loss, or
both. The input is an export (CSV with a header, JSON lines, an answer of Log Analytics
or the classic continuous export; "-" is standard input), or a Log Analytics workspace,
which is queried with Azure's default credential.

A change of the recorded sampling rate is reported as it is. A loss is reported only if the
whole interval of the change of the weighted sums is below zero: it has sampling noise, the
days' own variation and the rounding of itemCount in it.

Exit codes: 0 if a loss of --tolerance is excluded, 1 if there is a loss, 3 if the audit
cannot decide, for example because the days differ too much, 2 if flags are wrong.`,
		Example: `  sluice audit telemetry export.csv --event imported --measurement flights --html report.html
  sluice audit telemetry --workspace 6f2a… --event imported --since 720h
  sluice audit telemetry export.jsonl --reference hub.csv`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.runE(func(ctx context.Context, files []string) error {
			switch {
			case flags.png != "":
				return usage.Errorf("--png %s: charts are SVG: name the directory with --svg", flags.png)
			case len(files) == 0 && flags.workspace == "" && flags.workbook == "":
				return usage.Errorf("the input is missing: pass a FILE, - for standard input, --workspace ID, or --workbook FILE")
			case len(files) == 0 && flags.workspace == "" && (flags.json || flags.html+flags.svg+flags.reference != ""):
				return usage.Errorf("--json, --html, --svg and --reference are for a report: pass a FILE, - for standard input, or --workspace ID too")
			case len(files) > 0 && flags.workspace != "":
				return usage.Errorf("a FILE and --workspace exclude each other")
			case flags.query != "" && flags.workspace == "":
				return usage.Errorf("--query needs --workspace")
			case flags.tolerance <= 0 || flags.tolerance >= 1:
				return usage.Errorf("--tolerance %v: must be between 0 and 1", flags.tolerance)
			}
			// Reading a file or a terminal ignores ctx, so a signal must end the process.
			if flags.workspace != "" {
				var stop context.CancelFunc
				ctx, stop = term.UntilInterrupted(ctx)
				defer stop()
			}
			return undecided(ctx, a.runTelemetry(ctx, files, &flags))
		}),
	}
	f := cmd.Flags()
	f.StringVar(&flags.filter.Event, "event", "", "`name` of the custom event (default all items)")
	f.StringVar(&flags.filter.Measurement, "measurement", "", "`name` of its measurement (default: items are counted)")
	f.DurationVar(&flags.bin, "bin", 24*time.Hour, "`length` of a bin in the charts; a day must be a multiple of it")
	f.StringVar(&flags.zone, "zone", "UTC", "time `zone` in which days begin, such as Europe/Berlin")
	f.StringSliceVar(&flags.holidays, "holiday", nil, "`day` that the verdict ignores, such as 2026-01-31; can be repeated")
	f.StringVar(&flags.reference, "reference", "", "CSV `file` with day,count: the real counts, without sampling")
	f.Float64Var(&flags.tolerance, "tolerance", 0.05, "smallest `share` of events whose loss matters")
	f.StringVar(&flags.workspace, "workspace", "", "`id` of a Log Analytics workspace")
	f.StringVar(&flags.query, "query", "", "`file` with your own query for the workspace")
	f.DurationVar(&flags.period, "since", 30*24*time.Hour, "query the workspace from this `duration` ago")
	f.BoolVar(&flags.json, "json", false, "print the report as JSON")
	f.StringVar(&flags.html, "html", "", "write the report with its charts to an HTML `file`")
	f.StringVar(&flags.workbook, "workbook", "", "write an Azure Monitor workbook with the same sums to a `file`; it needs no telemetry")
	f.StringVar(&flags.svg, "svg", "", "write the three charts to a `directory`, as SVG")
	f.StringVar(&flags.png, "png", "", "")
	if err := f.MarkHidden("png"); err != nil {
		panic(err)
	}
	return cmd
}

func (a *app) runTelemetry(ctx context.Context, files []string, flags *telemetryFlags) error {
	if flags.workbook != "" {
		err := create(flags.workbook, func(w io.Writer) error { return loganalytics.WriteWorkbook(w, flags.filter) })
		if err != nil || len(files) == 0 && flags.workspace == "" {
			return err
		}
	}
	zone, err := time.LoadLocation(flags.zone)
	if err != nil {
		return usage.Errorf("--zone %s: not a time zone: write one such as Europe/Berlin", flags.zone)
	}
	cfg, err := flags.config(zone)
	if err != nil {
		return err
	}
	series, err := telemetry.NewSeries(flags.bin, zone)
	if err != nil {
		return usage.Errorf("--bin: %v", err)
	}
	subject := "workspace " + flags.workspace
	if flags.workspace != "" {
		err = flags.ask(ctx, series)
	} else {
		subject = files[0]
		err = readFile(files[0], func(r io.Reader) error { return telemetry.Read(r, flags.filter, series.Add) })
	}
	if err != nil {
		return err
	}
	report, err := series.Evaluate(cfg)
	if err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	if err := flags.write(report, subject); err != nil {
		return err
	}
	if flags.json {
		if err := report.WriteJSON(a.out); err != nil {
			return err
		}
	} else {
		if err := report.WriteText(a.out); err != nil {
			return err
		}
	}
	switch report.Verdict {
	case telemetry.Loss, telemetry.Both:
		return &verdictError{exitLoss, "events are missing"}
	case telemetry.Undecided:
		return &verdictError{exitUndecided, "cannot decide whether events are missing"}
	}
	return nil
}

func (f *telemetryFlags) config(zone *time.Location) (*telemetry.Config, error) {
	cfg := &telemetry.Config{Tolerance: f.tolerance}
	for _, text := range f.holidays {
		day, err := time.ParseInLocation(time.DateOnly, text, zone)
		if err != nil {
			return nil, usage.Errorf("--holiday %s: write a day such as 2026-01-31", text)
		}
		cfg.Holidays = append(cfg.Holidays, day)
	}
	if f.reference == "" {
		return cfg, nil
	}
	err := readFile(f.reference, func(r io.Reader) (err error) {
		cfg.Reference, err = telemetry.ReadReference(r, zone)
		return err
	})
	return cfg, err
}

// readFile reads a file, or standard input for "-". Errors name it.
func readFile(name string, read func(io.Reader) error) error {
	if name == "-" {
		if err := read(os.Stdin); err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("%s: cannot be read: %w", name, errors.Unwrap(err))
	}
	defer f.Close()
	err = read(f)
	var failed *os.PathError
	if errors.As(err, &failed) {
		return fmt.Errorf("%s: cannot be read: %w", name, failed.Err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// maxQuery is the size of a query of one's own at most, in bytes.
const maxQuery = 1 << 20

// ask queries the workspace.
func (f *telemetryFlags) ask(ctx context.Context, series *telemetry.Series) error {
	query := loganalytics.Query(f.filter, f.bin)
	if f.query != "" {
		var text []byte
		err := readFile(f.query, func(r io.Reader) (err error) {
			text, err = io.ReadAll(io.LimitReader(r, maxQuery+1))
			if err == nil && len(text) > maxQuery {
				err = fmt.Errorf("larger than %d bytes: not a query", maxQuery)
			}
			return err
		})
		if err != nil {
			return err
		}
		query = string(text)
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return fmt.Errorf("azure's default credential: %w", err)
	}
	w, err := loganalytics.New(f.workspace, credential, nil)
	if err != nil {
		return err
	}
	now := time.Now()
	return w.Read(ctx, query, now.Add(-f.period), now, f.filter, series.Add)
}

// write writes the report to the files that the flags name.
func (f *telemetryFlags) write(r *telemetry.Report, subject string) error {
	if f.html != "" {
		if err := create(f.html, func(w io.Writer) error { return r.WriteHTML(w, "Telemetry audit: "+subject) }); err != nil {
			return err
		}
	}
	if f.svg == "" {
		return nil
	}
	if err := os.MkdirAll(f.svg, 0o700); err != nil {
		return err
	}
	for _, chart := range telemetry.Charts {
		name := filepath.Join(f.svg, string(chart)+".svg")
		if err := create(name, func(w io.Writer) error { return r.Draw(w, chart) }); err != nil {
			return err
		}
	}
	return nil
}

// create writes a file.
func create(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
