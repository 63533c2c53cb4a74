package kafka

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Seek implements [driver.Source]. [driver.StartLatest] is after every record that was acknowledged
// before by all replicas in sync, and before the oldest open transaction, unless
// [SourceConfig].ReadUncommitted is set. A start at an offset is one at a number.
func (s *Source) Seek(ctx context.Context, partition string, start driver.Start, _ int64) (driver.Position, error) {
	n, err := s.number(partition)
	if err != nil {
		return driver.Unset, err
	}
	find, err := s.finder(partition, start)
	if err != nil {
		return driver.Unset, err
	}
	at := driver.Unset
	err = s.withLeader(ctx, n, true, func(ctx context.Context, l leader) (err error) {
		at, err = find(ctx, l)
		return err
	})
	if err != nil {
		return driver.Unset, s.explain(s.partitionName(partition), err)
	}
	return at, nil
}

// finder returns a function that asks a leader for the position of a start.
func (s *Source) finder(partition string, start driver.Start) (func(context.Context, leader) (driver.Position, error), error) {
	switch start.Kind {
	case driver.StartEarliest:
		return func(ctx context.Context, l leader) (driver.Position, error) {
			first, err := s.list(ctx, l, earliestOffset)
			return positionBefore(first), err
		}, nil
	case driver.StartLatest:
		return func(ctx context.Context, l leader) (driver.Position, error) {
			end, err := s.list(ctx, l, latestOffset)
			return positionBefore(end), err
		}, nil
	case driver.StartSequence:
		return s.findNumber(start.Sequence), nil
	case driver.StartOffset:
		number, err := strconv.ParseInt(start.Offset, 10, 64)
		if err != nil {
			return nil, &refusedError{text: fmt.Sprintf("%s: %.100q is not an offset: give the number of a record", s.partitionName(partition), start.Offset)}
		}
		return s.findNumber(number), nil
	case driver.StartTime:
		return s.findTime(start.Time), nil
	case driver.StartAgo:
		return s.findTime(time.Now().Add(-start.Ago)), nil
	}
	return nil, &refusedError{text: fmt.Sprintf("%s: unknown kind of start %d", s.partitionName(partition), start.Kind)}
}

// findNumber finds the position before a number. One that is gone is returned as it is: Open
// reports the loss.
func (s *Source) findNumber(number int64) func(context.Context, leader) (driver.Position, error) {
	return func(ctx context.Context, l leader) (driver.Position, error) {
		end, err := s.list(ctx, l, latestOffset)
		if err != nil || number >= end.offset {
			return positionBefore(end), err
		}
		return driver.Position{Sequence: max(number, 0) - 1}, nil
	}
}

// findTime finds the position before the first record with a timestamp at or after a time. The end
// is asked for first: a record that comes between the two requests is after it.
func (s *Source) findTime(at time.Time) func(context.Context, leader) (driver.Position, error) {
	return func(ctx context.Context, l leader) (driver.Position, error) {
		end, err := s.list(ctx, l, latestOffset)
		if err != nil {
			return driver.Unset, err
		}
		first, err := s.list(ctx, l, milliseconds(at))
		if err != nil || first.offset < 0 || first.offset > end.offset {
			return positionBefore(end), err
		}
		return positionBefore(first), nil
	}
}

// milliseconds returns a time in Kafka's unit, rounded up, and 0 before 1970: negative numbers have
// meanings of their own.
func milliseconds(t time.Time) int64 {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) && ms < math.MaxInt64 {
		ms++
	}
	return max(ms, 0)
}
