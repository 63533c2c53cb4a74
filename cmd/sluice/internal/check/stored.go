package check

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// checkKeys uses checkpoints whose names are similar.
func (s *databaseSystem) checkKeys(ctx context.Context) Finding {
	partition := s.partition()
	var leases []driver.Lease
	for _, name := range []string{"key", "Key", "kéy", "key ", "ｋey"} { // the last one has another width
		lease := s.owner(partition, "first", 1)
		lease.Group.Name = name
		leases = append(leases, lease)
	}
	for i, lease := range leases {
		if _, err := s.claim(ctx, lease); err != nil {
			return failed("claiming a checkpoint", err)
		}
		if err := s.commit(ctx, driver.Step{Lease: lease, From: driver.Unset, To: positionAt(int64(i))}, nil, nil); err != nil {
			return differed("the checkpoint of the group %q is that of another group: %s", lease.Group.Name, oneLine(err))
		}
	}
	for i, lease := range leases {
		switch c, err := s.claim(ctx, lease); {
		case err != nil:
			return failed("reading a checkpoint", err)
		case c.Position.Sequence != int64(i):
			return differed("the checkpoint of the group %q is at %v instead of %d: it is that of another group", lease.Group.Name, c.Position, i)
		}
	}
	return held("groups whose names differ in case, accents, width or trailing blanks have checkpoints of their own")
}

// checkLarge stores a dead letter of the largest event, of bytes that some clients escape.
func (s *databaseSystem) checkLarge(ctx context.Context, lease driver.Lease) Finding {
	const largest = 1 << 20
	if err := s.store(ctx, lease, 11, nil); err != nil {
		return failed("storing a dead letter", err)
	}
	body := bytes.Repeat([]byte("\x00'\\\n"), largest/4)
	if err := s.store(ctx, lease, 12, body); err != nil {
		return differed("a dead letter with a body of 1 MiB was not stored: %s", oneLine(err)).next("raise the server's limit, such as max_allowed_packet: a partition waits at such a dead letter")
	}
	list, err := s.deadLetters().List(ctx, lease.Group, driver.DeadLetterFilter{Partition: lease.Partition})
	if err != nil {
		return failed("listing dead letters", err)
	}
	i := slices.IndexFunc(list, func(d driver.DeadLetter) bool { return d.Event.Sequence == 12 })
	if i < 0 {
		return differed("a dead letter that was stored is not listed")
	}
	switch d, err := s.deadLetters().Get(ctx, lease.Group, list[i].ID); {
	case err != nil:
		return failed("reading a dead letter", err)
	case !bytes.Equal(d.Event.Body, body):
		return differed("a body of %d bytes came back changed, with %d bytes", len(body), len(d.Event.Body))
	}
	return held("a dead letter with a body of 1 MiB came back unchanged")
}

// checkBulk inserts more rows than are written one at a time.
func (s *databaseSystem) checkBulk(ctx context.Context, lease driver.Lease) Finding {
	const many = 300
	ids := func() (list []int64) {
		for range many {
			list = append(list, effect())
		}
		return list
	}
	good, bad := ids(), ids()
	if err := s.commit(ctx, driver.Step{Lease: lease, From: positionAt(10), To: positionAt(11)}, good, nil); err != nil {
		return failed("inserting many rows", err)
	}
	err := s.commit(ctx, driver.Step{Lease: lease, From: positionAt(11), To: positionAt(12)}, append(slices.Clone(bad), good[0]), nil)
	all, _, readErr := s.has(ctx, good...)
	_, none, badErr := s.has(ctx, bad...)
	switch {
	case readErr != nil || badErr != nil:
		return failed("reading the effects", cmp.Or(readErr, badErr))
	case !all:
		return differed("of %d rows that were committed some are missing", many)
	case err == nil || !none:
		return differed("of %d rows one was a duplicate, and others are in the database", many+1)
	}
	if refused := (*driver.HandlerError)(nil); !errors.As(err, &refused) {
		return differed("a duplicate among %d rows does not count as the handler's failure: %s", many+1, oneLine(err))
	}
	return held("%d rows were committed; with a duplicate among them none was, and the handler had failed", many)
}

// store commits a dead letter of the event before the position to.
func (s *databaseSystem) store(ctx context.Context, lease driver.Lease, to int64, body []byte) error {
	now := time.Now()
	return s.commit(ctx, driver.Step{Lease: lease, From: positionAt(to - 1), To: positionAt(to), DeadLetters: []driver.DeadLetter{{
		Group: lease.Group, Incarnation: incarnation, FailedAt: now, Error: "on purpose", Attempts: 1, Status: driver.StatusDead,
		Event: driver.Event{Partition: lease.Partition, Sequence: to, Enqueued: now, Body: body}, HasBody: true,
	}}}, nil, nil)
}
