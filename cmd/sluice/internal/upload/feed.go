package upload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/sluice-go/sluice/cmd/sluice/internal/loadgen"
	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
)

// FeedConfig configures a [Feed]. The zero value is ready to use.
type FeedConfig struct {
	// KeyField is the name of the field whose value is the key. Default: records have no key.
	KeyField string
	// LongKeys says that keys may have any length. Default: as in Event Hubs.
	LongKeys bool
	// Rate limits how many records are yielded per second. Default: no limit.
	Rate float64
	// TooLarge is called for each record that is too large to read, with its number. It is left out.
	TooLarge func(*records.TooLargeError, int64)
	// Skip reports whether a record is left out, by its number. Default: none is.
	Skip func(number int64) bool
}

// Record is a record of a file, and its key.
type Record struct {
	records.Record
	Key      string // empty: none
	Position int64  // its number in all files, from 1
}

// Feed yields the records of files at a limited rate.
type Feed struct {
	cfg   FeedConfig
	pace  *loadgen.Pacer
	count int64 // records that were read, of all files
}

// NewFeed makes a feed. A nil cfg takes every default.
func NewFeed(cfg *FeedConfig) (*Feed, error) {
	f := &Feed{}
	if cfg != nil {
		f.cfg = *cfg
	}
	var err error
	f.pace, err = loadgen.NewPacer(f.cfg.Rate)
	return f, err
}

// Records yields the records of a file, and last the error that ended it, if any: that of ctx if
// it has ended.
//
// It does not wait for its reader goroutine, which may be blocked on input that never comes; that
// goroutine ends with the next record or with the input.
func (f *Feed) Records(ctx context.Context, in *records.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		reading, stop := context.WithCancel(ctx)
		defer stop()
		incoming := make(chan Record, 1024)
		var failed error // set before incoming is closed
		go func() {
			defer close(incoming)
			failed = f.read(reading, in, incoming)
		}()
		for {
			select {
			case r, more := <-incoming:
				switch {
				case more && yield(r, nil):
				case !more && failed != nil:
					yield(Record{}, failed)
					return
				default:
					return
				}
			case <-ctx.Done():
				yield(Record{}, context.Cause(ctx))
				return
			}
		}
	}
}

// read sends records to out at the configured rate.
func (f *Feed) read(ctx context.Context, in *records.Reader, out chan<- Record) error {
	for {
		r, err := in.Next()
		var large *records.TooLargeError
		switch {
		case errors.As(err, &large):
			f.count++
			if f.cfg.TooLarge != nil {
				f.cfg.TooLarge(large, f.count)
			}
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		f.count++
		if f.cfg.Skip != nil && f.cfg.Skip(f.count) {
			continue
		}
		keyed := Record{Record: r, Position: f.count}
		if f.cfg.KeyField != "" {
			if keyed.Key, err = key(r.Body, f.cfg.KeyField, f.cfg.LongKeys); err != nil {
				return fmt.Errorf("%s: %w", r.Place, err)
			}
		}
		if err := f.pace.Wait(ctx); err != nil {
			return err
		}
		select {
		case out <- keyed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
