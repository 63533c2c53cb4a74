package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// request makes a request, with the fate that the world decides.
func request[T any](ctx context.Context, p *process, op, partition string, do func() (T, error)) (T, error) {
	var none T
	switch p.w.edge(ctx, p, op, partition, nil) {
	case answeredLate:
		v, err := do()
		if p.w.sleep(ctx, p, p.w.delay(op+" "+partition)) != nil {
			return none, errNoAnswer
		}
		return v, err
	case lost, delayed:
		return none, errLost
	case unanswered:
		if _, err := do(); err != nil {
			return none, err
		}
		return none, errNoAnswer
	case abandoned:
		if err := ctx.Err(); err != nil {
			return none, err
		}
		return none, errLost
	}
	return do()
}

func requestError(ctx context.Context, p *process, op, partition string, do func() error) error {
	_, err := request(ctx, p, op, partition, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// source is the log, with the requests of a process.
type source struct{ *process }

func (s source) Describe(ctx context.Context) (sluice.Topic, error) {
	return request(ctx, s.process, "describe", "", func() (sluice.Topic, error) {
		topic, err := s.hub().Describe(ctx)
		if err == nil && !s.secondStage {
			topic.Partitions = topic.Partitions[:s.described()]
		}
		if s.replays {
			topic.Name = replayGroup
		}
		return topic, err
	})
}

func (s source) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	outOfDate := false
	b, err := request(ctx, s.process, "bounds", partition, func() (driver.Bounds, error) {
		if err := s.absent(partition); err != nil {
			return driver.Bounds{}, err
		}
		if outOfDate = s.outOfDate(partition); outOfDate {
			return driver.Bounds{Last: driver.Origin}, nil
		}
		return s.hub().Bounds(ctx, partition)
	})
	if err == nil {
		s.answered(partition, b, outOfDate)
	}
	return b, err
}

func (s source) Seek(ctx context.Context, partition string, start sluice.Start, epoch int64) (sluice.Position, error) {
	at, err := request(ctx, s.process, "seek", partition, func() (sluice.Position, error) {
		if err := s.absent(partition); err != nil {
			return driver.Unset, err
		}
		at, err := s.hub().Seek(ctx, partition, start, epoch)
		s.beginningMoves(partition, "beginning that moves after a seek")
		return at, err
	})
	if err == nil {
		s.choseStart(partition)
	}
	return at, err
}

func (s source) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	return request(ctx, s.process, "open", partition, func() (driver.Reader, error) {
		if err := s.absent(partition); err != nil {
			return nil, err
		}
		if err := s.lie(partition, after); err != nil {
			return nil, err
		}
		r, err := s.hub().Open(ctx, partition, after, epoch)
		if err != nil {
			return nil, err
		}
		s.openTurn(ctx, partition)
		s.opened(partition, after.Sequence)
		s.beginningMoves(partition, "beginning that moves after an opening")
		return &reader{process: s.process, partition: partition, inner: r, last: after.Sequence}, nil
	})
}

func (s source) hub() *sluicetest.Hub {
	switch {
	case s.secondStage:
		return s.w.nextHub
	case s.replays:
		return s.w.copyHub
	}
	return s.w.hub
}

type reader struct {
	*process
	partition string
	inner     driver.Reader
	last      int64 // the newest event that it has returned
	silent    bool  // it returns nothing more
}

func (r *reader) Read(ctx context.Context, max int) ([]*sluice.Event, error) {
	if r.fallsSilent() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	events, err := request(ctx, r.process, "fetch", r.partition, func() ([]*sluice.Event, error) {
		events, err := r.inner.Read(ctx, max)
		r.fetched(events)
		return events, err
	})
	if err == nil {
		r.last = events[len(events)-1].Sequence
		if slices.ContainsFunc(events, func(e *sluice.Event) bool { return !e.Control }) {
			r.hasRead(r.partition)
		}
	}
	return events, err
}

func (r *reader) Close(ctx context.Context) error { return r.inner.Close(ctx) }

// leaseStore is the current lease store. A fault replaces it by an empty one.
func (w *world) leaseStore() *sluicetest.Leases {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leases
}

// leases is the lease store, with the requests of a process.
type leases struct{ *process }

func (l leases) Acquire(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
	return request(ctx, l.process, "acquire", partition, func() (sluice.Lease, error) {
		lease, err := l.w.leaseStore().Acquire(ctx, group, partition, owner, ttl, above)
		if err == nil {
			l.w.acquired(l.process, lease)
			l.forget(partition)
			if l.replays {
				l.noteEnd(partition)
			}
			l.w.extended(lease, ttl)
		}
		return lease, err
	})
}

func (l leases) Renew(ctx context.Context, lease sluice.Lease, ttl time.Duration) error {
	return requestError(ctx, l.process, "renew", lease.Partition, func() error {
		err := l.w.leaseStore().Renew(ctx, lease, ttl)
		if err == nil {
			l.w.extended(lease, ttl)
		}
		return err
	})
}

func (l leases) RenewAll(ctx context.Context, list []sluice.Lease, ttl time.Duration) error {
	return requestError(ctx, l.process, "renew", "", func() error {
		var errs []error
		for _, lease := range list {
			err := l.w.leaseStore().Renew(ctx, lease, ttl)
			if err == nil {
				l.w.extended(lease, ttl)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

func (l leases) MarkBegan(ctx context.Context, lease sluice.Lease, incarnation string) error {
	return requestError(ctx, l.process, "mark", lease.Partition, func() error { return l.w.leaseStore().MarkBegan(ctx, lease, incarnation) })
}

func (l leases) Release(ctx context.Context, lease sluice.Lease) error {
	l.releases(lease)
	return requestError(ctx, l.process, "release", lease.Partition, func() error { return l.w.leaseStore().Release(ctx, lease) })
}

func (l leases) List(ctx context.Context, group sluice.Group) ([]driver.LeaseInfo, error) {
	return request(ctx, l.process, "list", "", func() ([]driver.LeaseInfo, error) { return l.w.leaseStore().List(ctx, group) })
}

// store is the database, with the requests of a process.
type store struct{ *process }

func (s store) Claim(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
	return request(ctx, s.process, "claim", lease.Partition, func() (sluice.Checkpoint, error) {
		p, err := s.w.storeOf(lease.Group).Claim(ctx, lease, incarnation)
		if err == nil {
			s.w.mu.Lock()
			defer s.w.mu.Unlock()
			s.past(lease.Partition, p.Position.Sequence)
			s.learns(lease.Partition, p)
			s.deliveredBy(lease)
			if _, ok := s.w.claimedAt[tenureOf(lease)]; !ok {
				s.w.claimedAt[tenureOf(lease)] = time.Now()
			}
			if lease.Epoch >= s.w.claimed[partitionName(lease)] {
				s.w.claimed[partitionName(lease)], s.w.claims[partitionName(lease)] = lease.Epoch, claim{s.process, lease}
			}
		}
		return p, err
	})
}

func (s store) Begin(ctx context.Context, lease sluice.Lease, from, to sluice.Position) error {
	first := s.mayMoveStart(lease.Partition)
	return s.w.send(ctx, s.process, "start", lease.Partition, func() error { return s.w.storeStart(s.process, lease, from, to, first) })
}

// storeStart stores the start of a partition, and records violations.
func (w *world) storeStart(p *process, lease sluice.Lease, from, to sluice.Position, first bool) error {
	w.mu.Lock()
	claimed := w.claimed[partitionName(lease)]
	w.mu.Unlock()
	err := w.storeOf(lease.Group).Begin(context.Background(), lease, from, to)
	if err != nil {
		return err
	}
	w.movedAlone(lease, from, to)
	if !first {
		w.passes(p, lease, from, to)
	}
	if lease.Epoch < claimed {
		w.violation("partition %s: a start of epoch %d was stored after epoch %d had claimed", lease.Partition, lease.Epoch, claimed)
	}
	return nil
}

// Commit makes the request that begins the transaction. The request that commits
// it is made in world.Commit.
func (s store) Commit(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	s.w.mu.Lock()
	s.committing[step.Lease.Partition] = ctx
	s.w.leaseOf[tenureOf(step.Lease)] = s.process // after a loss of the leases, two processes of one owner may have equal leases
	s.w.mu.Unlock()
	if s.w.cfg.Blind {
		return s.blind(ctx, step, fn)
	}
	return s.begin(ctx, step, fn)
}

// begin makes the request that begins a transaction, within the time that a driver has for
// it, and runs the rest of the transaction.
func (s store) begin(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	err := func() error {
		ctx, cancel := bounded(ctx)
		defer cancel()
		return requestError(ctx, s.process, "begin", step.Lease.Partition, func() error { return nil })
	}()
	if err != nil {
		return err
	}
	return s.w.storeOf(step.Lease.Group).Commit(ctx, step, fn)
}

// blind is a mutant: it takes a commit of unknown outcome for a failed one and
// repeats it without reading the checkpoint.
func (s store) blind(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	for {
		err := s.begin(ctx, step, fn)
		if !errors.Is(err, sluice.ErrUnknown) {
			return err
		}
	}
}

func (s store) RecordAttempt(ctx context.Context, lease sluice.Lease, at sluice.Position, trial driver.AttemptRecord) error {
	err := requestError(ctx, s.process, "record", lease.Partition, func() error {
		err := s.w.storeOf(lease.Group).RecordAttempt(ctx, lease, at, trial)
		if err == nil {
			s.w.attempted(lease, trial)
		}
		return err
	})
	if err != nil {
		s.w.notAttempted(lease)
	}
	return err
}

func (s store) Leave(ctx context.Context, lease sluice.Lease) error {
	s.w.mu.Lock()
	s.leaving[tenureOf(lease)] = true
	s.w.mu.Unlock()
	return requestError(ctx, s.process, "leave", lease.Partition, func() error {
		err := s.w.storeOf(lease.Group).Leave(ctx, lease)
		if err == nil {
			s.w.left(lease)
		}
		return err
	})
}

func (s store) Due(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
	return request(ctx, s.process, "due", partition, func() ([]sluice.DeadLetter, error) { return s.w.storeOf(group).Due(ctx, group, partition, limit) })
}

func (s store) DuePartitions(ctx context.Context, group sluice.Group, partitions []string) ([]string, error) {
	return request(ctx, s.process, "due", "", func() ([]string, error) { return s.w.storeOf(group).DuePartitions(ctx, group, partitions) })
}

func (s store) Parked(ctx context.Context, group sluice.Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error) {
	return deadLetters(s).Parked(ctx, group, partition, incarnation, after)
}

func (s store) SetAside(ctx context.Context, group sluice.Group, partition, incarnation string, lost []driver.ParkedEvent) error {
	return deadLetters(s).SetAside(ctx, group, partition, incarnation, lost)
}

func (s store) ReadDedup(ctx context.Context, group sluice.Group, partition string) ([]driver.DedupState, error) {
	return request(ctx, s.process, "seen", partition, func() ([]driver.DedupState, error) { return s.w.storeOf(group).ReadDedup(ctx, group, partition) })
}

func (s store) Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error) {
	return request(ctx, s.process, "read", "", func() ([]sluice.Checkpoint, error) { return s.w.storeOf(group).Read(ctx, group) })
}

func (s store) Reset(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position, how driver.How) (int64, error) {
	return request(ctx, s.process, "reset", partition, func() (int64, error) { return s.w.storeOf(group).Reset(ctx, group, partition, incarnation, to, how) })
}
