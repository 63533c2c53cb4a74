package sluicetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

// bentDeadLetters is a store of dead letters whose methods can be replaced.
type bentDeadLetters struct {
	*Store
	list    func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) ([]sluice.DeadLetter, error)
	get     func(ctx context.Context, group sluice.Group, id int64) (sluice.DeadLetter, error)
	redrive func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter, at time.Time) (int64, error)
	discard func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) (int64, error)
}

func (b *bentDeadLetters) List(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
	if b.list != nil {
		return b.list(ctx, group, filter)
	}
	return b.Store.List(ctx, group, filter)
}

func (b *bentDeadLetters) Get(ctx context.Context, group sluice.Group, id int64) (sluice.DeadLetter, error) {
	if b.get != nil {
		return b.get(ctx, group, id)
	}
	return b.Store.Get(ctx, group, id)
}

func (b *bentDeadLetters) Redrive(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter, at time.Time) (int64, error) {
	if b.redrive != nil {
		return b.redrive(ctx, group, filter, at)
	}
	return b.Store.Redrive(ctx, group, filter, at)
}

func (b *bentDeadLetters) Discard(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) (int64, error) {
	if b.discard != nil {
		return b.discard(ctx, group, filter)
	}
	return b.Store.Discard(ctx, group, filter)
}

func TestDeadLettersSuiteCatches(t *testing.T) {
	var drivers []suite.Broken[storetest.TxHarness[*Tx]]
	add := func(how string, bend func(b *bentDeadLetters, s *bentStore, good *Store)) {
		drivers = append(drivers, suite.Broken[storetest.TxHarness[*Tx]]{How: how, New: func(testing.TB) storetest.TxHarness[*Tx] {
			good := new(Store)
			h := harness(good)
			b, s := &bentDeadLetters{Store: good}, &bentStore{Store: good}
			h.DeadLetters, h.Store = b, s
			bend(b, s, good)
			return h
		}})
	}

	drivers = append(drivers, suite.Broken[storetest.TxHarness[*Tx]]{How: "ignores its deadline while the server is silent", New: func(testing.TB) storetest.TxHarness[*Tx] {
		h, server := harness(new(Store)), new(silentServer)
		b := &bentDeadLetters{Store: h.Store.(*Store)}
		b.discard = func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) (int64, error) {
			server.await()
			return b.Store.Discard(ctx, group, filter)
		}
		h.DeadLetters, h.Silence = b, server.begin
		return h
	}})
	// Whatever part of a filter is ignored.
	for how, forget := range map[string]func(f *sluice.DeadLetterFilter){
		"ids":               func(f *sluice.DeadLetterFilter) { f.IDs = nil },
		"partitions":        func(f *sluice.DeadLetterFilter) { f.Partition = "" },
		"status":            func(f *sluice.DeadLetterFilter) { f.Status = nil },
		"all but one state": func(f *sluice.DeadLetterFilter) { f.Status = f.Status[:min(1, len(f.Status))] },
		"keys":              func(f *sluice.DeadLetterFilter) { f.Key = "" },
		"errors":            func(f *sluice.DeadLetterFilter) { f.ErrorContains = "" },
		"since":             func(f *sluice.DeadLetterFilter) { f.FailedSince = time.Time{} },
		"before":            func(f *sluice.DeadLetterFilter) { f.FailedBefore = time.Time{} },
		"first":             func(f *sluice.DeadLetterFilter) { f.FirstSequence = nil },
		"last":              func(f *sluice.DeadLetterFilter) { f.LastSequence = nil },
		"after":             func(f *sluice.DeadLetterFilter) { f.AfterID = 0 },
		"limit":             func(f *sluice.DeadLetterFilter) { f.Limit = 0 },
		"time zones": func(f *sluice.DeadLetterFilter) {
			if s := f.FailedSince; !s.IsZero() {
				f.FailedSince = time.Date(s.Year(), s.Month(), s.Day(), s.Hour(), s.Minute(), s.Second(), s.Nanosecond(), time.UTC)
			}
		},
		"that since is inclusive": func(f *sluice.DeadLetterFilter) {
			if !f.FailedSince.IsZero() {
				f.FailedSince = f.FailedSince.Add(1)
			}
		},
		"that before is exclusive": func(f *sluice.DeadLetterFilter) {
			if !f.FailedBefore.IsZero() {
				f.FailedBefore = f.FailedBefore.Add(1)
			}
		},
	} {
		add("ignores, in a filter, "+how, func(b *bentDeadLetters, _ *bentStore, good *Store) {
			b.list = func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
				forget(&filter)
				return good.List(ctx, group, filter)
			}
		})
	}
	add("takes a filter's error for a pattern", func(b *bentDeadLetters, _ *bentStore, good *Store) {
		b.list = func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
			pattern := strings.NewReplacer("%", ".*", "_", ".").Replace(strings.ReplaceAll(filter.ErrorContains, `\`, `\\`))
			like := regexp.MustCompile("(?is)" + pattern)
			filter.ErrorContains = ""
			list, err := good.List(ctx, group, filter)
			return slices.DeleteFunc(list, func(l sluice.DeadLetter) bool { return !like.MatchString(l.Error) }), err
		}
	})
	add("lists the latest first", func(b *bentDeadLetters, _ *bentStore, good *Store) {
		b.list = func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
			list, err := good.List(ctx, group, filter)
			slices.Reverse(list)
			return list, err
		}
	})
	add("lists bodies", func(b *bentDeadLetters, _ *bentStore, good *Store) {
		b.list = func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
			list, err := good.List(ctx, group, filter)
			for i, l := range list {
				list[i], _ = good.Get(ctx, group, l.ID)
			}
			return list, err
		}
	})
	add("says of what it lists that it has no body", func(b *bentDeadLetters, _ *bentStore, good *Store) {
		b.list = func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
			list, err := good.List(ctx, group, filter)
			for i := range list {
				list[i].HasBody = false
			}
			return list, err
		}
	})
	add("lists, gets and marks whatever the group", func(b *bentDeadLetters, _ *bentStore, good *Store) {
		b.list = func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
			return good.List(ctx, testGroup, filter)
		}
		b.get = func(ctx context.Context, group sluice.Group, id int64) (sluice.DeadLetter, error) {
			return good.Get(ctx, testGroup, id)
		}
		b.redrive = func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter, at time.Time) (int64, error) {
			return good.Redrive(ctx, testGroup, filter, at)
		}
	})
	get := func(how string, after func(l *sluice.DeadLetter, err error) error) {
		add(how, func(b *bentDeadLetters, _ *bentStore, good *Store) {
			b.get = func(ctx context.Context, group sluice.Group, id int64) (sluice.DeadLetter, error) {
				l, err := good.Get(ctx, group, id)
				err = after(&l, err)
				return l, err
			}
		})
	}
	get("finds nothing without an error", func(*sluice.DeadLetter, error) error { return nil })
	get("loses the types of properties", func(l *sluice.DeadLetter, err error) error {
		for name, v := range l.Event.Properties {
			l.Event.Properties[name] = fmt.Sprint(v)
		}
		return err
	})
	for how, lose := range map[string]func(e *sluice.Event){
		"loses headers":                   func(e *sluice.Event) { e.Headers = nil },
		"keeps the last header of a name": func(e *sluice.Event) { e.Headers = e.Headers[min(1, len(e.Headers)):] },
		"loses the sender's time":         func(e *sluice.Event) { e.Created = time.Time{} },
		"loses an empty key":              func(e *sluice.Event) { e.EmptyKey = false },
		"loses a key that is no text":     func(e *sluice.Event) { e.Key = strings.ToValidUTF8(e.Key, "?") },
		"takes null for empty":            func(e *sluice.Event) { e.Body = append([]byte{}, e.Body...) },
		"takes empty for null": func(e *sluice.Event) {
			if len(e.Body) == 0 {
				e.Body = nil
			}
		},
	} {
		get(how, func(l *sluice.DeadLetter, err error) error { lose(&l.Event); return err })
	}
	get("loses properties without a value", func(l *sluice.DeadLetter, err error) error { delete(l.Event.Properties, "nil"); return err })
	get("cuts bodies at a NUL", func(l *sluice.DeadLetter, err error) error {
		l.Event.Body, _, _ = bytes.Cut(l.Event.Body, []byte{0})
		return err
	})
	get("takes an empty body for none", func(l *sluice.DeadLetter, err error) error {
		l.HasBody = l.HasBody && len(l.Event.Body) > 0
		return err
	})
	get("loses milliseconds", func(l *sluice.DeadLetter, err error) error {
		l.FailedAt = l.FailedAt.Truncate(time.Second)
		return err
	})
	get("loses the enqueued time", func(l *sluice.DeadLetter, err error) error { l.Event.Enqueued = time.Time{}; return err })
	get("loses the offset", func(l *sluice.DeadLetter, err error) error { l.Event.Offset = ""; return err })
	get("cuts errors at 4,000 bytes", func(l *sluice.DeadLetter, err error) error {
		l.Error = l.Error[:min(4000, len(l.Error))]
		return err
	})
	get("cuts text at what it can't hold", func(l *sluice.DeadLetter, err error) error {
		l.Event.Key, _, _ = strings.Cut(l.Event.Key, "\x00")
		return err
	})
	add("fails on text that it can't hold", func(_ *bentDeadLetters, s *bentStore, good *Store) {
		s.commit = func(ctx context.Context, step driver.Step, fn handler) error {
			for _, l := range step.DeadLetters {
				if strings.ContainsRune(l.Error, 0) {
					return errors.New("invalid byte sequence")
				}
			}
			return good.Commit(ctx, step, fn)
		}
	})
	add("fails on a trial's error that it can't hold", func(_ *bentDeadLetters, s *bentStore, good *Store) {
		s.record = func(ctx context.Context, lease sluice.Lease, at sluice.Position, attempt driver.AttemptRecord) error {
			if strings.ContainsRune(attempt.Error, 0) {
				return errors.New("invalid byte sequence")
			}
			return good.RecordAttempt(ctx, lease, at, attempt)
		}
	})

	retry := func(how string, bend func(good *Store, filter *sluice.DeadLetterFilter, at *time.Time)) {
		add(how, func(b *bentDeadLetters, _ *bentStore, good *Store) {
			b.redrive = func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter, at time.Time) (int64, error) {
				bend(good, &filter, &at)
				return good.Redrive(ctx, group, filter, at)
			}
		})
	}
	retry("retries at once, whatever the time", func(_ *Store, _ *sluice.DeadLetterFilter, at *time.Time) { *at = time.Time{} })
	retry("takes the zero time as it is", func(_ *Store, _ *sluice.DeadLetterFilter, at *time.Time) {
		if at.IsZero() {
			*at = at.Add(1)
		}
	})
	retry("keeps the first mark's time", func(good *Store, f *sluice.DeadLetterFilter, at *time.Time) {
		good.mu.Lock()
		defer good.mu.Unlock()
		for _, l := range good.deadLetters {
			if l.Status == sluice.StatusRetry {
				*at = l.NextAttempt
			}
		}
	})
	retry("retries only what is dead", func(_ *Store, f *sluice.DeadLetterFilter, _ *time.Time) {
		f.Status = []sluice.DeadLetterStatus{sluice.StatusDead}
	})
	retry("retries beyond the limit", func(_ *Store, f *sluice.DeadLetterFilter, _ *time.Time) { f.Limit = 0 })
	retry("retries all", func(_ *Store, f *sluice.DeadLetterFilter, _ *time.Time) { *f = sluice.DeadLetterFilter{} })
	add("counts nothing", func(b *bentDeadLetters, _ *bentStore, good *Store) {
		b.discard = func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) (int64, error) {
			_, err := good.Discard(ctx, group, filter)
			return 0, err
		}
	})
	add("deletes what is discarded", func(b *bentDeadLetters, _ *bentStore, good *Store) {
		b.discard = func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) (int64, error) {
			n, err := good.Discard(ctx, group, filter)
			good.locked(func() {
				good.deadLetters = slices.DeleteFunc(good.deadLetters, func(l *sluice.DeadLetter) bool { return l.Status == sluice.StatusDiscarded })
			})
			return n, err
		}
	})
	add("keeps the time of what is discarded", func(b *bentDeadLetters, _ *bentStore, good *Store) {
		b.discard = func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter) (int64, error) {
			times := make(map[int64]time.Time)
			good.locked(func() {
				for _, l := range good.deadLetters {
					times[l.ID] = l.NextAttempt
				}
			})
			n, err := good.Discard(ctx, group, filter)
			good.locked(func() {
				for _, l := range good.deadLetters {
					l.NextAttempt = times[l.ID]
				}
			})
			return n, err
		}
	})
	add("reads dead letters, then marks what it read", func(b *bentDeadLetters, _ *bentStore, good *Store) {
		b.redrive = func(ctx context.Context, group sluice.Group, filter sluice.DeadLetterFilter, at time.Time) (int64, error) {
			good.mu.Lock()
			read := slices.Clone(good.deadLetters)
			good.mu.Unlock()
			<-time.After(time.Millisecond)
			n, err := good.Redrive(ctx, group, filter, at)
			good.mu.Lock()
			defer good.mu.Unlock()
			for _, l := range read {
				if l.Group == group && !slices.Contains(good.deadLetters, l) {
					good.deadLetters = append(good.deadLetters, l) // written back
				}
			}
			return n, err
		}
	})
	suite.Caught(t, storetest.TestDeadLetterStore, drivers)
}
