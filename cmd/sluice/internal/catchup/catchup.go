// Package catchup waits until the checkpoints of a consumer group have reached the end that the
// topic had at some moment, whichever processes move them, and until its dead letters are copied.
package catchup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
)

// Checkpoints is the part of a [driver.TxStore] that is needed here.
type Checkpoints interface {
	Read(ctx context.Context, group driver.Group) ([]driver.Checkpoint, error)
}

// Ends are the ends of the partitions of a topic at some moment.
type Ends struct {
	topic driver.Topic
	last  map[string]int64 // sequence numbers; partitions that never had an event are missing
}

// pollEvery is the time between two reads of the checkpoints, and between two attempts to reach the
// hub.
const pollEvery = 200 * time.Millisecond

// Now returns the present ends of all partitions. It retries until ctx ends, unless the source
// refuses.
func Now(ctx context.Context, source driver.Source) (*Ends, error) {
	for {
		e, err := ends(ctx, source)
		if err == nil || errors.Is(err, driver.ErrRefused) {
			return e, err
		}
		if clock.Sleep(ctx, pollEvery) != nil {
			return nil, err
		}
	}
}

func ends(ctx context.Context, source driver.Source) (*Ends, error) {
	topic, err := source.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("describe topic: %w", err)
	}
	e := &Ends{topic: topic, last: make(map[string]int64, len(topic.Partitions))}
	for _, p := range topic.Partitions {
		last, err := end(ctx, source, p)
		if err != nil {
			return nil, fmt.Errorf("end of partition %s: %w", p, err)
		}
		if last.Sequence >= 0 {
			e.last[p] = last.Sequence
		}
	}
	return e, nil
}

// end returns the end of a partition. Bounds may be out of date. They serve only where another
// process reads the partition, because then the broker refuses to say where its end is.
func end(ctx context.Context, source driver.Source, partition string) (driver.Position, error) {
	last, err := source.Seek(ctx, partition, sluice.Latest(), 0)
	if errors.Is(err, driver.ErrStolen) {
		var b driver.Bounds
		b, err = source.Bounds(ctx, partition)
		last = b.Last
	}
	return last, err
}

// Wait returns nil once every checkpoint has reached the end of its partition. It fails early with
// the error that stopped returns for a partition that is behind. When ctx ends, it returns an
// [*Unreached] with the position of each partition.
func (e *Ends) Wait(ctx context.Context, checkpoints Checkpoints, stopped func() map[string]error) error {
	behind := &Unreached{}
	for {
		all, err := checkpoints.Read(ctx, e.topic.Group)
		switch {
		case err == nil:
			behind = e.compare(all)
			if len(behind.Partitions) == 0 {
				return nil
			}
		case ctx.Err() == nil:
			behind.Err = err
		}
		for _, p := range behind.Partitions {
			if cause := stopped()[p.Partition]; cause != nil {
				return cause
			}
		}
		if clock.Sleep(ctx, pollEvery) != nil {
			return behind
		}
	}
}

func (e *Ends) compare(all []driver.Checkpoint) *Unreached {
	at := make(map[string]driver.Position, len(all))
	for _, p := range all {
		if p.Incarnation == e.topic.Incarnation && p.Position != driver.Unset {
			at[p.Partition] = p.Position
		}
	}
	u := &Unreached{}
	for _, p := range e.topic.Partitions {
		end, ok := e.last[p]
		if !ok {
			continue
		}
		position, begun := at[p]
		if !begun || position.Sequence < end {
			u.Partitions = append(u.Partitions, LaggingPartition{Partition: p, Begun: begun, Position: position, End: end})
		}
	}
	return u
}

// WaitCopies returns nil once all dead letters of the topic's partitions are copied. When ctx ends,
// it returns an [*Uncopied] with how many are not.
func (e *Ends) WaitCopies(ctx context.Context, marks driver.CopyMarks) error {
	for {
		left := e.uncopied(ctx, marks, 1)
		if left.Err == nil && left.DeadLetters == 0 {
			return nil
		}
		if clock.Sleep(ctx, pollEvery) != nil {
			counting, cancel := context.WithTimeout(context.WithoutCancel(ctx), countFor)
			defer cancel()
			return e.uncopied(counting, marks, countPage)
		}
	}
}

// countFor is how long dead letters that are not copied are counted, and countPage how many are in
// memory then.
const (
	countFor  = 10 * time.Second
	countPage = 16
)

// uncopied counts the dead letters that are not copied. With a page of 1 it stops at the first one.
func (e *Ends) uncopied(ctx context.Context, marks driver.CopyMarks, page int) *Uncopied {
	u := &Uncopied{}
	for _, p := range e.topic.Partitions {
		for after := int64(0); ; {
			list, err := marks.Uncopied(ctx, e.topic.Group, p, after, page)
			u.DeadLetters += len(list)
			if err != nil {
				u.Err = err
				return u
			}
			if page == 1 && u.DeadLetters > 0 {
				return u
			}
			if len(list) == 0 {
				break
			}
			after = list[len(list)-1].ID
		}
	}
	return u
}

// Uncopied is how many dead letters are not copied.
type Uncopied struct {
	DeadLetters int   // at least, if Err is set
	Err         error // why they could not be counted, if so
}

func (u *Uncopied) Error() string {
	text := fmt.Sprintf("%d dead letters are not copied: check the target of dead_letters.copy_to", u.DeadLetters)
	if u.Err != nil {
		text = fmt.Sprintf("at least %s (the others could not be counted: %v)", text, u.Err)
	}
	return text
}

// Unwrap returns why they could not be counted.
func (u *Uncopied) Unwrap() error { return u.Err }

// Unreached lists the partitions whose checkpoints have not reached their ends.
type Unreached struct {
	Partitions []LaggingPartition
	Err        error // why the checkpoints could not be read, if so
}

// LaggingPartition is one such partition.
type LaggingPartition struct {
	Partition string
	Begun     bool // there is a checkpoint
	Position  driver.Position
	End       int64
}

// named is how many partitions an error message names.
const named = 8

func (u *Unreached) Error() string {
	var list []string
	for _, p := range u.Partitions[:min(len(u.Partitions), named)] {
		if p.Begun {
			list = append(list, fmt.Sprintf("partition %s at %s of %d", p.Partition, p.Position, p.End))
		} else {
			list = append(list, fmt.Sprintf("partition %s not started, of %d", p.Partition, p.End))
		}
	}
	if more := len(u.Partitions) - named; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	if u.Err != nil {
		list = append(list, fmt.Sprintf("checkpoints could not be read: %v", u.Err))
	}
	return strings.Join(list, ", ")
}

// Unwrap returns why the checkpoints could not be read.
func (u *Unreached) Unwrap() error { return u.Err }
