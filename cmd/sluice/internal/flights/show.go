package flights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/progress"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/driver"
)

// Command is the demo as a command. All fields are required.
type Command struct {
	Dir     string // of its files, as the user named it
	Events  int64  // how many to send
	Once    bool   // end when all are processed, and fail unless each has exactly one effect
	Started time.Time
	Out     io.Writer    // results
	Screen  *term.Screen // the status line
	Log     *slog.Logger
	// Program is how the program with the command deadletters is called.
	Program string
	Open    func(ctx context.Context) (*Demo, error)
	// View opens a dashboard. It may return nil: then there is none.
	View func(context.Context, *Demo) (*View, error)
}

// CheckEvents checks a number for [Command].Events.
func CheckEvents(n int64) error {
	if n < 1 || n > 1e9 {
		return fmt.Errorf("--events %d: must be 1 to 1,000,000,000", n)
	}
	return nil
}

// View is a dashboard of the demo.
type View struct {
	Address  string
	Observer driver.Observer
	Source   driver.Source // what the consumer reads, in place of the demo's own
	Close    func()
}

// Run runs the demo to its end, or until the user interrupts it, and prints what became of each
// event.
func (c *Command) Run(ctx context.Context) error {
	interrupted, stop := term.UntilInterrupted(ctx)
	defer stop()
	d, err := c.Open(interrupted)
	if err != nil {
		return UnlessCancelled(interrupted, err)
	}
	defer d.Close(context.WithoutCancel(ctx)) // at the end an error does not matter any more
	fmt.Fprintf(c.Out, "%s\ndatabase  %s\n", d.Where, filepath.Join(c.Dir, "flights.db"))
	view, err := c.View(interrupted, d)
	if err != nil {
		return err
	}
	if view == nil {
		view = &View{Observer: driver.Observers(), Close: func() {}}
	} else {
		fmt.Fprintf(c.Out, "dashboard %s\n", view.Address)
	}
	defer view.Close()
	if !c.Once {
		fmt.Fprintln(c.Out, "runs until you press ^C")
	}
	first := firstCommit{started: c.Started}
	if err := c.consume(ctx, interrupted, d, view, &first); err != nil {
		return UnlessCancelled(interrupted, err)
	}
	took := time.Since(c.Started)
	audit, err := d.Audit(ctx)
	if err != nil {
		return err
	}
	if err := audit.Print(c.Out, first.elapsed(), took, c.retryAdvice()); err != nil {
		return err
	}
	return audit.Verdict(c.Once, "event is not processed", "events are not processed")
}

func (c *Command) consume(ctx, interrupted context.Context, d *Demo, view *View, first *firstCommit) error {
	m := progress.New(c.Log, driver.KindAcquired, driver.KindOpened, driver.KindReleased, driver.KindParked)
	return progress.ShowDuring(ctx, c.Screen, func() error {
		return d.Run(interrupted, c.Events, c.Once, view.Source, driver.Observers(m, first, view.Observer), m.Stopped)
	}, progress.Stage{Monitor: m})
}

// UnlessCancelled says what to do after a demo was interrupted before its end.
func UnlessCancelled(interrupted context.Context, err error) error {
	if interrupted.Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("interrupted: start it again to continue")
	}
	return err
}

// firstCommit notes when the first events were committed.
type firstCommit struct {
	started time.Time
	nanos   atomic.Int64
}

// Observe implements [driver.Observer].
func (f *firstCommit) Observe(o driver.Observation) {
	if o.Kind == driver.KindCommitted && o.Events > 0 && f.nanos.Load() == 0 {
		f.nanos.CompareAndSwap(0, int64(time.Since(f.started)))
	}
}

func (f *firstCommit) elapsed() time.Duration { return time.Duration(f.nanos.Load()) }

// retryAdvice says how to retry the dead letters of the demo.
func (c *Command) retryAdvice() string {
	return fmt.Sprintf(`
The dead letters lack their delay. List them, then retry them with a mapping that
does not require a delay:

  %s deadletters list --config %s
  %s deadletters retry --config %s --all
`, c.Program, ShellWord(filepath.Join(c.Dir, "flights.yaml")), c.Program, ShellWord(filepath.Join(c.Dir, "fixed.yaml")))
}

// ShellWord quotes a word for a POSIX shell if it needs that.
func ShellWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
