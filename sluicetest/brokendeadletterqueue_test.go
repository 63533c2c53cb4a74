package sluicetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

// bentQueue is a store of dead letters for deliveries without transactions
// whose methods can be replaced.
type bentQueue struct {
	*Store
	park   func(ctx context.Context, deadLetters []sluice.DeadLetter) error
	due    func(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error)
	settle func(ctx context.Context, group sluice.Group, applied []int64, returned []sluice.DeadLetter) error
	aside  func(ctx context.Context, group sluice.Group, partition, incarnation string, lost []driver.ParkedEvent) error
	parked func(ctx context.Context, group sluice.Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error)
	held   func(ctx context.Context, group sluice.Group, partition string, except []int64) ([]driver.HeldKey, error)
}

func (b *bentQueue) Park(ctx context.Context, deadLetters []sluice.DeadLetter) error {
	if b.park != nil {
		return b.park(ctx, deadLetters)
	}
	return b.Store.Park(ctx, deadLetters)
}

func (b *bentQueue) Due(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
	if b.due != nil {
		return b.due(ctx, group, partition, limit)
	}
	return b.Store.Due(ctx, group, partition, limit)
}

func (b *bentQueue) Settle(ctx context.Context, group sluice.Group, applied []int64, returned []sluice.DeadLetter) error {
	if b.settle != nil {
		return b.settle(ctx, group, applied, returned)
	}
	return b.Store.Settle(ctx, group, applied, returned)
}

func (b *bentQueue) Parked(ctx context.Context, group sluice.Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error) {
	if b.parked != nil {
		return b.parked(ctx, group, partition, incarnation, after)
	}
	return b.Store.Parked(ctx, group, partition, incarnation, after)
}

func (b *bentQueue) SetAside(ctx context.Context, group sluice.Group, partition, incarnation string, lost []driver.ParkedEvent) error {
	if b.aside != nil {
		return b.aside(ctx, group, partition, incarnation, lost)
	}
	return b.Store.SetAside(ctx, group, partition, incarnation, lost)
}

func (b *bentQueue) Held(ctx context.Context, group sluice.Group, partition string, except []int64) ([]driver.HeldKey, error) {
	if b.held != nil {
		return b.held(ctx, group, partition, except)
	}
	return b.Store.Held(ctx, group, partition, except)
}

func TestLettersInMemory(t *testing.T) {
	memory := func(testing.TB) storetest.DeadLetterQueueHarness {
		s := new(Store)
		return storetest.DeadLetterQueueHarness{Store: s, DeadLetters: s}
	}
	t.Run("virtual", func(t *testing.T) {
		suite.Virtual(t, func(t *testing.T) { storetest.TestDeadLetterQueue(t, memory) })
	})
	storetest.TestDeadLetterQueue(t, memory)
}

func TestLetterSuiteCatches(t *testing.T) {
	var drivers []suite.Broken[storetest.DeadLetterQueueHarness]
	add := func(how string, bend func(b *bentQueue, good *Store)) {
		drivers = append(drivers, suite.Broken[storetest.DeadLetterQueueHarness]{How: how, New: func(testing.TB) storetest.DeadLetterQueueHarness {
			b := &bentQueue{Store: new(Store)}
			bend(b, b.Store)
			return storetest.DeadLetterQueueHarness{Store: b, DeadLetters: b.Store}
		}})
	}
	drivers = append(drivers, suite.Broken[storetest.DeadLetterQueueHarness]{How: "ignores its deadline while the server is silent", New: func(testing.TB) storetest.DeadLetterQueueHarness {
		b, server := &bentQueue{Store: new(Store)}, new(silentServer)
		b.park = func(ctx context.Context, deadLetters []sluice.DeadLetter) error {
			server.await()
			return b.Store.Park(ctx, deadLetters)
		}
		return storetest.DeadLetterQueueHarness{Store: b, DeadLetters: b.Store, Silence: server.begin}
	}})
	add("loses letters", func(_ *bentQueue, good *Store) { good.Unsafe.LostDeadLetters = true })

	// park bends each letter on its way in; false drops it.
	park := func(how string, bend func(good *Store, l *sluice.DeadLetter) bool) {
		add(how, func(b *bentQueue, good *Store) {
			b.park = func(ctx context.Context, deadLetters []sluice.DeadLetter) error {
				var bent []sluice.DeadLetter
				for _, l := range deadLetters {
					if bend(good, &l) {
						bent = append(bent, l)
					}
				}
				return good.Park(ctx, bent)
			}
		})
	}
	// known is the status of the letter that is there, empty if none is.
	known := func(good *Store, l *sluice.DeadLetter) (status sluice.DeadLetterStatus) {
		good.locked(func() {
			for _, o := range good.deadLetters {
				if o.Group == l.Group && o.Incarnation == l.Incarnation && o.Event.Partition == l.Event.Partition && o.Event.Sequence == l.Event.Sequence {
					status = o.Status
				}
			}
		})
		return status
	}
	park("keeps a letter as it was first", func(good *Store, l *sluice.DeadLetter) bool { return known(good, l) == "" })
	park("keeps a letter on retry that is parked again", func(good *Store, l *sluice.DeadLetter) bool {
		return known(good, l) != sluice.StatusRetry
	})
	park("stores a letter again as another", func(good *Store, l *sluice.DeadLetter) bool {
		if known(good, l) != "" {
			l.Incarnation += " "
		}
		return true
	})
	park("takes two incarnations for one", func(_ *Store, l *sluice.DeadLetter) bool {
		l.Incarnation = "incarnation 1"
		return true
	})
	park("takes two groups for one", func(_ *Store, l *sluice.DeadLetter) bool { l.Group = testGroup; return true })
	park("cuts bodies at a MiB", func(_ *Store, l *sluice.DeadLetter) bool {
		l.Event.Body = l.Event.Body[:min(1<<20, len(l.Event.Body))]
		return true
	})
	park("stores bodies only if there is something in them", func(_ *Store, l *sluice.DeadLetter) bool {
		l.HasBody = l.HasBody && len(l.Event.Body) > 0
		return true
	})
	park("loses headers", func(_ *Store, l *sluice.DeadLetter) bool { l.Event.Headers = nil; return true })
	park("takes null for empty", func(_ *Store, l *sluice.DeadLetter) bool {
		l.Event.Body = append([]byte{}, l.Event.Body...)
		return true
	})
	park("loses properties", func(_ *Store, l *sluice.DeadLetter) bool { l.Event.Properties = nil; return true })
	park("cuts bodies at a NUL", func(_ *Store, l *sluice.DeadLetter) bool {
		l.Event.Body, _, _ = bytes.Cut(l.Event.Body, []byte{0})
		return true
	})
	park("cuts text at what it can't hold", func(_ *Store, l *sluice.DeadLetter) bool {
		l.Event.Key, _, _ = strings.Cut(l.Event.Key, "\x00")
		return true
	})
	add("stores no more than 500 letters", func(b *bentQueue, good *Store) {
		b.park = func(ctx context.Context, deadLetters []sluice.DeadLetter) error {
			return good.Park(ctx, deadLetters[:min(500, len(deadLetters))])
		}
	})
	add("refuses to park none", func(b *bentQueue, good *Store) {
		b.park = func(ctx context.Context, deadLetters []sluice.DeadLetter) error {
			if len(deadLetters) == 0 {
				return errors.New("syntax error")
			}
			return good.Park(ctx, deadLetters)
		}
	})
	add("refuses a letter that comes twice", func(b *bentQueue, good *Store) {
		b.park = func(ctx context.Context, deadLetters []sluice.DeadLetter) error {
			seen := make(map[int64]bool)
			for _, l := range deadLetters {
				if l.Group == testGroup && l.Event.Partition == "0" && l.Incarnation == "incarnation 1" && seen[l.Event.Sequence] {
					return errors.New("cannot affect row a second time")
				}
				seen[l.Event.Sequence] = true
			}
			return good.Park(ctx, deadLetters)
		}
	})
	add("takes all letters of a call for the first one's group", func(b *bentQueue, good *Store) {
		b.park = func(ctx context.Context, deadLetters []sluice.DeadLetter) error {
			deadLetters = slices.Clone(deadLetters)
			for i := range deadLetters {
				deadLetters[i].Group = deadLetters[0].Group
			}
			return good.Park(ctx, deadLetters)
		}
	})
	add("parks letter by letter", func(b *bentQueue, good *Store) {
		b.park = func(ctx context.Context, deadLetters []sluice.DeadLetter) error {
			for i := range deadLetters {
				if err := good.Park(ctx, deadLetters[i:i+1]); err != nil {
					return err
				}
				if i%100 == 0 {
					<-time.After(time.Millisecond)
				}
			}
			return ctx.Err()
		}
	})
	add("looks what is there, then stores the rest", func(b *bentQueue, good *Store) {
		b.park = func(ctx context.Context, deadLetters []sluice.DeadLetter) error {
			var fresh []*sluice.DeadLetter
			var old []sluice.DeadLetter
			for i := range deadLetters {
				if known(good, &deadLetters[i]) == "" {
					fresh = append(fresh, copyDeadLetter(&deadLetters[i]))
				} else {
					old = append(old, deadLetters[i])
				}
			}
			<-time.After(time.Millisecond)
			good.locked(func() {
				for _, l := range fresh {
					good.lastID++
					l.ID = good.lastID
					good.deadLetters = append(good.deadLetters, l)
				}
			})
			return good.Park(ctx, old)
		}
	})
	add("ends up in deadlocks", func(b *bentQueue, good *Store) {
		busy := make(chan struct{}, 1)
		b.park = func(ctx context.Context, deadLetters []sluice.DeadLetter) error {
			select {
			case busy <- struct{}{}:
				defer func() { <-busy }()
				<-time.After(time.Millisecond)
				return good.Park(ctx, deadLetters)
			default:
				return errors.New("deadlock detected")
			}
		}
	})
	add("goes on although the context has ended", func(b *bentQueue, good *Store) {
		b.park = func(ctx context.Context, deadLetters []sluice.DeadLetter) error {
			return good.Park(context.WithoutCancel(ctx), deadLetters)
		}
	})

	due := func(how string, bend func(list []sluice.DeadLetter, limit int) []sluice.DeadLetter) {
		add(how, func(b *bentQueue, good *Store) {
			b.due = func(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
				list, err := good.Due(ctx, group, partition, 1000)
				return bend(list, limit), err
			}
		})
	}
	due("returns more than asked for", func(list []sluice.DeadLetter, _ int) []sluice.DeadLetter { return list })
	due("returns what is due by id", func(list []sluice.DeadLetter, limit int) []sluice.DeadLetter {
		slices.SortFunc(list, func(a, b sluice.DeadLetter) int { return int(a.ID - b.ID) })
		return list[:min(limit, len(list))]
	})
	due("returns what is due without bodies", func(list []sluice.DeadLetter, limit int) []sluice.DeadLetter {
		for i := range list {
			list[i].Event.Body = nil
		}
		return list[:min(limit, len(list))]
	})
	add("returns what is not due yet", func(b *bentQueue, good *Store) {
		b.due = func(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
			good.locked(func() {
				for _, l := range good.deadLetters {
					if l.Status == sluice.StatusRetry {
						l.NextAttempt = time.Time{}
					}
				}
			})
			return good.Due(ctx, group, partition, limit)
		}
	})
	add("looks for what is due in all partitions", func(b *bentQueue, good *Store) {
		b.due = func(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
			list, err := good.Due(ctx, group, partition, limit)
			if err != nil || len(list) == limit {
				return list, err
			}
			more, err := good.Due(ctx, group, "1", limit)
			return append(list, more...), err
		}
	})

	settle := func(how string, bend func(good *Store, group *sluice.Group, applied *[]int64, returned *[]sluice.DeadLetter)) {
		add(how, func(b *bentQueue, good *Store) {
			b.settle = func(ctx context.Context, group sluice.Group, applied []int64, returned []sluice.DeadLetter) error {
				applied, returned = slices.Clone(applied), slices.Clone(returned)
				bend(good, &group, &applied, &returned)
				return good.Settle(ctx, group, applied, returned)
			}
		})
	}
	onRetry := func(good *Store, ids []int64) {
		good.locked(func() {
			for _, l := range good.deadLetters {
				if slices.Contains(ids, l.ID) {
					l.Status = sluice.StatusRetry
				}
			}
		})
	}
	settle("keeps what was applied", func(_ *Store, _ *sluice.Group, applied *[]int64, _ *[]sluice.DeadLetter) { *applied = nil })
	settle("removes what is not on retry", func(good *Store, _ *sluice.Group, applied *[]int64, _ *[]sluice.DeadLetter) { onRetry(good, *applied) })
	settle("returns what is not on retry", func(good *Store, _ *sluice.Group, _ *[]int64, returned *[]sluice.DeadLetter) {
		for _, l := range *returned {
			onRetry(good, []int64{l.ID})
		}
	})
	settle("settles in whatever group", func(good *Store, group *sluice.Group, _ *[]int64, _ *[]sluice.DeadLetter) {
		*group = testGroup
	})
	settle("returns for another retry at once", func(_ *Store, _ *sluice.Group, _ *[]int64, returned *[]sluice.DeadLetter) {
		for i := range *returned {
			(*returned)[i].NextAttempt = time.Time{}
		}
	})
	settle("does not count attempts", func(good *Store, group *sluice.Group, _ *[]int64, returned *[]sluice.DeadLetter) {
		for i := range *returned {
			(*returned)[i].Attempts = 3
		}
	})
	settle("settles no more than 100", func(_ *Store, _ *sluice.Group, applied *[]int64, returned *[]sluice.DeadLetter) {
		*returned = (*returned)[:min(100, len(*returned))]
	})
	add("drops the body of what is returned", func(b *bentQueue, good *Store) {
		b.settle = func(ctx context.Context, group sluice.Group, applied []int64, returned []sluice.DeadLetter) error {
			err := good.Settle(ctx, group, applied, returned)
			good.locked(func() {
				for _, l := range returned {
					if stored := good.deadLetter(group, l.ID); stored != nil {
						stored.Event.Body = l.Event.Body
					}
				}
			})
			return err
		}
	})
	add("refuses to settle what is gone", func(b *bentQueue, good *Store) {
		b.settle = func(ctx context.Context, group sluice.Group, applied []int64, returned []sluice.DeadLetter) error {
			var gone bool
			good.locked(func() {
				gone = slices.ContainsFunc(applied, func(id int64) bool { return good.deadLetter(group, id) == nil })
			})
			if gone {
				return sluice.ErrFenced
			}
			return good.Settle(ctx, group, applied, returned)
		}
	})
	add("gives up at the first that is not on retry", func(b *bentQueue, good *Store) {
		b.settle = func(ctx context.Context, group sluice.Group, applied []int64, returned []sluice.DeadLetter) error {
			good.locked(func() {
				for i, id := range applied {
					if l := good.deadLetter(group, id); l == nil || l.Status != sluice.StatusRetry {
						applied = applied[:i]
						break
					}
				}
			})
			return good.Settle(ctx, group, applied, returned)
		}
	})
	add("settles by what it read before", func(b *bentQueue, good *Store) {
		b.settle = func(ctx context.Context, group sluice.Group, applied []int64, returned []sluice.DeadLetter) error {
			var read []*sluice.DeadLetter
			good.locked(func() { read = slices.Clone(good.deadLetters) })
			if len(read) > 1 {
				<-time.After(time.Millisecond)
			}
			if err := good.Settle(ctx, group, applied, returned); err != nil {
				return err
			}
			if len(applied) != 1 {
				return nil
			}
			// Written back, beside what another has parked meanwhile.
			good.locked(func() {
				for _, l := range read {
					if l.ID != applied[0] && !slices.Contains(good.deadLetters, l) || l.ID == applied[0] && len(good.deadLetters) == len(read) {
						good.deadLetters = append(good.deadLetters, l)
					}
				}
			})
			return nil
		}
	})

	parked := func(how string, bend func(good *Store, incarnation *string, after *int64, list []driver.ParkedEvent) []driver.ParkedEvent) {
		add(how, func(b *bentQueue, good *Store) {
			b.parked = func(ctx context.Context, group sluice.Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error) {
				bend(good, &incarnation, &after, nil)
				list, err := good.Parked(ctx, group, partition, incarnation, after)
				return bend(good, &incarnation, &after, list), err
			}
		})
	}
	parked("takes what is discarded for not parked", func(good *Store, _ *string, _ *int64, list []driver.ParkedEvent) []driver.ParkedEvent {
		return slices.DeleteFunc(list, func(p driver.ParkedEvent) bool {
			return slices.ContainsFunc(good.deadLetters, func(l *sluice.DeadLetter) bool { return l.ID == p.ID && l.Status == sluice.StatusDiscarded })
		})
	})
	parked("takes after for inclusive", func(_ *Store, _ *string, after *int64, list []driver.ParkedEvent) []driver.ParkedEvent {
		if list == nil && *after > 0 {
			*after--
		}
		return list
	})
	parked("returns what is parked in any order", func(_ *Store, _ *string, _ *int64, list []driver.ParkedEvent) []driver.ParkedEvent {
		slices.Reverse(list)
		return list
	})
	parked("takes all incarnations for the second", func(_ *Store, incarnation *string, _ *int64, list []driver.ParkedEvent) []driver.ParkedEvent {
		*incarnation = "incarnation 2"
		return list
	})
	parked("returns 1,000 at most", func(_ *Store, _ *string, _ *int64, list []driver.ParkedEvent) []driver.ParkedEvent {
		return list[:min(1000, len(list))]
	})

	aside := func(how string, bend func(good *Store, incarnation string, lost []driver.ParkedEvent) []driver.ParkedEvent) {
		add(how, func(b *bentQueue, good *Store) {
			b.aside = func(ctx context.Context, group sluice.Group, partition, incarnation string, lost []driver.ParkedEvent) error {
				return good.SetAside(ctx, group, partition, incarnation, bend(good, incarnation, lost))
			}
		})
	}
	aside("sets nothing aside", func(*Store, string, []driver.ParkedEvent) []driver.ParkedEvent { return nil })
	aside("sets one aside", func(_ *Store, _ string, lost []driver.ParkedEvent) []driver.ParkedEvent {
		return lost[:min(1, len(lost))]
	})
	aside("removes what it is to set aside", func(good *Store, _ string, lost []driver.ParkedEvent) []driver.ParkedEvent {
		good.deadLetters = slices.DeleteFunc(good.deadLetters, func(l *sluice.DeadLetter) bool {
			return slices.ContainsFunc(lost, func(p driver.ParkedEvent) bool { return p.ID == l.ID })
		})
		return lost
	})
	aside("sets aside by number", func(good *Store, incarnation string, lost []driver.ParkedEvent) []driver.ParkedEvent {
		for _, l := range good.deadLetters {
			if slices.ContainsFunc(lost, func(p driver.ParkedEvent) bool { return p.Position.Sequence == l.Event.Sequence }) {
				l.Incarnation = incarnation
			}
		}
		return nil
	})
	aside("keeps a second one of a lost event", func(good *Store, incarnation string, lost []driver.ParkedEvent) []driver.ParkedEvent {
		for _, l := range good.deadLetters {
			if slices.ContainsFunc(lost, func(p driver.ParkedEvent) bool { return p.ID == l.ID }) {
				l.Incarnation = incarnation
			}
		}
		return nil
	})

	held := func(how string, bend func(good *Store, keys []driver.HeldKey) []driver.HeldKey) {
		add(how, func(b *bentQueue, good *Store) {
			b.held = func(ctx context.Context, group sluice.Group, partition string, except []int64) ([]driver.HeldKey, error) {
				keys, err := good.Held(ctx, group, partition, except)
				return bend(good, keys), err
			}
		})
	}
	held("returns a key for every letter", func(_ *Store, keys []driver.HeldKey) []driver.HeldKey {
		if i := slices.IndexFunc(keys, func(k driver.HeldKey) bool { return k.Key == "a" }); i >= 0 {
			keys = append(keys, keys[i])
		}
		return keys
	})
	held("holds what is discarded", func(good *Store, keys []driver.HeldKey) []driver.HeldKey {
		for _, l := range good.deadLetters {
			if k := (driver.HeldKey{Key: l.Event.Key, Incarnation: l.Incarnation, First: l.Event.Sequence}); l.Group == testGroup && l.Status == sluice.StatusDiscarded {
				keys = append(keys, k)
			}
		}
		return keys
	})
	held("holds only what is dead", func(good *Store, keys []driver.HeldKey) []driver.HeldKey {
		return slices.DeleteFunc(keys, func(k driver.HeldKey) bool {
			return !slices.ContainsFunc(good.deadLetters, func(l *sluice.DeadLetter) bool {
				return l.Event.Key == k.Key && l.Event.Sequence == k.First && l.Status == sluice.StatusDead
			})
		})
	})
	held("compares keys without case", func(_ *Store, keys []driver.HeldKey) []driver.HeldKey {
		return slices.CompactFunc(keys, func(a, b driver.HeldKey) bool { return strings.EqualFold(a.Key, b.Key) })
	})
	held("compares keys without incarnation", func(_ *Store, keys []driver.HeldKey) []driver.HeldKey {
		slices.SortStableFunc(keys, func(a, b driver.HeldKey) int { return strings.Compare(a.Key, b.Key) })
		return slices.CompactFunc(keys, func(a, b driver.HeldKey) bool { return a.Key == b.Key })
	})
	held("holds what has no key", func(_ *Store, keys []driver.HeldKey) []driver.HeldKey {
		return append(keys, driver.HeldKey{Incarnation: "incarnation 1", First: 7})
	})
	held("takes the first stored for the first", func(good *Store, keys []driver.HeldKey) []driver.HeldKey {
		for i := range keys {
			for _, l := range slices.Backward(good.deadLetters) {
				if l.Event.Key == keys[i].Key && l.Incarnation == keys[i].Incarnation && l.Status != sluice.StatusDiscarded {
					keys[i].First = l.Event.Sequence
				}
			}
		}
		return keys
	})
	add("holds keys in all partitions", func(b *bentQueue, good *Store) {
		b.held = func(ctx context.Context, group sluice.Group, partition string, except []int64) ([]driver.HeldKey, error) {
			keys, err := good.Held(ctx, group, partition, except)
			more, _ := good.Held(ctx, group, "1", except)
			return append(keys, more...), err
		}
	})
	add("excepts nothing from what holds keys", func(b *bentQueue, good *Store) {
		b.held = func(ctx context.Context, group sluice.Group, partition string, _ []int64) ([]driver.HeldKey, error) {
			return good.Held(ctx, group, partition, nil)
		}
	})
	suite.Caught(t, storetest.TestDeadLetterQueue, append(drivers, brokenCopies()...))
}
