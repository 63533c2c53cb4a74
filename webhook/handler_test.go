package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// TestHandlerBatches: requests of a partition follow each other, as large as they may be.
func TestHandlerBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deliver(t, 600)
		inFlight, most := map[string]int{}, 0
		d.v.answer = func(_ http.ResponseWriter, r *http.Request, _ []int64) bool {
			source := r.Header.Get("Sluice-Source")
			d.v.mu.Lock()
			inFlight[source]++
			most = max(most, inFlight[source])
			d.v.mu.Unlock()
			time.Sleep(50 * time.Millisecond)
			d.v.mu.Lock()
			defer d.v.mu.Unlock()
			inFlight[source]--
			return false
		}
		if letters := d.runBatches(&Config{MaxEvents: 100}); len(letters) > 0 {
			t.Errorf("dead letters %+v", letters)
		}
		if sizes := d.v.sizes(); most != 1 || len(sizes) != 12 || slices.Max(sizes) != 100 {
			t.Errorf("%d requests of a partition at once, of %v events", most, sizes)
		}
		if len(d.v.events) != d.total {
			t.Errorf("%d events", len(d.v.events))
		}
		for event, times := range d.v.events {
			if times != 1 {
				t.Errorf("%s was posted %d times", event, times)
			}
		}
	})
}

// TestHandlerPostsTheRest: an answer per event ends neither in a repetition of what was accepted
// nor in the loss of what was not.
func TestHandlerPostsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deliver(t, 600)
		d.v.answer = func(w http.ResponseWriter, r *http.Request, ids []int64) bool {
			answerPerEvent(w, r, ids, func(id int64) bool { return id%100 == 17 }, d.v)
			return true
		}
		letters := d.runBatches(&Config{MaxEvents: 250})
		if len(letters) != 12 {
			t.Errorf("%d dead letters", len(letters))
		}
		for _, l := range letters {
			if l.Event.Sequence%100 != 17 || !strings.Contains(l.Error, "the receiver rejects the event") {
				t.Errorf("dead letter %d: %s", l.Event.Sequence, l.Error)
			}
		}
		for event, times := range d.v.events {
			if times != 1 {
				t.Errorf("%s was posted %d times", event, times)
			}
		}
	})
}

// TestHandlerForgetsOtherLeases: what was accepted under one lease is posted again under the next.
func TestHandlerForgetsOtherLeases(t *testing.T) {
	v := newReceiver(t)
	rejects := true
	v.answer = func(w http.ResponseWriter, r *http.Request, ids []int64) bool {
		answerPerEvent(w, r, ids, func(id int64) bool { return rejects && id == 1 }, v)
		return true
	}
	sink := open(t, "http://test/api", &Config{Transport: v})
	handle := sink.Handler(Messages)
	b := sluice.Batch{Group: group, Incarnation: "i", Partition: "0", Epoch: 1, Events: []*sluice.Event{{Partition: "0", Body: []byte("{}")}, {Partition: "0", Sequence: 1, Body: []byte("{}")}}}
	failed := new(driver.EventError)
	if err := handle(t.Context(), b); !errors.As(err, &failed) || failed.Index != 1 {
		t.Fatal(err)
	}
	rejects = false
	b.Epoch = 2
	if err := handle(t.Context(), b); err != nil || v.stored[0] != 2 || v.stored[1] != 1 {
		t.Errorf("%v, stored %v", err, v.stored)
	}
}

// TestHandlerCountsAttempts: a receiver sees how often an event was posted.
func TestHandlerCountsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deliver(t, 1)
		failures := map[string]int{}
		d.v.answer = func(w http.ResponseWriter, r *http.Request, _ []int64) bool {
			d.v.mu.Lock()
			defer d.v.mu.Unlock()
			source := r.Header.Get("Sluice-Source")
			failures[source]++
			if got := r.Header.Get("Sluice-Attempt"); got != strconv.Itoa(failures[source]) {
				t.Errorf("attempt %s, want %d", got, failures[source])
			}
			if failures[source] < 4 {
				w.WriteHeader(503)
				return true
			}
			return false
		}
		if letters := d.runBatches(nil); len(letters) > 0 {
			t.Errorf("dead letters %+v", letters)
		}
	})
}

// TestHandlerRecords: an event without messages is done, and one whose messages cannot be made is
// rejected.
func TestHandlerRecords(t *testing.T) {
	v := newReceiver(t)
	sink := open(t, "http://test/api", &Config{Transport: v})
	handle := sink.Handler(func(_ context.Context, e *sluice.Event) ([]*Message, error) {
		switch e.Sequence {
		case 0:
			return nil, nil
		case 1:
			return nil, errors.New("not mapped")
		}
		return Messages(context.Background(), e)
	})
	b := sluice.Batch{Group: group, Partition: "0", Epoch: 1, Events: []*sluice.Event{{Partition: "0"}, {Partition: "0", Sequence: 1}, {Partition: "0", Sequence: 2, Body: []byte("{}")}}}
	failed := new(driver.EventError)
	if err := handle(t.Context(), b); !errors.As(err, &failed) || failed.Index != 1 || !strings.Contains(err.Error(), "not mapped") || len(v.stored) > 0 {
		t.Errorf("%v, stored %v", err, v.stored)
	}
	b.Events = slices.Delete(b.Events, 1, 2)
	if err := handle(t.Context(), b); err != nil || len(v.stored) != 1 || v.stored[2] != 1 {
		t.Errorf("%v, stored %v", err, v.stored)
	}
}

// TestHandlerInAnOutageOfRecords: the first outage ends the batch, and no event is rejected.
func TestHandlerInAnOutageOfRecords(t *testing.T) {
	sink, err := New("http://127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	handler := sink.Handler(func(context.Context, *sluice.Event) ([]*Message, error) {
		calls++
		return nil, driver.Outage(errors.New("the registry is down"))
	})
	err = handler(t.Context(), sluice.Batch{Events: []*sluice.Event{{Sequence: 1}, {Sequence: 2}}})
	if !errors.Is(err, sluice.ErrOutage) || errors.Is(err, sluice.ErrRejected) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestHandlerOfARandomReceiver: a receiver that fails at random, whatever it is sent, makes no dead
// letters.
func TestHandlerOfARandomReceiver(t *testing.T) {
	// An event that fails alone more often than this is a dead letter by right, which chance must
	// not reach.
	const most = maxStrikes + 2 // 2 are one fewer than the default of sluice.Config.Attempts
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			d := deliver(t, 100)
			var mu sync.Mutex // the requests of two partitions come at once
			random, failures := rand.New(rand.NewPCG(seed, 0)), map[string]int{}
			d.v.answer = func(w http.ResponseWriter, r *http.Request, ids []int64) bool {
				first := fmt.Sprint(r.Header.Get("Sluice-Source"), " ", ids[0])
				mu.Lock()
				defer mu.Unlock()
				if failures[first] < most && random.IntN(5) < 2 {
					failures[first]++
					w.WriteHeader(500)
					return true
				}
				return false
			}
			if letters := d.runBatches(&Config{MaxEvents: 4}); len(letters) > 0 {
				t.Errorf("%d dead letters, the first: %+v", len(letters), letters[0])
			}
		})
	}
}
