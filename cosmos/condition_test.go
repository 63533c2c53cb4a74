package cosmos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

func event(id string, sequence, epoch int64) Document {
	return Document{ID: id, PartitionKey: []any{"k"}, Body: fmt.Appendf(nil, `{"key":"k","n":%d}`, sequence), Source: &Source{Topic: "hub", Partition: "0", Epoch: epoch, Sequence: sequence}}
}

// operations are the kinds of all operations that the account has seen since
// the last call.
func (f *fake) operations() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var kinds []string
	for _, b := range f.batches {
		for _, op := range b {
			kinds = append(kinds, op.OperationType)
		}
	}
	f.batches = nil
	return strings.Join(kinds, " ")
}

func (f *fake) stored(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.docs[`["k"]/`+id].body["n"], " ", f.docs[`["k"]/`+id].body[StampProperty])
}

func TestConditional(t *testing.T) {
	for _, mode := range []Mode{Bulk, Point} {
		f := newFake(t)
		a, b := f.open(t, &Config{Mode: mode}), f.open(t, &Config{Mode: mode})
		write := func(s *Sink, d Document, cost float64, operations, stored string) {
			t.Helper()
			if r := submit(t, s, d)[0]; r.Err != nil || r.Cost != cost {
				t.Errorf("%+v at %+v", r, *d.Source)
			}
			if got := f.operations(); got != operations {
				t.Errorf("operations %s, want %s, at %+v", got, operations, *d.Source)
			}
			if got := f.stored("d"); got != stored {
				t.Errorf("stored is %s, want %s, at %+v", got, stored, *d.Source)
			}
		}
		write(a, event("d", 5, 1), 6, "Create", "5 5 1 0 hub")
		write(a, event("d", 6, 1), 10, "Replace", "6 6 1 0 hub")
		write(a, event("d", 5, 1), 0, "", "6 6 1 0 hub")
		write(a, event("d", 6, 1), 0, "", "6 6 1 0 hub")
		// Another process knows nothing yet.
		write(b, event("d", 6, 1), 2.5, "Create Read", "6 6 1 0 hub")
		write(b, event("d", 4, 2), 0, "", "6 6 1 0 hub")
		write(b, event("d", 6, 2), 10, "Replace", "6 6 2 0 hub") // processed once more, in a later epoch
		write(b, event("d", 8, 2), 10, "Replace", "8 8 2 0 hub")
		// The first knows what is outdated.
		write(a, event("d", 7, 1), 2.5, "Replace Read", "8 8 2 0 hub")
		write(b, event("d", 9, 2), 10, "Replace", "9 9 2 0 hub")
		write(a, event("d", 10, 3), 12.5, "Replace Read Replace", "10 10 3 0 hub")
		// It was deleted meanwhile.
		f.replace(func() { clear(f.docs) })
		write(a, event("d", 11, 3), 7, "Replace Create", "11 11 3 0 hub")
		// Of another log there is no before and after.
		other := event("d", 1, 1)
		other.Source.Topic = "hub recreated"
		write(a, other, 10, "Replace", "1 1 1 0 hub recreated")

		if r := submit(t, a, func() Document { d := event("none", 1, 1); d.Operation = Replace; return d }())[0]; !errors.Is(r.Err, sluice.ErrRejected) {
			t.Errorf("replace of nothing: %v", r.Err)
		}
	}
}

// A document of another writer, without a stamp, is replaced.
func TestConditionalOverUnstamped(t *testing.T) {
	f := newFake(t)
	s := f.open(t, nil)
	plain := event("d", 1, 1)
	plain.Source = nil
	submit(t, s, plain)
	f.operations()
	if r := submit(t, s, event("d", 2, 1))[0]; r.Err != nil || f.stored("d") != "2 2 1 0 hub" || f.operations() != "Create Read Replace" {
		t.Errorf("%+v, %s", r, f.stored("d"))
	}
}

// A create whose reply was lost, or that a crash has repeated, is no conflict.
func TestRepeatedCreate(t *testing.T) {
	f := newFake(t)
	create := func(s *Sink, sequence, epoch int64) error {
		d := event("d", sequence, epoch)
		d.Operation = Create
		return submit(t, s, d)[0].Err
	}
	for range 2 {
		s := f.open(t, nil)
		for range 2 {
			if err := create(s, 5, 1); err != nil {
				t.Error(err)
			}
		}
		if err := create(s, 5, 2); err != nil {
			t.Error(err)
		}
		for _, sequence := range []int64{4, 6} {
			if err := create(s, sequence, 1); !errors.Is(err, sluice.ErrRejected) || !strings.Contains(err.Error(), "409") {
				t.Error(err)
			}
		}
	}
	if f.stored("d") != "5 5 1 0 hub" {
		t.Error(f.stored("d"))
	}
}

// Others write the document between every read and replacement.
func TestContention(t *testing.T) {
	f := newFake(t)
	f.operation = func(op fakeOperation) map[string]any {
		if op.OperationType == "Replace" {
			return map[string]any{"statusCode": 412, "requestCharge": 1.0}
		}
		return nil
	}
	s := f.open(t, &Config{FlushAfter: time.Millisecond})
	submit(t, f.open(t, nil), event("d", 1, 1))
	r := submit(t, s, event("d", 2, 1))[0]
	if retry, ok := errors.AsType[*driver.RetryError](r.Err); !ok || retry.After != 0 {
		t.Errorf("%+v", r)
	}
}

// Two owners of a partition at once, one of them a zombie that is behind, with
// requests that take effect after their sender has given up: no document ever
// goes back to an older event. Without a source it does, which shows that the
// test can see it.
func TestNoDocumentGoesBack(t *testing.T) {
	for _, conditional := range []bool{true, false} {
		back, last := race(t, conditional)
		if conditional && (back > 0 || !last) {
			t.Errorf("%d documents went back; the newest events are there: %v", back, last)
		}
		if !conditional && back == 0 {
			t.Error("unconditional writes never went back: the race is too tame")
		}
	}
}

func race(t *testing.T, conditional bool) (back int, last bool) {
	const ids, events = 20, 1500
	f := newFake(t)
	newest := map[string]float64{}
	f.wrote = func(key string, body map[string]any) {
		n := body["n"].(float64)
		if n < newest[key] {
			back++
		}
		newest[key] = n
	}
	random := rand.New(rand.NewPCG(1, 2))
	var lock sync.Mutex
	var late sync.WaitGroup
	f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
		lock.Lock()
		wait, lost := time.Duration(random.IntN(8))*time.Millisecond, random.IntN(4) == 0
		lock.Unlock()
		<-time.After(wait)
		if !lost {
			return false
		}
		// The connection breaks, and what was asked happens all the same, later.
		late.Go(func() {
			<-time.After(3 * wait)
			for _, op := range batch {
				f.apply(op)
			}
		})
		panic(http.ErrAbortHandler)
	}
	document := func(n, epoch int) Document {
		d := event(fmt.Sprint("d", n%ids), int64(n), int64(epoch))
		if !conditional {
			d.Source = nil
		}
		return d
	}
	// Each owner keeps the order of a key's events, as the engine does, and
	// tries again for as long as it takes.
	own := func(s *Sink, epoch, from, to int) {
		var keys sync.WaitGroup
		for key := range ids {
			keys.Go(func() {
				for n := from; n < to; n++ {
					if n%ids != key {
						continue
					}
					for done := false; !done; {
						over := make(chan error, 1)
						s.Submit(context.Background(), document(n, epoch), func(r driver.WriteResult) { over <- r.Err })
						err := <-over
						if done = err == nil; !done && !errors.As(err, new(*driver.RetryError)) {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		keys.Wait()
	}
	cfg := &Config{Concurrency: 8, MaxOperations: 5, FlushAfter: 10 * time.Millisecond}
	zombie, owner := f.open(t, cfg), f.open(t, cfg)
	var both sync.WaitGroup
	both.Go(func() { own(zombie, 1, 0, events*2/3) })
	both.Go(func() { own(owner, 2, events/3, events) })
	both.Wait()
	late.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	last = len(newest) == ids
	for key := range ids {
		last = last && newest[fmt.Sprintf(`["k"]/d%d`, key)] == float64(events-ids+key)
	}
	return back, last
}
