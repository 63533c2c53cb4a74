package sluicetest

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

// bentCheckpoints is a checkpoint store whose methods can be replaced.
type bentCheckpoints struct {
	bentStore
	advance func(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error
}

func (b *bentCheckpoints) Advance(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
	if b.advance != nil {
		return b.advance(ctx, lease, incarnation, to, done)
	}
	return b.Store.Advance(ctx, lease, incarnation, to, done)
}

func checkpointHarness(s driver.CheckpointStore) storetest.CheckpointHarness {
	return storetest.CheckpointHarness{Store: s, Features: storetest.CheckpointFeatures{Ranges: 1000}}
}

func TestCheckpointsInMemory(t *testing.T) {
	memory := func(testing.TB) storetest.CheckpointHarness { return checkpointHarness(new(Store)) }
	t.Run("virtual", func(t *testing.T) {
		suite.Virtual(t, func(t *testing.T) { storetest.TestCheckpoints(t, memory) })
	})
	storetest.TestCheckpoints(t, memory)
}

// passes checks that a store passes the suite, in virtual time.
func passes(t *testing.T, new func(testing.TB) storetest.CheckpointHarness) {
	suite.Virtual(t, func(t *testing.T) { storetest.TestCheckpoints(t, new) })
}

// What a store may be: one that keeps a few ranges only, or none, and one that
// writes only under a lease that is held.
func TestPoorCheckpointsPass(t *testing.T) {
	for _, most := range []int{0, 2} {
		passes(t, func(testing.TB) storetest.CheckpointHarness {
			b := &bentCheckpoints{bentStore: bentStore{Store: new(Store)}}
			b.advance = func(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
				return b.Store.Advance(ctx, lease, incarnation, to, done[:min(most, len(done))])
			}
			h := checkpointHarness(b)
			h.Features.Ranges = most
			return h
		})
	}
}

func TestLeasedCheckpointsPass(t *testing.T) {
	passes(t, func(testing.TB) storetest.CheckpointHarness {
		leases := &bentLeases{Leases: new(Leases)}
		b := &bentCheckpoints{bentStore: bentStore{Store: new(Store)}}
		holds := func(l sluice.Lease) bool {
			held := leases.row(l.Group, l.Partition)
			return held.is(l)
		}
		b.advance = func(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
			if ctx.Err() == nil && !holds(lease) {
				return sluice.ErrFenced
			}
			return b.Store.Advance(ctx, lease, incarnation, to, done)
		}
		b.claim = func(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
			if known := b.row(lease); known.Epoch < lease.Epoch && ctx.Err() == nil && !holds(lease) {
				return sluice.Checkpoint{}, errors.New("nobody holds this lease")
			}
			return b.Store.Claim(ctx, lease, incarnation)
		}
		h := checkpointHarness(b)
		h.Lease = func(ctx context.Context, _ bool, group sluice.Group, partition, owner string, above int64) (sluice.Lease, error) {
			leases.edit(group, partition, func(l *lease) { l.expires = time.Time{} })
			return leases.Acquire(ctx, group, partition, owner, time.Minute, above)
		}
		return h
	})
}

func TestCheckpointSuiteCatches(t *testing.T) {
	var drivers []suite.Broken[storetest.CheckpointHarness]
	add := func(how string, bend func(b *bentCheckpoints, good *Store)) {
		drivers = append(drivers, suite.Broken[storetest.CheckpointHarness]{How: how, New: func(testing.TB) storetest.CheckpointHarness {
			b := &bentCheckpoints{bentStore: bentStore{Store: new(Store)}}
			bend(b, b.Store)
			return checkpointHarness(b)
		}})
	}
	drivers = append(drivers, suite.Broken[storetest.CheckpointHarness]{How: "ignores its deadline while the server is silent", New: func(testing.TB) storetest.CheckpointHarness {
		b, server := &bentCheckpoints{bentStore: bentStore{Store: new(Store)}}, new(silentServer)
		b.advance = func(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
			server.await()
			return b.Store.Advance(ctx, lease, incarnation, to, done)
		}
		h := checkpointHarness(b)
		h.Silence = server.begin
		return h
	}})
	advance := func(how string, bend func(b *bentCheckpoints, lease *sluice.Lease, to *sluice.Position, done *[]driver.SequenceRange)) {
		add(how, func(b *bentCheckpoints, good *Store) {
			b.advance = func(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
				done = slices.Clone(done)
				bend(b, &lease, &to, &done)
				return good.Advance(ctx, lease, incarnation, to, done)
			}
		})
	}
	add("has no fence", func(_ *bentCheckpoints, good *Store) { good.Unsafe.NoFence = true })
	add("moves a checkpoint of another incarnation", func(b *bentCheckpoints, good *Store) {
		b.advance = func(ctx context.Context, lease sluice.Lease, _ string, to sluice.Position, done []driver.SequenceRange) error {
			return good.Advance(ctx, lease, b.row(lease).Incarnation, to, done)
		}
	})
	add("goes backwards", func(_ *bentCheckpoints, good *Store) { good.Unsafe.Backwards = true })
	advance("looks at the epoch alone", func(b *bentCheckpoints, l *sluice.Lease, _ *sluice.Position, _ *[]driver.SequenceRange) {
		if row := b.row(*l); row.Epoch == l.Epoch {
			l.Owner = row.Owner
		}
	})
	advance("looks at the owner alone", func(b *bentCheckpoints, l *sluice.Lease, _ *sluice.Position, _ *[]driver.SequenceRange) {
		if row := b.row(*l); row.Owner == l.Owner {
			l.Epoch = row.Epoch
		}
	})
	advance("lets later epochs in", func(b *bentCheckpoints, l *sluice.Lease, _ *sluice.Position, _ *[]driver.SequenceRange) {
		if row := b.row(*l); row.Owner == l.Owner {
			l.Epoch = min(l.Epoch, row.Epoch)
		}
	})
	advance("keys checkpoints by partition", func(_ *bentCheckpoints, l *sluice.Lease, _ *sluice.Position, _ *[]driver.SequenceRange) {
		l.Group = testGroup
	})
	advance("loses offsets", func(_ *bentCheckpoints, _ *sluice.Lease, to *sluice.Position, _ *[]driver.SequenceRange) {
		to.Offset = ""
	})
	advance("stores sequence numbers in 32 bits", func(_ *bentCheckpoints, _ *sluice.Lease, to *sluice.Position, done *[]driver.SequenceRange) {
		to.Sequence = int64(int32(to.Sequence))
		*done = slices.DeleteFunc(*done, func(r driver.SequenceRange) bool { return r.First < to.Sequence+2 })
	})
	advance("keeps no ranges", func(_ *bentCheckpoints, _ *sluice.Lease, _ *sluice.Position, done *[]driver.SequenceRange) {
		*done = nil
	})
	advance("keeps fewer ranges than it says", func(_ *bentCheckpoints, _ *sluice.Lease, _ *sluice.Position, done *[]driver.SequenceRange) {
		*done = (*done)[:min(500, len(*done))]
	})
	advance("keeps the last ranges", func(_ *bentCheckpoints, _ *sluice.Lease, _ *sluice.Position, done *[]driver.SequenceRange) {
		*done = (*done)[max(0, len(*done)-1000):]
	})
	advance("joins ranges", func(_ *bentCheckpoints, _ *sluice.Lease, _ *sluice.Position, done *[]driver.SequenceRange) {
		if d := *done; len(d) > 0 {
			*done = []driver.SequenceRange{{First: d[0].First, Last: d[len(d)-1].Last}}
		}
	})
	advance("takes the end of a range for open", func(_ *bentCheckpoints, _ *sluice.Lease, _ *sluice.Position, done *[]driver.SequenceRange) {
		for i := range *done {
			if (*done)[i].Last < math.MaxInt64 {
				(*done)[i].Last++
			}
		}
	})
	advance("adds to what is done", func(b *bentCheckpoints, l *sluice.Lease, to *sluice.Position, done *[]driver.SequenceRange) {
		if row := b.row(*l); len(*done) == 0 && row.Position.Sequence == to.Sequence {
			*done = row.Done
		}
	})
	advance("keeps what is done when it moves", func(b *bentCheckpoints, l *sluice.Lease, to *sluice.Position, done *[]driver.SequenceRange) {
		if row := b.row(*l); len(*done) == 0 && to.Sequence > row.Position.Sequence {
			*done = slices.DeleteFunc(slices.Clone(row.Done), func(r driver.SequenceRange) bool { return r.First < to.Sequence+2 })
		}
	})
	after := func(how string, fn func(before, row *checkpoint)) {
		add(how, func(b *bentCheckpoints, good *Store) {
			b.advance = func(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
				before := b.row(lease)
				err := good.Advance(ctx, lease, incarnation, to, done)
				if err == nil {
					b.edit(lease, func(c *checkpoint) { fn(&before, c) })
				}
				return err
			}
		})
	}
	after("keeps what is done although none is", func(before, row *checkpoint) {
		if row.Done == nil {
			row.Done = before.Done
		}
	})
	after("takes every advance for progress", func(_, row *checkpoint) { row.Claims = 1 })
	after("counts claims on through progress", func(before, row *checkpoint) { row.Claims = before.Claims })
	add("moves, then keeps what is done", func(b *bentCheckpoints, good *Store) {
		b.advance = func(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
			if err := good.Advance(ctx, lease, incarnation, to, nil); err != nil {
				return err
			}
			<-time.After(time.Millisecond)
			b.edit(lease, func(c *checkpoint) { c.Done = done })
			return nil
		}
	})
	add("looks at the fence, then writes", func(b *bentCheckpoints, good *Store) {
		b.advance = func(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
			if row := b.row(lease); !row.held(lease) || row.Position.Sequence > to.Sequence {
				return sluice.ErrFenced
			}
			<-time.After(time.Millisecond)
			b.edit(lease, func(c *checkpoint) { c.move(to); c.Done = done })
			return nil
		}
	})
	add("refuses an advance that moves nothing", func(b *bentCheckpoints, good *Store) {
		b.advance = func(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
			if b.row(lease).Position.Sequence == to.Sequence {
				return sluice.ErrFenced
			}
			return good.Advance(ctx, lease, incarnation, to, done)
		}
	})
	add("creates what is not there", func(b *bentCheckpoints, good *Store) {
		b.advance = func(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
			good.locked(func() { good.checkpoint(lease.Group, lease.Partition, "") })
			return good.Advance(ctx, lease, incarnation, to, done)
		}
	})
	add("fails on an offset that it can't hold", func(b *bentCheckpoints, good *Store) {
		b.advance = func(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
			if strings.ContainsAny(to.Offset, "\x00\r\n") {
				return errors.New("invalid header")
			}
			return good.Advance(ctx, lease, incarnation, to, done)
		}
	})
	add("goes on although the context has ended", func(b *bentCheckpoints, good *Store) {
		b.advance = func(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
			return good.Advance(context.WithoutCancel(ctx), lease, incarnation, to, done)
		}
	})

	claim := func(how string, after func(b *bentCheckpoints, p *sluice.Checkpoint, lease sluice.Lease)) {
		add(how, func(b *bentCheckpoints, good *Store) {
			b.claim = func(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
				p, err := good.Claim(ctx, lease, incarnation)
				after(b, &p, lease)
				return p, err
			}
		})
	}
	claim("returns what is done only to its own", func(_ *bentCheckpoints, p *sluice.Checkpoint, lease sluice.Lease) {
		if p.Claims != 1 {
			p.Done = nil
		}
	})
	claim("forgets what is done at a claim", func(b *bentCheckpoints, _ *sluice.Checkpoint, lease sluice.Lease) {
		b.edit(lease, func(c *checkpoint) { c.Done = nil })
	})
	claim("takes a position to be the origin", func(_ *bentCheckpoints, p *sluice.Checkpoint, _ sluice.Lease) {
		if p.Position == driver.Unset {
			p.Position = driver.Origin
		}
	})
	add("keeps no attempt record", func(b *bentCheckpoints, _ *Store) {
		b.record = func(context.Context, sluice.Lease, sluice.Position, driver.AttemptRecord) error { return nil }
	})
	add("records an attempt for any owner", func(b *bentCheckpoints, good *Store) {
		b.record = func(ctx context.Context, lease sluice.Lease, at sluice.Position, attempt driver.AttemptRecord) error {
			row := b.row(lease)
			lease.Owner, lease.Epoch = row.Owner, row.Epoch
			return good.RecordAttempt(ctx, lease, at, attempt)
		}
	})
	add("forgets what is done at an attempt", func(b *bentCheckpoints, good *Store) {
		b.record = func(ctx context.Context, lease sluice.Lease, at sluice.Position, attempt driver.AttemptRecord) error {
			err := good.RecordAttempt(ctx, lease, at, attempt)
			b.edit(lease, func(c *checkpoint) { c.Done = nil })
			return err
		}
	})
	after("keeps the attempt record when it moves", func(before, row *checkpoint) { row.Attempt = before.Attempt })
	add("does not say who won", func(b *bentCheckpoints, good *Store) {
		b.claim = func(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
			p, err := good.Claim(ctx, lease, incarnation)
			if errors.Is(err, sluice.ErrFenced) {
				err = sluice.ErrFenced
			}
			return p, err
		}
	})
	claim("takes over the incarnation at a claim", func(b *bentCheckpoints, p *sluice.Checkpoint, lease sluice.Lease) {
		b.edit(lease, func(c *checkpoint) { c.Incarnation = "incarnation 2" })
		p.Incarnation = "incarnation 2"
	})
	claim("keeps the owner of before", func(b *bentCheckpoints, p *sluice.Checkpoint, lease sluice.Lease) {
		if lease.Owner == "a" && p.Claims > 1 {
			p.Owner = "b"
		}
	})
	add("reads in any order", func(b *bentCheckpoints, good *Store) {
		b.read = func(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error) {
			list, err := good.Read(ctx, group)
			slices.Reverse(list)
			return list, err
		}
	})
	add("reads without what is done", func(b *bentCheckpoints, good *Store) {
		b.read = func(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error) {
			list, err := good.Read(ctx, group)
			for i := range list {
				list[i].Done = nil
			}
			return list, err
		}
	})
	add("lets anybody leave", func(b *bentCheckpoints, good *Store) {
		b.leave = func(ctx context.Context, lease sluice.Lease) error {
			b.edit(lease, func(c *checkpoint) { c.Claims = 0 })
			return nil
		}
	})
	add("forgets what is done when one leaves", func(b *bentCheckpoints, good *Store) {
		b.leave = func(ctx context.Context, lease sluice.Lease) error {
			b.edit(lease, func(c *checkpoint) { c.Done = nil })
			return good.Leave(ctx, lease)
		}
	})
	add("keeps what is done at a reset", func(b *bentCheckpoints, good *Store) {
		b.reset = func(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position, how driver.How) (int64, error) {
			lease := sluice.Lease{Group: group, Partition: partition}
			done := b.row(lease).Done
			epoch, err := good.Reset(ctx, group, partition, incarnation, to, how)
			b.edit(lease, func(c *checkpoint) { c.Done = done })
			return epoch, err
		}
	})
	add("resets only what is there", func(b *bentCheckpoints, good *Store) {
		b.reset = func(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position, how driver.How) (int64, error) {
			if b.row(sluice.Lease{Group: group, Partition: partition}).Epoch == 0 {
				return 0, nil
			}
			return good.Reset(ctx, group, partition, incarnation, to, how)
		}
	})
	suite.Caught(t, storetest.TestCheckpoints, drivers)
}
