// Package guess guesses from samples of events what a pipeline file says of them, and tries the
// file on the same samples.
package guess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
)

// Samples are events that can be read again and again.
type Samples interface {
	// Each calls fn for each event, which may keep it.
	Each(ctx context.Context, fn func(*sluice.Event) error) error
	// Description says what the samples are, after the first call of Each.
	Description() string
}

// Bounds of a file's samples.
const (
	MostRecords = 1_000_000
	MostBytes   = 1 << 30 // of bodies
)

// File are the records of a file, as sluice send sends them.
type File struct {
	Name     string // for messages
	Config   *records.Config
	Read     func(n int)   // is called after each record with its number
	Place    records.Place // of the present record
	Rejected int           // records that sluice send would not send
	Why      error         // of the first of these
	Cut      bool          // the file has more
	Whole    bool          // the present record is an event with all that it had, of Event Hubs Capture
	Count    int

	path  string
	spool *os.File // of standard input
	most  int      // records
}

// OpenFile opens a file of records; "-" is standard input, of which a copy is kept until Close.
func OpenFile(path string, stdin io.Reader, cfg *records.Config) (*File, error) {
	f := &File{Name: filepath.Base(path), Config: cfg, path: path, Read: func(int) {}, most: MostRecords}
	if path != "-" {
		return f, nil
	}
	f.Name = "standard input"
	var err error
	if f.spool, err = os.CreateTemp("", "sluice-init-*"); err != nil {
		return nil, err
	}
	_, err = io.Copy(f.spool, io.LimitReader(stdin, MostBytes))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return f, nil
}

// Close removes the copy of standard input.
func (f *File) Close() {
	if f.spool != nil {
		f.spool.Close()
		os.Remove(f.spool.Name())
	}
}

// Each implements [Samples].
func (f *File) Each(ctx context.Context, fn func(*sluice.Event) error) error {
	in := io.ReadCloser(f.spool)
	if f.spool == nil {
		file, err := os.Open(f.path)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	} else if _, err := f.spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	f.Count, f.Rejected, f.Why, f.Cut = 0, 0, nil, false
	reader := records.NewReader(in, f.Name, f.Config)
	bytes := 0
	now := time.Now()
	for ctx.Err() == nil {
		r, err := reader.Next()
		var rejected *records.RejectedError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &rejected):
			if f.Rejected++; f.Why == nil {
				f.Why = err
			}
			continue
		case err != nil:
			return err
		}
		if bytes += len(r.Body); f.Count == f.most || bytes > MostBytes {
			f.Cut = true
			return nil
		}
		e := &sluice.Event{Partition: "0", Sequence: int64(f.Count), Offset: fmt.Sprint(f.Count), Enqueued: now, ContentType: "application/json", Body: r.Body}
		if f.Whole = r.Event != nil; f.Whole {
			e = r.Event
		}
		f.Count++
		f.Place = r.Place
		f.Read(f.Count)
		if err := fn(e); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// Description implements [Samples].
func (f *File) Description() string {
	if f.Cut {
		return fmt.Sprintf("the first %s of %s", events(f.Count, "record"), f.Name)
	}
	return fmt.Sprintf("%s of %s", events(f.Count, "record"), f.Name)
}

// Log are events of a hub or a topic, in memory.
type Log struct {
	Name   string // such as "hub flights"
	Events []*sluice.Event
}

// Each implements [Samples].
func (l *Log) Each(ctx context.Context, fn func(*sluice.Event) error) error {
	for _, e := range l.Events {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

// Description implements [Samples].
func (l *Log) Description() string {
	return fmt.Sprintf("the newest %s of %s", events(len(l.Events), "event"), l.Name)
}
