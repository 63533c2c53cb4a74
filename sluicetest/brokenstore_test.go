package sluicetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

func TestOneWriterPasses(t *testing.T) {
	oneWriter := func(testing.TB) storetest.TxHarness[*Tx] {
		b := &bentStore{Store: new(Store)}
		oneAtATime(b, b.Store)
		h := harness(b.Store)
		h.Store, h.Features.WaitsForOpen = b, true
		return h
	}
	suite.Virtual(t, func(t *testing.T) { storetest.TestTxStore(t, oneWriter) })
}

func TestTxStoreSuiteCatches(t *testing.T) {
	var drivers []suite.Broken[storetest.TxHarness[*Tx]]
	whole := func(how string, bend func(h *storetest.TxHarness[*Tx], b *bentStore, good *Store)) {
		drivers = append(drivers, suite.Broken[storetest.TxHarness[*Tx]]{How: how, New: func(testing.TB) storetest.TxHarness[*Tx] {
			b := &bentStore{Store: new(Store)}
			h := harness(b.Store)
			h.Store = b
			bend(&h, b, b.Store)
			return h
		}})
	}
	add := func(how string, bend func(b *bentStore, good *Store)) {
		whole(how, func(_ *storetest.TxHarness[*Tx], b *bentStore, good *Store) { bend(b, good) })
	}

	for how, hook := range map[string]func(h *storetest.TxHarness[*Tx], server *silentServer){
		"ignores its deadline while the server is silent":     func(h *storetest.TxHarness[*Tx], server *silentServer) { h.Silence = server.begin },
		"ignores its deadline while the checkpoint is locked": func(h *storetest.TxHarness[*Tx], server *silentServer) { h.Lock = server.begin },
	} {
		whole(how, func(h *storetest.TxHarness[*Tx], b *bentStore, good *Store) {
			server := new(silentServer)
			hook(h, server)
			b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
				server.await()
				return good.Commit(ctx, step, fn)
			}
		})
	}
	whole("blames the handler for a server that accepts no writes", func(h *storetest.TxHarness[*Tx], b *bentStore, good *Store) {
		server := new(silentServer)
		h.ReadOnly = server.begin
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			if server.isSilent() {
				return &driver.HandlerError{Err: errors.New("cannot execute UPDATE in a read-only transaction")}
			}
			return good.Commit(ctx, step, fn)
		}
	})

	add("does not look at epoch and owner", func(b *bentStore, good *Store) { good.Unsafe.NoFence = true })
	add("does not look at the position", func(b *bentStore, good *Store) { good.Unsafe.NoPosition = true })
	add("commits effects and checkpoint apart", func(b *bentStore, good *Store) { good.Unsafe.SplitCommit = true })
	whole("waits for open transactions without saying so", func(h *storetest.TxHarness[*Tx], b *bentStore, good *Store) { oneAtATime(b, good) })
	whole("says that it waits for open transactions and does not", func(h *storetest.TxHarness[*Tx], b *bentStore, good *Store) { h.Features.WaitsForOpen = true })
	ended := func(how string, change func(b *bentStore, step driver.Step, err error) error) {
		add(how, func(b *bentStore, good *Store) {
			b.commit = func(ctx context.Context, step driver.Step, fn handler) (err error) {
				past := false
				defer func() {
					if past {
						err = change(b, step, err)
					}
				}()
				return good.Commit(ctx, step, func(ctx context.Context, tx *Tx) error {
					defer func() { past = tx.endedPast() }()
					return fn(ctx, tx)
				})
			}
		})
	}
	ended("has moved the checkpoint before a handler ends the transaction", func(b *bentStore, step driver.Step, err error) error {
		b.edit(step.Lease, func(c *checkpoint) { c.move(step.To) })
		return err
	})
	ended("blames the event for a transaction that the handler has ended", func(_ *bentStore, _ driver.Step, err error) error {
		return &driver.HandlerError{Err: err}
	})
	ended("does not know that the handler has ended the transaction", func(*bentStore, driver.Step, error) error { return driver.ErrUnknown })
	ended("commits whatever transaction there is", func(*bentStore, driver.Step, error) error { return nil })
	answers := func(how string, unknown error) {
		add(how, func(b *bentStore, good *Store) {
			b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
				err := good.Commit(ctx, step, fn)
				if errors.Is(err, driver.ErrUnknown) {
					return unknown
				}
				return err
			}
		})
	}
	answers("takes a commit without an answer for done", nil)
	answers("takes a commit without an answer for an outage", errors.New("connection reset"))
	answers("blames the handler for a commit without an answer", &driver.HandlerError{Err: driver.ErrUnknown})
	add("commits a dry run", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			step.DryRun = false
			return good.Commit(ctx, step, fn)
		}
	})
	whole("blames the event for a missing table", func(h *storetest.TxHarness[*Tx], b *bentStore, good *Store) {
		h.Missing = func(context.Context, *Tx) error { return errors.New("no such table; events wait") }
	})
	whole("blames the event for a time limit", func(h *storetest.TxHarness[*Tx], b *bentStore, good *Store) {
		h.TakeTooLong = func(context.Context, *Tx) error { return driver.ErrTimeLimit }
	})
	add("ends no open transaction when it claims", func(b *bentStore, good *Store) {
		good.Unsafe = UnsafeStore{LateCommit: true, NoFence: true}
		b.claim = func(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
			if c := b.row(lease); c.Epoch > lease.Epoch || c.Epoch == lease.Epoch && c.Owner != lease.Owner && c.Epoch > 0 {
				return sluice.Checkpoint{}, c.fenced()
			}
			return good.Claim(ctx, lease, incarnation)
		}
	})

	claim := func(how string, after func(p *sluice.Checkpoint, row *checkpoint, again bool)) {
		add(how, func(b *bentStore, good *Store) {
			b.claim = func(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
				c := b.row(lease)
				again := c.Epoch == lease.Epoch && c.Owner == lease.Owner
				p, err := good.Claim(ctx, lease, incarnation)
				if err == nil {
					b.edit(lease, func(c *checkpoint) { after(&p, c, again) })
				}
				return p, err
			}
		})
	}
	claim("does not count claims", func(p *sluice.Checkpoint, row *checkpoint, _ bool) { p.Claims, row.Claims = 1, 1 })
	claim("counts repeated claims", func(p *sluice.Checkpoint, row *checkpoint, again bool) {
		if again {
			row.Claims++
			p.Claims++
		}
	})
	claim("takes a position to be the origin", func(p *sluice.Checkpoint, _ *checkpoint, _ bool) {
		if p.Position == driver.Unset {
			p.Position = driver.Origin
		}
	})
	claim("knows of no dead letters after the position", func(p *sluice.Checkpoint, _ *checkpoint, _ bool) { p.DeadLettersBelow = 0 })
	claim("counts the last dead letter short", func(p *sluice.Checkpoint, _ *checkpoint, _ bool) { p.DeadLettersBelow = max(0, p.DeadLettersBelow-1) })
	claim("clears the trial at a claim", func(p *sluice.Checkpoint, row *checkpoint, _ bool) {
		p.Attempt, row.Attempt = driver.AttemptRecord{}, driver.AttemptRecord{}
	})
	add("selects a checkpoint and then updates it", func(b *bentStore, good *Store) {
		b.claim = func(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
			before := b.row(lease)
			<-time.After(time.Millisecond)
			p, err := good.Claim(ctx, lease, incarnation)
			if before.Epoch > 0 {
				p.Position = before.Position
			}
			return p, err
		}
	})
	add("takes over the incarnation at a claim", func(b *bentStore, good *Store) {
		b.claim = func(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
			p, err := good.Claim(ctx, lease, incarnation)
			p.Incarnation = incarnation
			return p, err
		}
	})
	add("does not say who won", func(b *bentStore, good *Store) {
		b.claim = func(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
			p, err := good.Claim(ctx, lease, incarnation)
			if errors.Is(err, sluice.ErrFenced) {
				err = sluice.ErrFenced
			}
			return p, err
		}
	})
	add("lets an owner claim in a lower epoch", func(b *bentStore, good *Store) {
		b.claim = func(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
			b.edit(lease, func(c *checkpoint) {
				if c.Owner == lease.Owner && c.Epoch > lease.Epoch {
					c.Epoch = lease.Epoch
				}
			})
			return good.Claim(ctx, lease, incarnation)
		}
	})
	add("keys checkpoints by partition", func(b *bentStore, good *Store) {
		b.claim = func(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
			group := lease.Group
			lease.Group = testGroup
			p, err := good.Claim(ctx, lease, incarnation)
			p.Group = group
			return p, err
		}
	})

	add("calls the handler before it looks", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			tx := &Tx{store: good}
			failure := fn(ctx, tx)
			err := good.Commit(ctx, step, func(context.Context, *Tx) error { return failure })
			if err == nil {
				good.mu.Lock()
				defer good.mu.Unlock()
				return good.insert(tx.writes)
			}
			return err
		}
	})
	add("does not wrap the handler's error", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			err := good.Commit(ctx, step, fn)
			if h, found := errors.AsType[*driver.HandlerError](err); found {
				return h.Err
			}
			return err
		}
	})
	add("loses the handler's error", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			err := good.Commit(ctx, step, fn)
			if blames(err) {
				return &driver.HandlerError{Err: errors.New(err.Error())}
			}
			return err
		}
	})
	add("blames the handler for whatever goes wrong", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			err := good.Commit(ctx, step, fn)
			if err != nil && !errors.Is(err, sluice.ErrFenced) {
				return &driver.HandlerError{Err: err}
			}
			return err
		}
	})
	add("commits although the context has ended", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			return good.Commit(context.WithoutCancel(ctx), step, func(_ context.Context, tx *Tx) error { return fn(ctx, tx) })
		}
	})
	add("commits what the handler wrote before it failed", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			var wrote []write
			err := good.Commit(ctx, step, func(ctx context.Context, tx *Tx) error {
				defer func() { wrote = tx.writes }()
				return fn(ctx, tx)
			})
			if blames(err) {
				good.mu.Lock()
				defer good.mu.Unlock()
				_ = good.insert(wrote)
			}
			return err
		}
	})
	add("reports as committed what the database has rolled back", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			ended := errors.New("rolled back")
			var own error
			err := good.Commit(ctx, step, func(ctx context.Context, tx *Tx) error {
				if own = fn(ctx, tx); own == nil && len(tx.writes) > 1 && tx.writes[1].unique {
					return ended
				}
				return own
			})
			if errors.Is(err, ended) {
				return nil
			}
			return err
		}
	})
	add("compares offsets", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			if c := b.row(step.Lease); c.Position.Offset != step.From.Offset {
				return sluice.ErrFenced
			}
			return good.Commit(ctx, step, fn)
		}
	})
	add("loses offsets", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			step.To.Offset = ""
			return good.Commit(ctx, step, fn)
		}
	})
	add("stores sequence numbers in 32 bits", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			step.To.Sequence = int64(int32(step.To.Sequence))
			return good.Commit(ctx, step, fn)
		}
	})
	add("takes every step for progress", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			err := good.Commit(ctx, step, fn)
			if err == nil {
				b.edit(step.Lease, func(c *checkpoint) { c.Claims, c.Attempt = 1, driver.AttemptRecord{} })
			}
			return err
		}
	})
	add("keeps the trial after progress", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			attempt := b.row(step.Lease).Attempt
			err := good.Commit(ctx, step, fn)
			b.edit(step.Lease, func(c *checkpoint) { c.Attempt = attempt })
			return err
		}
	})
	add("keeps what was done behind the position after progress", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			done := b.row(step.Lease).Done
			err := good.Commit(ctx, step, fn)
			b.edit(step.Lease, func(c *checkpoint) { c.Done = done })
			return err
		}
	})
	add("moves nothing when it need not", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			if step.From == step.To && len(step.DeadLetters)+len(step.Redriven)+len(step.FailedRedrives) == 0 {
				return fn(ctx, &Tx{store: good})
			}
			return good.Commit(ctx, step, fn)
		}
	})
	add("stores dead letters in a transaction of their own", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			good.mu.Lock()
			for i := range step.DeadLetters {
				good.put(&step.DeadLetters[i])
			}
			good.mu.Unlock()
			step.DeadLetters = nil
			return good.Commit(ctx, step, fn)
		}
	})
	add("stores no more than 500 dead letters", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			step.DeadLetters = step.DeadLetters[:min(500, len(step.DeadLetters))]
			return good.Commit(ctx, step, fn)
		}
	})
	add("stores a dead letter again as another", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			err := good.Commit(ctx, step, fn)
			good.locked(func() {
				for i := range step.DeadLetters {
					for _, l := range good.deadLetters {
						if err == nil && l.Event.Sequence == step.DeadLetters[i].Event.Sequence {
							good.lastID++
							l.ID = good.lastID
						}
					}
				}
				slices.SortFunc(good.deadLetters, func(a, b *sluice.DeadLetter) int { return int(a.ID - b.ID) })
			})
			return err
		}
	})
	add("keeps a dead letter as it was first", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			good.locked(func() {
				for i := range step.DeadLetters {
					for _, l := range good.deadLetters {
						if l.Event.Sequence == step.DeadLetters[i].Event.Sequence {
							step.DeadLetters[i] = *l
						}
					}
				}
			})
			return good.Commit(ctx, step, fn)
		}
	})
	add("takes two incarnations for one", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			for i := range step.DeadLetters {
				step.DeadLetters[i].Incarnation = "incarnation 1"
			}
			return good.Commit(ctx, step, fn)
		}
	})
	add("removes redriven dead letters without looking", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			redriven := step.Redriven
			step.Redriven = nil
			err := good.Commit(ctx, step, fn)
			good.locked(func() {
				good.deadLetters = slices.DeleteFunc(good.deadLetters, func(l *sluice.DeadLetter) bool { return err == nil && slices.Contains(redriven, l.ID) })
			})
			return err
		}
	})
	brokenAttempts(add)
	brokenSettling(add)
	add("keeps redriven dead letters", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			var kept []*sluice.DeadLetter
			good.locked(func() { kept = slices.Clone(good.deadLetters) })
			err := good.Commit(ctx, step, fn)
			if len(step.Redriven) > 0 && err == nil {
				good.locked(func() { good.deadLetters = kept })
			}
			return err
		}
	})
	add("returns dead letters by identity, also those that are gone", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			step.DeadLetters, step.FailedRedrives = append(step.DeadLetters, step.FailedRedrives...), nil
			return good.Commit(ctx, step, fn)
		}
	})
	add("drops the body of what is returned", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			err := good.Commit(ctx, step, fn)
			good.locked(func() {
				for _, l := range step.FailedRedrives {
					if stored := good.deadLetter(testGroup, l.ID); stored != nil && err == nil {
						stored.Event.Body = l.Event.Body
					}
				}
			})
			return err
		}
	})
	whole("takes writes after the commit", func(h *storetest.TxHarness[*Tx], b *bentStore, good *Store) {
		h.Put = func(ctx context.Context, tx *Tx, key string) error {
			if tx.Insert("effects", key) != nil {
				good.locked(func() { good.tables["effects"].rows = append(good.tables["effects"].rows, key) })
			}
			return nil
		}
	})
	add("commits one partition at a time, or says it is fenced", func(b *bentStore, good *Store) {
		busy := make(chan struct{}, 1)
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			select {
			case busy <- struct{}{}:
				defer func() { <-busy }()
				<-time.After(time.Millisecond)
				return good.Commit(ctx, step, fn)
			default:
				return sluice.ErrFenced
			}
		}
	})

	add("records a trial for anybody", func(b *bentStore, good *Store) {
		b.record = func(ctx context.Context, lease sluice.Lease, at sluice.Position, attempt driver.AttemptRecord) error {
			b.edit(lease, func(c *checkpoint) { c.Attempt = attempt })
			return nil
		}
	})
	add("never clears a trial by hand", func(b *bentStore, good *Store) {
		b.record = func(ctx context.Context, lease sluice.Lease, at sluice.Position, attempt driver.AttemptRecord) error {
			if attempt == (driver.AttemptRecord{}) {
				return nil
			}
			return good.RecordAttempt(ctx, lease, at, attempt)
		}
	})
	add("lets anybody leave", func(b *bentStore, good *Store) {
		b.leave = func(ctx context.Context, lease sluice.Lease) error {
			b.edit(lease, func(c *checkpoint) { c.Claims = 0 })
			return nil
		}
	})
	add("reports one who leaves too late", func(b *bentStore, good *Store) {
		b.leave = func(ctx context.Context, lease sluice.Lease) error {
			if c := b.row(lease); c.Epoch != lease.Epoch || c.Owner != lease.Owner {
				return sluice.ErrFenced
			}
			return good.Leave(ctx, lease)
		}
	})
	add("reads in any order", func(b *bentStore, good *Store) {
		b.read = func(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error) {
			list, err := good.Read(ctx, group)
			slices.Reverse(list)
			return list, err
		}
	})
	add("claims when it reads", func(b *bentStore, good *Store) {
		b.read = func(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error) {
			list, err := good.Read(ctx, group)
			good.locked(func() {
				for _, c := range good.checkpoints {
					c.Claims++
				}
			})
			return list, err
		}
	})
	reset := func(how string, after func(before, row *checkpoint)) {
		add(how, func(b *bentStore, good *Store) {
			b.reset = func(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position, how driver.How) (int64, error) {
				lease := sluice.Lease{Group: group, Partition: partition}
				before := b.row(lease)
				_, err := good.Reset(ctx, group, partition, incarnation, to, how)
				b.edit(lease, func(c *checkpoint) { after(&before, c) })
				return b.row(lease).Epoch, err
			}
		})
	}
	reset("keeps the epoch at a reset", func(before, row *checkpoint) { row.Epoch, row.Owner = before.Epoch, before.Owner })
	reset("keeps the trial at a reset", func(before, row *checkpoint) { row.Attempt = before.Attempt })
	reset("keeps the claims at a reset", func(before, row *checkpoint) { row.Claims = before.Claims })
	reset("keeps the beginning at a reset", func(before, row *checkpoint) { row.Began = before.Began })
	reset("keeps the incarnation at a reset", func(before, row *checkpoint) { row.Incarnation = before.Incarnation })
	add("forgets the beginning at a commit", func(b *bentStore, good *Store) {
		b.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			err := good.Commit(ctx, step, fn)
			b.edit(step.Lease, func(c *checkpoint) { c.Began = driver.Beginning{} })
			return err
		}
	})
	add("stores a start without the beginning", func(b *bentStore, good *Store) {
		b.start = func(ctx context.Context, lease sluice.Lease, from, to sluice.Position) error {
			err := good.Begin(ctx, lease, from, to)
			b.edit(lease, func(c *checkpoint) { c.Began = driver.Beginning{} })
			return err
		}
	})
	add("stores a start wherever the checkpoint is", func(b *bentStore, good *Store) {
		b.start = func(ctx context.Context, lease sluice.Lease, _, to sluice.Position) error {
			return good.Begin(ctx, lease, b.row(lease).Position, to)
		}
	})
	add("resets only what is there", func(b *bentStore, good *Store) {
		b.reset = func(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position, how driver.How) (int64, error) {
			if b.row(sluice.Lease{Group: group, Partition: partition}).Epoch == 0 {
				return 0, nil
			}
			return good.Reset(ctx, group, partition, incarnation, to, how)
		}
	})
	due := func(how string, bend func(list []sluice.DeadLetter, limit int) []sluice.DeadLetter) {
		add(how, func(b *bentStore, good *Store) {
			b.due = func(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
				list, err := good.Due(ctx, group, partition, 100)
				return bend(list, limit), err
			}
		})
	}
	due("returns more than asked for", func(list []sluice.DeadLetter, _ int) []sluice.DeadLetter { return list })
	due("returns the latest first", func(list []sluice.DeadLetter, limit int) []sluice.DeadLetter {
		slices.Reverse(list)
		return list[:min(limit, len(list))]
	})
	due("returns what is due without bodies", func(list []sluice.DeadLetter, limit int) []sluice.DeadLetter {
		for i := range list {
			list[i].Event.Body = nil
		}
		return list[:min(limit, len(list))]
	})
	add("returns what is not due yet", func(b *bentStore, good *Store) {
		b.due = func(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
			list, err := good.List(ctx, group, sluice.DeadLetterFilter{Partition: partition, Status: []sluice.DeadLetterStatus{sluice.StatusRetry}, Limit: limit})
			for i, l := range list {
				list[i], _ = good.Get(ctx, group, l.ID)
			}
			slices.SortFunc(list, func(a, b sluice.DeadLetter) int { return int(a.Event.Sequence - b.Event.Sequence) })
			return list, err
		}
	})
	suite.Caught(t, storetest.TestTxStore, append(drivers, brokenDedup()...))
}
