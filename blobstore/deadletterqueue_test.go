package blobstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
)

// blobs are the names of the blobs under a folder of group.
func (p place) blobs(t *testing.T, folder string) (names []string) {
	t.Helper()
	prefix := "ns.servicebus.windows.net/flights/$Default/" + folder + "/"
	pages := p.client(t).NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix})
	for pages.More() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Segment.BlobItems {
			names = append(names, *item.Name)
		}
	}
	return names
}

func dead(partition string, sequences ...int64) (list []driver.DeadLetter) {
	for _, n := range sequences {
		list = append(list, driver.DeadLetter{
			Group: group, Incarnation: "1", Status: driver.StatusDead, Error: "no", Attempts: 3, FailedAt: time.Now(), HasBody: true,
			Event: driver.Event{Partition: partition, Sequence: n, Body: fmt.Append(nil, "body ", n), Properties: map[string]any{"n": n}},
		})
	}
	return list
}

func listed(t *testing.T, s *blobstore.Store) []driver.DeadLetter {
	t.Helper()
	list, err := s.List(t.Context(), group, driver.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func ids(list []driver.DeadLetter) (n []int64) {
	for _, d := range list {
		n = append(n, d.ID)
	}
	return n
}

// Each request of each call is lost once, on its way there or on its way back.
func TestLettersLostRequests(t *testing.T) {
	first := dead("0", 3, 4, 5)
	for name, call := range map[string]struct {
		do   func(ctx context.Context, s *blobstore.Store, ids []int64) error
		left int // letters, and bodies
		says string
	}{
		"park": {func(ctx context.Context, s *blobstore.Store, _ []int64) error { return s.Park(ctx, dead("0", 1, 3, 9)) }, 5, "dead dead dead dead dead"},
		"settle": {func(ctx context.Context, s *blobstore.Store, ids []int64) error {
			again := dead("0", 4)
			again[0].ID = ids[1]
			return s.Settle(ctx, group, ids[:1], again)
		}, 2, "dead retry"},
		"retry": {func(ctx context.Context, s *blobstore.Store, ids []int64) error {
			n, err := s.Redrive(ctx, group, driver.DeadLetterFilter{Status: []driver.DeadLetterStatus{driver.StatusRetry}}, time.Now())
			if err == nil && n != 3 {
				err = fmt.Errorf("%d marked, want 3", n)
			}
			return err
		}, 3, "retry retry retry"},
		"discard": {func(ctx context.Context, s *blobstore.Store, ids []int64) error {
			n, err := s.Discard(ctx, group, driver.DeadLetterFilter{Status: []driver.DeadLetterStatus{driver.StatusRetry}, IDs: ids[1:]})
			if err == nil && n != 2 {
				err = fmt.Errorf("%d marked, want 2", n)
			}
			return err
		}, 3, "retry discarded discarded"},
	} {
		t.Run(name, func(t *testing.T) {
			for lost := 1; ; lost++ {
				struck := 0
				for _, back := range []bool{false, true} {
					p := newPlace(t)
					s := p.open(t)
					if err := s.Park(t.Context(), first); err != nil {
						t.Fatal(err)
					}
					known := ids(listed(t, s))
					if _, err := s.Redrive(t.Context(), group, driver.DeadLetterFilter{}, time.Time{}); err != nil {
						t.Fatal(err)
					}
					w := &wire{}
					behind := p.openThrough(t, w, 1)
					n := newCounter(lost)
					if back {
						w.onResponse = func(*http.Request, int) error { return n.strike() }
					} else {
						w.onRequest = func(*http.Request) error { return n.strike() }
					}
					err := call.do(t.Context(), behind, known)
					struck += n.struck()
					if err != nil {
						t.Errorf("request %d lost, reply %v: %v", lost, back, err)
					}
					var states []string
					for _, d := range listed(t, s) {
						if name == "park" && d.Event.Sequence > 3 && d.Event.Sequence < 9 {
							d.Status = driver.StatusDead // on retry since before
						}
						states = append(states, string(d.Status))
					}
					if got := strings.Join(states, " "); got != call.says {
						t.Errorf("request %d lost, reply %v: states are %s, want %s", lost, back, got, call.says)
					}
					if got := p.blobs(t, "bodies"); len(got) < call.left || !back && len(got) != call.left {
						t.Errorf("request %d lost, reply %v: %d bodies of %d letters", lost, back, len(got), call.left)
					}
				}
				if struck == 0 {
					t.Logf("%d requests", lost-1)
					return
				}
			}
		})
	}
}

// What was stored for a Park that failed is taken back; what may be in use is
// not.
func TestParkThatFails(t *testing.T) {
	for _, back := range []bool{false, true} {
		p := newPlace(t)
		s := p.open(t)
		w := &wire{}
		behind := p.openThrough(t, w, 0)
		cut := func(r *http.Request) error {
			if strings.Contains(r.URL.Path, "/letters/") && r.Method == http.MethodPut {
				return errCut
			}
			return nil
		}
		if back {
			w.onResponse = func(r *http.Request, _ int) error { return cut(r) }
		} else {
			w.onRequest = func(r *http.Request) error {
				if strings.Contains(r.URL.Path, "/bodies/") && strings.Contains(r.URL.Path, "/5-") && r.Method == http.MethodPut {
					return errCut
				}
				return nil
			}
		}
		if err := behind.Park(t.Context(), dead("0", 1, 2, 3, 4, 5)); err == nil {
			t.Error("parked")
		}
		deadLetters, bodies := listed(t, s), p.blobs(t, "bodies")
		if want := map[bool]int{false: 0, true: 5}[back]; len(deadLetters) != want || len(bodies) != want {
			t.Errorf("answer lost %v: %d letters, %d bodies; want %d", back, len(deadLetters), len(bodies), want)
		}
		for _, l := range deadLetters {
			d, err := s.Get(t.Context(), group, l.ID)
			if err != nil || string(d.Event.Body) != fmt.Sprint("body ", d.Event.Sequence) || d.Event.Properties["n"] != d.Event.Sequence {
				t.Errorf("got %+v, %v", d, err)
			}
		}
	}
}

// A body that somebody has deleted: the dead letter is one without a body, to
// be read from the hub again.
func TestBodyGone(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	if err := s.Park(t.Context(), dead("0", 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.client(t).NewBlobClient(p.blobs(t, "bodies")[0]).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Redrive(t.Context(), group, driver.DeadLetterFilter{}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	due, err := s.Due(t.Context(), group, "0", 10)
	if err != nil || len(due) != 1 || due[0].HasBody || due[0].Event.Body != nil {
		t.Errorf("due are %+v, %v", due, err)
	}
	if _, err := s.Get(t.Context(), group, 12345); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("one that was never there: %v", err)
	}
}

// Partitions of any name are found by id too.
func TestLettersOfNamedPartitions(t *testing.T) {
	s := newPlace(t).open(t)
	for _, partition := range []string{"north", "south/west", "", "99999", "7"} {
		if err := s.Park(t.Context(), dead(partition, 1, 2)); err != nil {
			t.Fatal(err)
		}
	}
	list := listed(t, s)
	for _, l := range list {
		d, err := s.Get(t.Context(), group, l.ID)
		if err != nil || d.Event.Partition != l.Event.Partition || d.Event.Sequence != l.Event.Sequence || d.Event.Body == nil {
			t.Errorf("dead letter %d: %+v, %v", l.ID, d, err)
		}
	}
	if _, err := s.Redrive(t.Context(), group, driver.DeadLetterFilter{IDs: ids(list)}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context(), group, ids(list), nil); err != nil {
		t.Fatal(err)
	}
	if left := listed(t, s); len(list) != 10 || len(left) != 0 {
		t.Errorf("%d dead letters, of which %d are left", len(list), len(left))
	}
}

// Each field of a filter selects, also what is marked.
func TestFilters(t *testing.T) {
	s := newPlace(t).open(t)
	var all []driver.DeadLetter
	hour := func(n int64) time.Time {
		return time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Hour)
	}
	for n := range int64(8) {
		d := dead("0", n)[0]
		d.FailedAt, d.Event.Key = hour(n), fmt.Sprint("key ", n%2)
		d.Error = []string{"Division BY zero", "100% of a_b\\c", "nothing", "plain"}[n%4]
		all = append(all, d)
	}
	if err := s.Park(t.Context(), append(all, dead("1", 90)...)); err != nil {
		t.Fatal(err)
	}
	found := listed(t, s)
	id := func(sequence int64) int64 {
		for _, d := range found {
			if d.Event.Sequence == sequence {
				return d.ID
			}
		}
		t.Fatalf("event %d is not listed", sequence)
		return 0
	}
	if n, err := s.Redrive(t.Context(), group, driver.DeadLetterFilter{IDs: []int64{id(1), id(2), 1 << 40}}, time.Time{}); err != nil || n != 2 {
		t.Errorf("marked %d, %v", n, err)
	}
	if n, err := s.Discard(t.Context(), group, driver.DeadLetterFilter{Key: "key 1", FirstSequence: new(int64(3)), Limit: 1}); err != nil || n != 1 {
		t.Errorf("discarded %d, %v", n, err)
	}
	for name, c := range map[string]struct {
		filter driver.DeadLetterFilter
		want   []int64
	}{
		"nothing":       {driver.DeadLetterFilter{}, []int64{0, 1, 2, 3, 4, 5, 6, 7, 90}},
		"ids":           {driver.DeadLetterFilter{IDs: []int64{id(6), id(1), 1 << 40}}, []int64{1, 6}},
		"id and place":  {driver.DeadLetterFilter{IDs: []int64{id(6), id(90)}, Partition: "1"}, []int64{90}},
		"partition":     {driver.DeadLetterFilter{Partition: "1"}, []int64{90}},
		"none of these": {driver.DeadLetterFilter{Partition: "01"}, nil},
		"status":        {driver.DeadLetterFilter{Status: []driver.DeadLetterStatus{driver.StatusRetry}}, []int64{1, 2}},
		"two statuses":  {driver.DeadLetterFilter{Status: []driver.DeadLetterStatus{driver.StatusRetry, driver.StatusDiscarded}}, []int64{1, 2, 3}},
		"key":           {driver.DeadLetterFilter{Key: "key 1"}, []int64{1, 3, 5, 7}},
		"part of a key": {driver.DeadLetterFilter{Key: "key"}, nil},
		"error":         {driver.DeadLetterFilter{ErrorContains: "divisION by"}, []int64{0, 4}},
		"percent":       {driver.DeadLetterFilter{ErrorContains: "0% OF A_"}, []int64{1, 5}},
		"since":         {driver.DeadLetterFilter{FailedSince: hour(6), Partition: "0"}, []int64{6, 7}},
		"before":        {driver.DeadLetterFilter{FailedBefore: hour(2)}, []int64{0, 1}},
		"from":          {driver.DeadLetterFilter{FirstSequence: new(int64(5))}, []int64{5, 6, 7, 90}},
		"to":            {driver.DeadLetterFilter{LastSequence: new(int64(2))}, []int64{0, 1, 2}},
		"after":         {driver.DeadLetterFilter{AfterID: id(6)}, []int64{7, 90}},
		"limit":         {driver.DeadLetterFilter{Limit: 3}, []int64{0, 1, 2}},
		"all at once":   {driver.DeadLetterFilter{Key: "key 0", ErrorContains: "no", FirstSequence: new(int64(3)), AfterID: id(2), Limit: 5}, []int64{6}},
	} {
		list, err := s.List(t.Context(), group, c.filter)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, d := range list {
			got = append(got, d.Event.Sequence)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: listed events %v, want %v", name, got, c.want)
		}
	}
	if list, err := s.List(t.Context(), driver.Group{Namespace: group.Namespace, Topic: group.Topic, Name: "other"}, driver.DeadLetterFilter{}); err != nil || len(list) > 0 {
		t.Errorf("of another group: %v, %v", list, err)
	}
}
