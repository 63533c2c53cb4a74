package upload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/loadgen"
	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/sender"
)

// Uploader sends to a destination. It shows its progress on Screen, and prints to Out how many
// records were acknowledged.
type Uploader struct {
	Destination *Destination
	Rate        float64 // records per second; 0: no limit
	Out         io.Writer
	Screen      *term.Screen
	Log         *slog.Logger
	// Report is the name of a file to which is written what became of each record of files, so that
	// a later run can send what is missing. Default: none.
	Report string
	// Resume says that Report is of an earlier run, and that what is missing is sent.
	Resume bool
}

// Files sends the records of files, one file after the other. The name "-" is standard input.
func (u *Uploader) Files(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := u.check(name); err != nil {
			return err
		}
	}
	to, err := u.Destination.connect(ctx, 1, 0)
	if err != nil {
		return err
	}
	defer to.close(ctx)
	cfg := senderConfig()
	if cfg.ClaimCheck, err = u.Destination.claimCheck(ctx); err != nil {
		return err
	}
	f := &files{Uploader: u}
	if err := f.openReport(names); err != nil {
		return err
	}
	feed := &FeedConfig{KeyField: u.Destination.KeyField + u.Destination.SessionField, LongKeys: u.Destination.IsKafka(), Rate: u.Rate, Rejected: f.rejected}
	cfg.OnRejected = f.refused
	if r := f.record; r != nil {
		feed.Skip = r.sent.has
		cfg.OnAccepted = func(indices []sender.IndexRange) {
			r.write(&reportLine{Outcome: outcomeSent, Records: formatNumbers(f.places.numbers(indices))})
		}
	}
	if f.feed, err = NewFeed(feed); err != nil {
		return err
	}
	s := sender.New(to.transports[0], cfg)
	return u.report(ctx, to, []*sender.Sender{s}, func() error { return f.send(ctx, s, names) })
}

// openReport opens the report, if one is wanted.
func (f *files) openReport(names []string) (err error) {
	switch {
	case f.Report == "":
	case f.Resume:
		if f.record, err = resumeReport(f.Report, f.Destination, names); err != nil {
			return err
		}
		f.Log.Info("resuming", "report", f.Report, "sent", f.record.sent.count, "unknown", f.record.unknown.count)
		if n := f.record.unknown.count; n > 0 {
			f.Log.Warn("records with an unknown outcome are sent again and may be stored twice: both messages have the same id", "records", n)
		}
	default:
		f.record, err = createReport(f.Report, f.Destination, names)
	}
	return err
}

// check returns why a file is refused, before the first record of any file is sent. What can be
// read only once, such as a pipe, is checked while it is sent.
func (u *Uploader) check(name string) error {
	if name == "-" {
		return nil
	}
	if err := checkReadable(name); err != nil {
		return fmt.Errorf("%s: cannot be read: %w", name, err)
	}
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return err
	}
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	return records.Check(in, name, &u.Destination.Input)
}

// checkReadable returns why a file cannot be read.
func checkReadable(name string) error {
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

// files sends the records of files.
type files struct {
	*Uploader
	feed   *Feed
	record *sendReport // nil: none is wanted

	places places
	err    error // why reading ended

	mu         sync.Mutex
	largeCount int // records that were too large
	otherCount int // records that were rejected for another reason
}

// maxLogged is how many rejected records are logged. The report has all of them.
const maxLogged = 100

func (f *files) send(ctx context.Context, s *sender.Sender, names []string) error {
	whole := true // the input was yielded to its end
	result, err := s.SendAll(ctx, func(yield func(sender.Message) bool) {
		for _, name := range names {
			if whole = f.yieldFile(ctx, name, yield); !whole {
				return
			}
		}
	})
	err = f.failure(err)
	if f.record == nil {
		return err
	}
	next := f.places.next()
	if result.Taken < f.places.n {
		_, next = f.places.lookup(result.Taken)
	}
	why := err
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		why = errInterrupted
	}
	if broken := f.record.finish(&f.places, &result, next, !whole || result.Taken < f.places.n, why); broken != nil {
		return errors.Join(err, broken)
	}
	if err != nil {
		f.Log.Warn("not all records were sent: the report says which; send --resume sends those", "report", f.Report)
	}
	return err
}

// failure is why not all records were sent, by the error of SendAll.
func (f *files) failure(err error) error {
	switch {
	case err != nil:
		return f.Destination.explain(err)
	case f.err != nil:
		return f.err
	case f.otherCount > 0:
		return fmt.Errorf("%s: all others were sent", humanize.Plural(f.largeCount+f.otherCount, "record was rejected", "records were rejected"))
	case f.largeCount > 0:
		return fmt.Errorf("%s too large for the %s: all others were sent", humanize.Plural(f.largeCount, "record was", "records were"), f.Destination.kind())
	}
	return nil
}

// yieldFile yields the records of a file. It returns false if no other file must be sent.
func (f *files) yieldFile(ctx context.Context, name string, yield func(sender.Message) bool) bool {
	var in io.Reader = os.Stdin
	if name == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(name)
		if err != nil {
			f.err = err
			return false
		}
		defer file.Close()
		in = file
	}
	for r, err := range f.feed.Records(ctx, records.NewReader(in, name, &f.Destination.Input)) {
		if f.err = err; err != nil {
			return false
		}
		m, err := f.Destination.message(r.Key, r.Body)
		if r.Event != nil {
			f.Destination.takeOver(&m, r.Event)
		}
		if err != nil {
			f.rejected(&records.RejectedError{Place: r.Place, Reason: err.Error()}, r.Position)
			continue
		}
		f.places.add(r.Place, r.Position)
		if f.record != nil {
			if f.err = f.record.sending(r.Position); f.err != nil {
				return false
			}
			m.MessageID = f.record.messageID(r.Position)
		}
		if !yield(m) {
			return false
		}
	}
	return true
}

// rejected logs and counts a record that cannot be sent as it is.
func (f *files) rejected(e *records.RejectedError, number int64) {
	f.mu.Lock()
	if e.TooLarge {
		f.largeCount++
	} else {
		f.otherCount++
	}
	logged := f.largeCount + f.otherCount
	f.mu.Unlock()
	switch {
	case logged <= maxLogged:
		f.Log.Error("record not sent", "error", e.Error())
	case logged == maxLogged+1:
		f.Log.Warn("more records are not sent, and not logged: --report lists all of them")
	}
	if f.record != nil {
		f.record.rejected(number, e.Place, e.Reason)
	}
}

// refused is rejected for a message that the service does not take.
func (f *files) refused(e *sender.RejectedError) {
	place, number := f.places.lookup(e.Index)
	if errors.Is(e, sender.ErrTooLarge) {
		f.rejected(&records.RejectedError{Place: place, Reason: fmt.Sprintf("too large (%d bytes)", e.Body), TooLarge: true}, number)
		return
	}
	f.rejected(&records.RejectedError{Place: place, Reason: e.Err.Error()}, number)
}

// Generated says what documents are generated, and how they are sent.
type Generated struct {
	Count     int64
	Replicas  int // concurrent senders, each with its own connection
	Batch     int // messages in a batch at most
	Documents loadgen.DocumentsConfig
}

// Generated sends generated documents.
func (u *Uploader) Generated(ctx context.Context, g *Generated) error {
	docs, err := loadgen.NewDocuments(&g.Documents)
	if err != nil {
		return err
	}
	load, err := loadgen.NewLoad(docs, g.Count, &loadgen.LoadConfig{Replicas: g.Replicas, Rate: u.Rate})
	if err != nil {
		return err
	}
	to, err := u.Destination.connect(ctx, g.Replicas, g.Batch)
	if err != nil {
		return err
	}
	defer to.close(ctx)
	cfg := senderConfig()
	if cfg.ClaimCheck, err = u.Destination.claimCheck(ctx); err != nil {
		return err
	}
	senders := make([]*sender.Sender, g.Replicas)
	for i, t := range to.transports {
		senders[i] = sender.New(t, cfg)
	}
	return u.report(ctx, to, senders, func() error { return u.sendLoad(ctx, senders, load) })
}

// sendLoad lets each sender send a part of a load. The first error stops all of them.
func (u *Uploader) sendLoad(ctx context.Context, senders []*sender.Sender, load *loadgen.Load) error {
	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var work sync.WaitGroup
	for i, s := range senders {
		work.Go(func() {
			_, err := s.SendAll(sending, func(yield func(sender.Message) bool) {
				for d := range load.Part(sending, i) {
					m, err := u.Destination.message(d.Key, d.Body)
					if err != nil {
						stop(err)
						return
					}
					m.MessageID = d.ID
					if !yield(m) {
						return
					}
				}
			})
			if err != nil {
				stop(u.Destination.explain(err))
			}
		})
	}
	work.Wait()
	return context.Cause(sending)
}

var errInterrupted = errors.New("interrupted")

// report shows progress while send runs, and then prints how many records were acknowledged, also
// if send fails.
func (u *Uploader) report(ctx context.Context, to *connections, senders []*sender.Sender, send func() error) error {
	var watching sync.WaitGroup
	watched, unwatch := context.WithCancel(ctx)
	began := time.Now()
	stats := func() (all sender.Stats) {
		for _, s := range senders {
			f := s.Stats()
			all.Messages += f.Messages
			all.Batches += f.Batches
			all.Bytes += f.Bytes
		}
		return all
	}
	watching.Go(func() { u.showProgress(watched, stats, to.maxBatch, began) })
	err := send()
	unwatch()
	watching.Wait()
	took := time.Since(began)
	acknowledged, noun := stats().Messages, "records"
	if acknowledged == 1 {
		noun = "record"
	}
	// Scripts read the number, so it has no separators.
	fmt.Fprintf(u.Out, "%d %s acknowledged in %s\n", acknowledged, noun, humanize.Span(took))
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// showProgress shows how much was acknowledged, and how full the batches were.
func (u *Uploader) showProgress(ctx context.Context, stats func() sender.Stats, maxBatch int, began time.Time) {
	var speed term.Speed
	speed.Add(began, 0)
	fill := func(f sender.Stats) int64 { return f.Bytes * 100 / max(f.Batches*int64(maxBatch), 1) }
	u.Screen.Follow(ctx, func() string {
		now, f := time.Now(), stats()
		return fmt.Sprintf("%s acknowledged  %s, %d %% full  %.1f MB  %s/s  %s",
			humanize.Plural(f.Messages, "record", "records"), humanize.Plural(f.Batches, "batch", "batches"), fill(f), float64(f.Bytes)/1e6,
			humanize.Count(speed.Add(now, f.Messages)), now.Sub(began).Truncate(time.Second))
	}, func() {
		f := stats()
		u.Log.Info("progress", "acknowledged", f.Messages, "batches", f.Batches, "bytes", f.Bytes, "fill_percent", fill(f),
			"per_second", speed.Add(time.Now(), f.Messages))
	})
}
