//go:build linux || darwin

package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-go/sluice/driver"
)

func init() { children["limited"] = limited }

// A write that the system refuses: before the commit nothing was written; at
// the commit, SQLite itself cannot tell what the disk holds.
func TestWriteError(t *testing.T) {
	p := spawn(t, t.TempDir(), "limited")
	p.says(t, "done")
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

func limited(ctx context.Context, s *Store) error {
	if _, err := s.DB().Exec(setUp); err != nil {
		return err
	}
	l := leaseOf("0", "a", 1)
	p, err := s.Claim(ctx, l, "i")
	if err != nil {
		return err
	}
	attempts := 0
	big := strings.Repeat("x", 10_000)
	for _, try := range []struct {
		rows    int   // how many make SQLite write: before the commit if the cache is full, else at the commit
		failure error // the handler's own, which alone would be its fault
		unknown bool
	}{{1000, nil, false}, {10, nil, true}, {1, errors.New("no"), false}} {
		if err := limitFiles(true); err != nil {
			return err
		}
		err = s.Commit(ctx, driver.Step{Lease: l, From: p.Position, To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
			for range try.rows {
				if put(ctx, tx, big) != nil {
					return errors.New("could not write")
				}
			}
			return try.failure
		})
		if _, blames := errors.AsType[*driver.HandlerError](err); err == nil || blames || errors.Is(err, driver.ErrUnknown) != try.unknown || !strings.Contains(err.Error(), "x.db: disk I/O error") {
			return fmt.Errorf("commit of %d rows: %v; want an I/O error; unknown outcome %v", try.rows, err, try.unknown)
		}
		if err := s.RecordAttempt(ctx, l, p.Position, driver.AttemptRecord{Sequence: 1, Attempts: attempts}); err == nil {
			return errors.New("record while nothing can be written: no error")
		}
		if err := s.Advance(ctx, l, "i", positionAt(9), []driver.SequenceRange{{First: 12, Last: 12}}); err == nil || errors.Is(err, driver.ErrFenced) {
			return fmt.Errorf("advance while nothing can be written: %v", err)
		}
		deadLetters := []driver.DeadLetter{{Group: group, Event: driver.Event{Partition: "0", Sequence: 1}}, {Group: group, Event: driver.Event{Partition: "0", Sequence: 2}}}
		if err := s.Park(ctx, deadLetters); err == nil {
			return errors.New("park while nothing can be written: no error")
		}
		if err := limitFiles(false); err != nil {
			return err
		}
		again, err := s.Claim(ctx, l, "i")
		if err != nil || again.Position != p.Position {
			return fmt.Errorf("claim after the failure: %+v, %w; want position %v", again, err, p.Position)
		}
		if parked, err := s.Parked(ctx, group, "0", "", -1); err != nil || len(parked) > 0 || len(again.Done) > 0 {
			return fmt.Errorf("after the failure, parked are %v, %w, done %v; want neither", parked, err, again.Done)
		}
	}
	if err := s.Commit(ctx, driver.Step{Lease: l, From: p.Position, To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
		return put(ctx, tx, "once")
	}); err != nil {
		return err
	}
	if got, err := effects(ctx, s); err != nil || !slices.Equal(got, []string{"once"}) {
		return fmt.Errorf("effects are %.100q, %w", got, err)
	}
	fmt.Println("done")
	return nil
}

// limitFiles keeps this process from writing to any file, or lifts that. (The
// write-ahead log can begin anew at its front, so its size is no limit.)
func limitFiles(limited bool) error {
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	if limited {
		limit.Cur = 0
	}
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}
