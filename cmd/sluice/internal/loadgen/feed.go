// Package loadgen draws what is to be sent: the records of files, and documents
// made up for load tests.
package loadgen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
)

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// KeyField names the field whose value is the key. Default: records have
	// none.
	KeyField string
	// Rate is how many records are drawn a second. Default: as fast as they
	// are taken.
	Rate float64
	// TooLarge is called for each record that is too large to be read; the
	// others are drawn.
	TooLarge func(*records.TooLargeError)
}

const maxRate = 1e7

func checkRate(rate float64) error {
	if rate < 0 || rate > maxRate {
		return fmt.Errorf("rate of %v a second: must be positive and at most %d", rate, int(maxRate))
	}
	return nil
}

// Record is a record of a file, and its key.
type Record struct {
	records.Record
	Key string // empty: none
}

// Feed draws the records of files.
type Feed struct {
	cfg  Config
	pace *pace
}

// New makes a feed.
func New(cfg *Config) (*Feed, error) {
	f := &Feed{}
	if cfg != nil {
		f.cfg = *cfg
	}
	f.pace = newPace(f.cfg.Rate)
	return f, checkRate(f.cfg.Rate)
}

// Records yields the records of a file as they come, and behind them what went
// wrong, if anything did; if ctx has ended, why that was.
//
// It does not wait for its reader, which may be waiting for input that never
// comes; the reader ends with the next record, or with the input.
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

// read passes records on at the configured rate.
func (f *Feed) read(ctx context.Context, in *records.Reader, out chan<- Record) error {
	for {
		r, err := in.Next()
		var large *records.TooLargeError
		switch {
		case errors.As(err, &large):
			if f.cfg.TooLarge != nil {
				f.cfg.TooLarge(large)
			}
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		keyed := Record{Record: r}
		if f.cfg.KeyField != "" {
			if keyed.Key, err = key(r.Body, f.cfg.KeyField); err != nil {
				return fmt.Errorf("%s: %w", r.Place, err)
			}
		}
		if err := f.pace.wait(ctx); err != nil {
			return err
		}
		select {
		case out <- keyed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
