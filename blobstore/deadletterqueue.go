package blobstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/sluice-go/sluice/driver"
)

// maxParallel is how many requests about dead letters one call has in progress.
const maxParallel = 8

// forEach runs fn for 0 to n-1, several at the same time. After an error it starts no more, waits
// for those in progress, and returns the first error.
func forEach(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	stop, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var work sync.WaitGroup
	for range min(n, maxParallel) {
		work.Go(func() {
			for i := range next {
				if err := fn(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
feed:
	for i := range n {
		select {
		case next <- i:
		case <-stop.Done():
			break feed
		}
	}
	close(next)
	work.Wait()
	return context.Cause(stop)
}

// Park implements [driver.DeadLetterQueue]. The dead letters of one partition
// are stored atomically. Of several partitions, those of the first ones may be stored although it
// fails.
func (s *Store) Park(ctx context.Context, deadLetters []driver.DeadLetter) error {
	type place struct {
		group     driver.Group
		partition string
	}
	of := make(map[place][]*driver.DeadLetter)
	var places []place
	for i := range deadLetters {
		p := place{deadLetters[i].Group, deadLetters[i].Event.Partition}
		if of[p] == nil {
			places = append(places, p)
		}
		of[p] = append(of[p], &deadLetters[i])
	}
	for _, at := range places {
		p := parking{store: s, deadLetters: of[at], stored: make(map[identity]entry)}
		err := s.change(ctx, at.group, at.partition, p.try)
		if err == nil || !p.sent {
			s.dropBodies(ctx, p.index, p.unused())
		}
		if err != nil {
			return fmt.Errorf("store dead letters of partition %s: %w", at.partition, err)
		}
	}
	return nil
}

// parking is a Park of the dead letters of one partition in progress: first it stores the bodies of
// those that are new, then the index that names them.
type parking struct {
	store       *Store
	deadLetters []*driver.DeadLetter
	stored      map[identity]entry // whose bodies are stored
	index       *index             // as it was last read, and then changed
	sent        bool               // it may have been saved
}

func (p *parking) try(ctx context.Context, r *index) (bool, error) {
	p.index = r
	places := r.places()
	var fresh []*driver.DeadLetter
	for _, d := range p.deadLetters {
		id := identityOf(d)
		if _, known := places[id]; known {
			continue
		}
		if _, stored := p.stored[id]; !stored {
			fresh = append(fresh, d)
			p.stored[id] = newEntry(d)
		}
	}
	entries := make([]entry, len(fresh))
	err := forEach(ctx, len(fresh), func(ctx context.Context, i int) error {
		entries[i] = newEntry(fresh[i])
		return p.store.storeBody(ctx, r, fresh[i], &entries[i])
	})
	for i := range fresh {
		if err == nil || entries[i].Body != "" {
			p.stored[identityOf(fresh[i])] = entries[i]
		}
	}
	if err != nil {
		return false, err
	}
	for _, d := range p.deadLetters {
		id := identityOf(d)
		at, known := places[id]
		if !known {
			at = r.add(p.stored[id])
			places[id] = at
		}
		r.entries[at].setFailure(d)
	}
	p.sent = true
	return true, nil
}

// unused returns the bodies that were stored but are not in the index.
func (p *parking) unused() []string {
	var names []string
	for _, e := range p.stored {
		if e.Body != "" && (!p.sent || !p.index.has(e.Body)) {
			names = append(names, e.Body)
		}
	}
	return names
}

// Due implements [driver.DeadLetterQueue]. It takes one request if no redrive is due.
func (s *Store) Due(ctx context.Context, group driver.Group, partition string, limit int) ([]driver.DeadLetter, error) {
	list, err := s.due(ctx, group, partition, limit)
	if err != nil {
		return nil, fmt.Errorf("read dead letters to redrive of partition %s: %w", partition, err)
	}
	return list, nil
}

func (s *Store) due(ctx context.Context, group driver.Group, partition string, limit int) ([]driver.DeadLetter, error) {
	some, err := s.anyDue(ctx, group, partition)
	if err != nil || !some {
		return nil, err
	}
	r, err := s.open(ctx, group, partition)
	if err != nil {
		return nil, err
	}
	entries := slices.DeleteFunc(r.entries, func(e entry) bool { return e.Status != driver.StatusRetry || e.NextAttempt.After(r.now) })
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.ID, b.ID)) })
	list, err := s.withBodies(ctx, r, entries[:min(len(entries), max(limit, 0))])
	return slices.DeleteFunc(list, func(d driver.DeadLetter) bool { return d.Status != driver.StatusRetry }), err // settled meanwhile
}

// withBodies reads dead letters with their bodies, without those that are gone meanwhile.
func (s *Store) withBodies(ctx context.Context, r *index, entries []entry) ([]driver.DeadLetter, error) {
	list := make([]driver.DeadLetter, len(entries))
	err := forEach(ctx, len(list), func(ctx context.Context, i int) error {
		d, found, err := s.withBody(ctx, r, entries[i])
		if found {
			list[i] = d
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(d driver.DeadLetter) bool { return d.Status == "" }), nil
}

// anyDue reports whether an index has a redrive that is due.
func (s *Store) anyDue(ctx context.Context, group driver.Group, partition string) (bool, error) {
	f, now, err := s.summary(ctx, group, partition)
	if err != nil || f == nil {
		return false, err
	}
	some := f.number("retries") > 0 && now != nil && !f.time("next").After(*now)
	return some || f.err != nil, nil
}

// summary returns the metadata of an index, nil if there is no index, and the server's time.
func (s *Store) summary(ctx context.Context, group driver.Group, partition string) (*fields, *time.Time, error) {
	name, err := s.join(group, deadLettersFolder, escape(partition))
	if err != nil {
		return nil, nil, err
	}
	got, err := s.client.NewBlobClient(name).GetProperties(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, safeError(err)
	}
	return fieldsOf(got.Metadata), got.Date, nil
}

// withBody reads a dead letter with its body. If only the body is gone, HasBody is false; if the
// dead letter is gone, it is not found.
func (s *Store) withBody(ctx context.Context, r *index, e entry) (d driver.DeadLetter, found bool, err error) {
	for range maxTries {
		d = e.deadLetter(r.group, r.partition)
		if e.Body == "" {
			return d, true, nil
		}
		if err = s.readBody(ctx, r, &e, &d); !errors.Is(err, errChanged) {
			return d, true, err
		}
		if r, err = s.open(ctx, r.group, r.partition); err != nil {
			return d, false, err
		}
		at := r.findID(e.ID)
		if at < 0 {
			return d, false, nil
		}
		if r.entries[at].Body == e.Body {
			d.HasBody = false
			return d, true, nil
		}
		e = r.entries[at]
	}
	return d, false, fmt.Errorf("dead letter %d is changed constantly: make sure that nothing but Sluice writes to its blobs", e.ID)
}

// Settle implements [driver.DeadLetterQueue]. Redrives of one partition are settled
// atomically.
func (s *Store) Settle(ctx context.Context, group driver.Group, redriven []int64, returned []driver.DeadLetter) error {
	failed := make(map[int64]*driver.DeadLetter, len(returned))
	ids := slices.Clone(redriven)
	for i := range returned {
		failed[returned[i].ID] = &returned[i]
		ids = append(ids, returned[i].ID)
	}
	gone := make(map[int64]bool, len(redriven))
	for _, id := range redriven {
		gone[id] = true
	}
	among, err := s.partitionsOf(ctx, group, ids)
	if err != nil {
		return fmt.Errorf("settle redrives: %w", err)
	}
	for _, partition := range among {
		var bodies []string
		var last *index
		err := s.change(ctx, group, partition, func(_ context.Context, r *index) (changed bool, _ error) {
			last = r
			r.entries = slices.DeleteFunc(r.entries, func(e entry) bool {
				remove := e.Status == driver.StatusRetry && gone[e.ID]
				if remove && e.Body != "" {
					bodies = append(bodies, e.Body)
				}
				changed = changed || remove
				return remove
			})
			for i := range r.entries {
				e := &r.entries[i]
				if d := failed[e.ID]; d != nil && e.Status == driver.StatusRetry {
					e.setFailure(d)
					changed = true
				}
			}
			return changed, nil
		})
		if err != nil {
			return fmt.Errorf("settle redrives of partition %s: %w", partition, err)
		}
		s.dropBodies(ctx, last, slices.DeleteFunc(bodies, last.has))
	}
	return nil
}

// Parked implements [driver.DeadLetterQueue].
func (s *Store) Parked(ctx context.Context, group driver.Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error) {
	r, err := s.open(ctx, group, partition)
	if err != nil {
		return nil, fmt.Errorf("read dead letters of partition %s: %w", partition, err)
	}
	var parked []driver.ParkedEvent
	for i := range r.entries {
		if e := &r.entries[i]; e.Incarnation == clean(incarnation) && e.Sequence > after {
			parked = append(parked, e.parked())
		}
	}
	slices.SortFunc(parked, func(a, b driver.ParkedEvent) int { return cmp.Compare(a.Position.Sequence, b.Position.Sequence) })
	return parked, nil
}

// SetAside implements [driver.DeadLetterQueue]. The IDs stay. An ID may have been given again to
// another event, so the position counts too.
func (s *Store) SetAside(ctx context.Context, group driver.Group, partition, incarnation string, lost []driver.ParkedEvent) error {
	if len(lost) == 0 {
		return ctx.Err()
	}
	incarnation = clean(incarnation)
	var bodies []string
	var last *index
	err := s.change(ctx, group, partition, func(_ context.Context, r *index) (changed bool, _ error) {
		last, bodies = r, nil
		places := r.places()
		r.entries = slices.DeleteFunc(r.entries, func(e entry) bool {
			_, there := places[identity{e.Sequence, incarnation}]
			double := there && e.Incarnation != incarnation && slices.Contains(lost, e.parked())
			if double && e.Body != "" {
				bodies = append(bodies, e.Body)
			}
			changed = changed || double
			return double
		})
		for i := range r.entries {
			if e := &r.entries[i]; e.Incarnation != incarnation && slices.Contains(lost, e.parked()) {
				e.Incarnation, changed = incarnation, true
			}
		}
		return changed, nil
	})
	if err != nil {
		return fmt.Errorf("set aside %d dead letters of partition %s: %w", len(lost), partition, err)
	}
	s.dropBodies(ctx, last, slices.DeleteFunc(bodies, last.has))
	return nil
}

// Held implements [driver.DeadLetterQueue].
func (s *Store) Held(ctx context.Context, group driver.Group, partition string, except []int64) ([]driver.HeldKey, error) {
	r, err := s.open(ctx, group, partition)
	if err != nil {
		return nil, fmt.Errorf("read keys of dead letters of partition %s: %w", partition, err)
	}
	var keys []driver.HeldKey
	for _, e := range r.entries {
		if e.Status != driver.StatusDiscarded && e.Key != "" && !slices.Contains(except, e.ID) {
			keys = append(keys, driver.HeldKey{Key: e.Key, Incarnation: e.Incarnation, First: e.Sequence})
		}
	}
	slices.SortFunc(keys, func(a, b driver.HeldKey) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.First, b.First))
	})
	return slices.CompactFunc(keys, func(a, b driver.HeldKey) bool { return a.Key == b.Key && a.Incarnation == b.Incarnation }), nil
}
