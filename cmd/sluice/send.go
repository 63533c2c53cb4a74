package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/loadgen"
	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/sender"
)

func (a *app) send() *cobra.Command {
	var to destination
	var rate float64
	var made generateFlags
	cmd := &cobra.Command{
		Use:   "send {--hub | --queue | --topic} NAME [FILE… | --generate N]",
		Short: "Send files of records, or made-up documents, to an event hub, a queue or a topic",
		Long: `Send records to an event hub, or to a queue or topic of Service Bus:
newline-delimited JSON, a JSON array, or CSV with a header, whose rows become
JSON objects. The first character tells which. With "-" or no file the records
come from standard input.

They go in batches as large as the service takes. Records of one key, or of one
session, keep their order. Without either they go to the partitions in turn.

` + aboutGenerate,
		Example: `  sluice send --hub flights --key-field origin flights.csv
  sluice send --queue orders --session-field customer orders.ndjson
  sluice send --hub docs --generate 4200000 --replicas 4 --batch 500`,
	}
	cmd.RunE = a.runE(func(ctx context.Context, files []string) error {
		if err := made.check(cmd, files); err != nil {
			return err
		}
		if err := to.check(cmd); err != nil {
			return err
		}
		if rate < 0 {
			return usage.Errorf("--rate %v: must be positive", rate)
		}
		if made.count > 0 {
			return a.sendGenerated(ctx, &to, &made, rate)
		}
		return a.sendFiles(ctx, &to, files, rate)
	})
	f := cmd.Flags()
	to.add(f)
	f.Float64Var(&rate, "rate", 0, "`number` of records a second (default as many as are taken)")
	made.add(f)
	return cmd
}

// connectionString resolves env:NAME, which keeps keys out of the list of
// processes.
func connectionString(to string) (string, error) {
	name, ok := strings.CutPrefix(to, "env:")
	if !ok {
		return to, nil
	}
	value := os.Getenv(name)
	if value == "" {
		return "", usage.Errorf("the environment variable %s is not set: put the connection string there, or state --to", name)
	}
	return value, nil
}

// sendFiles sends the files one after the other.
func (a *app) sendFiles(ctx context.Context, to *destination, files []string, rate float64) error {
	if len(files) == 0 {
		files = []string{"-"}
	}
	for _, name := range files {
		if err := readable(name); name != "-" && err != nil {
			return fmt.Errorf("%s: cannot be read: %w", name, err)
		}
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	way, err := to.open(ctx, 1, 0)
	if err != nil {
		return err
	}
	defer way.close(ctx)
	p := &post{app: a, to: to}
	if p.feed, err = loadgen.New(&loadgen.Config{KeyField: to.keyField + to.sessionField, Rate: rate, TooLarge: p.tooLarge}); err != nil {
		return err
	}
	cfg := senderConfig()
	cfg.OnRejected = p.refused
	s := sender.New(way.transports[0], cfg)
	return a.reportSending(ctx, way, []*sender.Sender{s}, func() error { return p.send(ctx, s, files) })
}

// readable tells why a file can't be read, if so.
func readable(name string) error {
	info, err := os.Stat(name)
	var at *fs.PathError
	switch {
	case errors.As(err, &at):
		return at.Err
	case err == nil && info.IsDir():
		return errors.New("it is a directory")
	}
	return err
}

// post is the sending of files.
type post struct {
	app  *app
	to   *destination
	feed *loadgen.Feed

	place  records.Place // of the record that was drawn last
	size   int           // and its bytes
	failed error         // why drawing ended

	mu      sync.Mutex
	large   int // records that were too large
	unsound int // records that are refused for something else
}

func (p *post) send(ctx context.Context, s *sender.Sender, files []string) error {
	_, err := s.SendAll(ctx, func(yield func(sender.Message) bool) {
		for _, name := range files {
			if !p.draw(ctx, name, yield) {
				return
			}
		}
	})
	switch {
	case err != nil:
		return p.to.explain(err)
	case p.failed != nil:
		return p.failed
	case p.unsound > 0:
		return fmt.Errorf("%s by the %s: all others were sent", humanize.Plural(p.large+p.unsound, "record was refused", "records were refused"), p.to.kind())
	case p.large > 0:
		return fmt.Errorf("%s too large for the %s: all others were sent", humanize.Plural(p.large, "record was", "records were"), p.to.kind())
	}
	return nil
}

// draw yields a file's records, and tells whether there is to be another file.
func (p *post) draw(ctx context.Context, name string, yield func(sender.Message) bool) bool {
	var in io.Reader = os.Stdin
	if name == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(name)
		if err != nil {
			p.failed = err
			return false
		}
		defer file.Close()
		in = file
	}
	for r, err := range p.feed.Records(ctx, records.NewReader(in, name)) {
		if p.failed = err; err != nil {
			return false
		}
		p.place, p.size = r.Place, len(r.Body)
		if !yield(p.to.message(r.Key, r.Body)) {
			return false
		}
	}
	return true
}

// tooLarge notes a record that is too large to be read.
func (p *post) tooLarge(e *records.TooLargeError) {
	p.mu.Lock()
	p.large++
	p.mu.Unlock()
	p.app.log.Error("record not sent", "error", e.Error())
}

// refused notes a record that can't be sent: it is the one that was drawn last,
// for the services say how large a batch may be.
func (p *post) refused(e *sender.RejectedError) {
	if errors.Is(e, sender.ErrTooLarge) {
		p.tooLarge(&records.TooLargeError{Place: p.place, Size: p.size})
		return
	}
	p.mu.Lock()
	p.unsound++
	p.mu.Unlock()
	p.app.log.Error("record not sent", "error", fmt.Sprintf("%s: %v", p.place, e.Err))
}

// reportSending shows how the sending gets on and prints how much was
// acknowledged, whatever happens.
func (a *app) reportSending(ctx context.Context, way *road, senders []*sender.Sender, send func() error) error {
	var watching sync.WaitGroup
	watched, unwatch := context.WithCancel(ctx)
	began := time.Now()
	figures := func() (all sender.Stats) {
		for _, s := range senders {
			f := s.Stats()
			all.Messages += f.Messages
			all.Batches += f.Batches
			all.Bytes += f.Bytes
		}
		return all
	}
	watching.Go(func() { a.watchSending(watched, figures, way.limit, began) })
	err := send()
	unwatch()
	watching.Wait()
	took := time.Since(began)
	acknowledged, noun := figures().Messages, "records"
	if acknowledged == 1 {
		noun = "record"
	}
	// Scripts read the number, so it has no separators.
	fmt.Fprintf(a.out, "%d %s acknowledged in %s\n", acknowledged, noun, humanize.Span(took))
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// watchSending shows the figures of what was acknowledged, and how full its
// batches were.
func (a *app) watchSending(ctx context.Context, figures func() sender.Stats, limit int, began time.Time) {
	var speed term.Speed
	speed.At(began, 0)
	fill := func(f sender.Stats) int64 { return f.Bytes * 100 / max(f.Batches*int64(limit), 1) }
	a.screen.Follow(ctx, func() string {
		now, f := time.Now(), figures()
		return fmt.Sprintf("%s acknowledged  %s, %d %% full  %.1f MB  %s/s  %s",
			humanize.Plural(f.Messages, "record", "records"), humanize.Plural(f.Batches, "batch", "batches"), fill(f), float64(f.Bytes)/1e6,
			humanize.Count(speed.At(now, f.Messages)), now.Sub(began).Truncate(time.Second))
	}, func() {
		f := figures()
		a.log.Info("progress", "acknowledged", f.Messages, "batches", f.Batches, "bytes", f.Bytes, "fill_percent", fill(f),
			"per_second", speed.At(time.Now(), f.Messages))
	})
}
