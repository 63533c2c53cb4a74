package upload

import (
	"context"
	"errors"
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
	// Rejected is called for each record that cannot be sent as it is, or has no key, with its
	// number. It is left out.
	Rejected func(*records.RejectedError, int64)
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
		var rejected *records.RejectedError
		if err != nil && !errors.As(err, &rejected) {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		f.count++
		keyed := Record{Record: r, Position: f.count}
		if rejected == nil {
			if f.cfg.Skip != nil && f.cfg.Skip(f.count) {
				continue
			}
			if keyed.Key, err = f.key(r.Body); err != nil {
				rejected = &records.RejectedError{Place: r.Place, Reason: err.Error()}
			}
		}
		if rejected != nil {
			if f.cfg.Rejected != nil {
				f.cfg.Rejected(rejected, f.count)
			}
			continue
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

func (f *Feed) key(body []byte) (string, error) {
	if f.cfg.KeyField == "" {
		return "", nil
	}
	return key(body, f.cfg.KeyField, f.cfg.LongKeys)
}
