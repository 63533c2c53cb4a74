package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/dashboard"
	"github.com/sluice-go/sluice/cmd/sluice/internal/demo"
	"github.com/sluice-go/sluice/cmd/sluice/internal/progress"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

// started is when the process started, as far as a program knows.
var started = time.Now()

type demoFlags struct {
	events int64
	dir    string
	once   bool
	web    webFlags
}

func (d *demoFlags) check() error {
	if d.events < 1 || d.events > 1e9 {
		return usage.Errorf("--events %d: must be 1 to 1,000,000,000", d.events)
	}
	_, err := d.web.config()
	return err
}

func (a *app) demo() *cobra.Command {
	var flags demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Demo: flight records through an embedded hub into SQLite",
		Long: `Send real flight records to an embedded hub and write each one into a SQLite table,
exactly once. A few records lack the delay, which the table requires: they become dead
letters. Stop the demo at any moment, in any way, and start it again: it continues
where it stopped.`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			return a.runDemo(ctx, flags, func(ctx context.Context) (*demo.Demo, error) { return demo.Open(ctx, flags.dir, a.log) })
		}),
	}
	f := cmd.Flags()
	f.Int64Var(&flags.events, "events", 20_000, "`number` of records to send; after 20,000 the records repeat")
	f.StringVar(&flags.dir, "data", "sluice-data", "`directory` for the hub's events and the database")
	f.BoolVar(&flags.once, "once", false, "exit when all events are processed; fail unless each has exactly one effect")
	flags.web.add(f)
	flags.web.addScaling(f)
	cmd.AddCommand(a.demoKafka(), a.demoCosmos(), a.demoStages(), a.demoAutoscale())
	return cmd
}

func (a *app) runDemo(ctx context.Context, flags demoFlags, open func(context.Context) (*demo.Demo, error)) error {
	interrupted, stop := untilInterrupted(ctx)
	defer stop()
	d, err := open(interrupted)
	if err != nil {
		return unlessCancelled(interrupted, err)
	}
	defer closeDemo(ctx, d)
	fmt.Fprintf(a.out, "%s\ndatabase  %s\n", d.Where(), filepath.Join(flags.dir, "flights.db"))
	b, err := a.beginDemo(interrupted, &flags, dashboard.Pipeline{Name: "flights", Pipeline: d.Pipeline(), Parts: d.Parts()})
	if err != nil {
		return err
	}
	defer b.Close()

	m := progress.New(a.log, sluice.KindAcquired, sluice.KindOpened, sluice.KindReleased, sluice.KindParked)
	var first firstCommit
	err = a.showProgress(ctx, func() error {
		return d.Run(interrupted, flags.events, flags.once, b.Options("flights", &pipeline.Options{Observer: sluice.Observers(m, &first)}), m.Stopped)
	}, progress.Stage{Monitor: m})
	if err != nil {
		return unlessCancelled(interrupted, err)
	}
	took := time.Since(started)
	audit, err := d.Audit(ctx)
	if err != nil {
		return err
	}
	if err := audit.Print(a.out, first.after(), took, retryAdvice(flags.dir)); err != nil {
		return err
	}
	switch {
	case audit.Faults > 0:
		return fmt.Errorf("not exactly once: %s", audit.First)
	case flags.once && !audit.Exact():
		return fmt.Errorf("%s not processed", humanize.Plural(audit.Waiting, "event is", "events are"))
	}
	return nil
}

// beginDemo opens the dashboard if the flags ask for one, and prints how the demo ends.
func (a *app) beginDemo(ctx context.Context, flags *demoFlags, list ...dashboard.Pipeline) (*dashboard.Dashboard, error) {
	b, err := a.openDashboard(ctx, &flags.web, flags.dir, list...)
	if err != nil {
		return nil, err
	}
	if b != nil {
		fmt.Fprintf(a.out, "dashboard %s\n", b)
	}
	if !flags.once {
		fmt.Fprintln(a.out, "runs until you press ^C")
	}
	return b, nil
}

// closeDemo closes a demo at its end, where an error does not matter any more.
func closeDemo(ctx context.Context, d interface{ Close(context.Context) error }) {
	_ = d.Close(context.WithoutCancel(ctx))
}

func unlessCancelled(interrupted context.Context, err error) error {
	if interrupted.Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("interrupted: start it again to continue")
	}
	return err
}

// firstCommit notes when the first events were committed.
type firstCommit struct{ nanos atomic.Int64 }

// Observe implements [sluice.Observer].
func (f *firstCommit) Observe(o sluice.Observation) {
	if o.Kind == sluice.KindCommitted && o.Events > 0 && f.nanos.Load() == 0 {
		f.nanos.CompareAndSwap(0, int64(time.Since(started)))
	}
}

func (f *firstCommit) after() time.Duration { return time.Duration(f.nanos.Load()) }

// retryAdvice says how to retry the dead letters of the demo in a directory.
func retryAdvice(dir string) string {
	program := invocation()
	return fmt.Sprintf(`
The dead letters lack their delay. List them, then retry them with a mapping that
does not require a delay:

  %s deadletters list --config %s
  %s deadletters retry --config %s --all
`, program, shellWord(filepath.Join(dir, "flights.yaml")), program, shellWord(filepath.Join(dir, "fixed.yaml")))
}

// invocation is how this program was called, so that printed commands can be copied.
func invocation() string {
	if path, err := os.Executable(); err == nil && strings.Contains(path, string(filepath.Separator)+"go-build") {
		return "go run ./cmd/sluice"
	}
	return shellWord(os.Args[0])
}

// shellWord quotes a word for a POSIX shell if it needs that.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
