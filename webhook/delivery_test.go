package webhook

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sluicetest"
)

var group = sluice.Group{Namespace: "test", Topic: "flights", Name: "g"}

// delivery is a consumer that posts what is in a hub.
type delivery struct {
	t     *testing.T
	hub   *sluicetest.Hub
	store *sluicetest.Store
	v     *receiver
	total int
}

// deliver appends n events to each of two partitions. Every event has a key of its own.
func deliver(t *testing.T, n int) *delivery {
	d := &delivery{t: t, hub: sluicetest.NewHub(group, 2), store: &sluicetest.Store{}, v: newReceiver(t), total: 2 * n}
	for p := range 2 {
		for i := range n {
			d.hub.Append(strconv.Itoa(p), &sluice.Event{Key: fmt.Sprint(p, i), Body: []byte(`{}`)})
		}
	}
	return d
}

// run delivers until every event is at the receiver or a dead letter, and returns these.
func (d *delivery) run(cfg *Config, atLeastOnce *sluice.AtLeastOnceConfig) []sluice.DeadLetter {
	d.t.Helper()
	return d.runAs(cfg, func(sink *Sink) sluice.Delivery {
		return sluice.AtLeastOnce(d.store, Messages, sink, atLeastOnce)
	})
}

// runBatches is run with the handler of Batches.
func (d *delivery) runBatches(cfg *Config) []sluice.DeadLetter {
	d.t.Helper()
	return d.runAs(cfg, func(sink *Sink) sluice.Delivery { return sluice.Batches(d.store, sink.Handler(Messages), nil) })
}

func (d *delivery) runAs(cfg *Config, delivery func(*Sink) sluice.Delivery) []sluice.DeadLetter {
	d.t.Helper()
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.Transport = d.v
	sink := open(d.t, "http://test/api", &c)
	quiet := slog.New(slog.DiscardHandler)
	consumer, err := sluice.New(d.hub, &sluicetest.Leases{}, delivery(sink), &sluice.Config{Partitions: sluice.AllPartitions, Logger: quiet})
	if err != nil {
		d.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(d.t.Context()) }()
	var letters []sluice.DeadLetter
	for began := time.Now(); ; time.Sleep(time.Second) {
		if letters, err = d.store.List(d.t.Context(), group, sluice.DeadLetterFilter{Status: []sluice.DeadLetterStatus{driver.StatusDead}}); err != nil {
			d.t.Fatal(err)
		}
		if d.v.distinct()+len(letters) >= d.total {
			break
		}
		if time.Since(began) > time.Hour {
			d.t.Errorf("%d of %d events are at the receiver, %d are dead letters", d.v.distinct(), d.total, len(letters))
			break
		}
	}
	if err := consumer.Stop(d.t.Context()); err != nil {
		d.t.Error(err)
	}
	if err := <-ended; err != nil {
		d.t.Error(err)
	}
	return letters
}

// oneIn5 returns a function that returns true at random, once in five calls.
func oneIn5(seed uint64) func() bool {
	var mu sync.Mutex // the requests of two partitions come at once
	random := rand.New(rand.NewPCG(seed, 0))
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(5) == 0
	}
}

// distinct returns how many events the receiver has stored, of all partitions.
func (v *receiver) distinct() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.events)
}

// TestTroubledReceiver: whatever the receiver does, no event is lost, and the dead letters are
// exactly the events that it can't take.
func TestTroubledReceiver(t *testing.T) {
	poison := []int64{17, 400, 401}
	hit := func(ids []int64) bool {
		return slices.ContainsFunc(ids, func(id int64) bool { return slices.Contains(poison, id) })
	}
	status := func(code int) func(*receiver, http.ResponseWriter, *http.Request, []int64) bool {
		return func(_ *receiver, w http.ResponseWriter, _ *http.Request, ids []int64) bool {
			if hit(ids) {
				w.WriteHeader(code)
				return true
			}
			return false
		}
	}
	loses := oneIn5(1)
	downFor := func(d time.Duration, how func(w http.ResponseWriter)) func(*receiver, http.ResponseWriter, *http.Request, []int64) bool {
		var once sync.Once
		var from time.Time
		return func(v *receiver, w http.ResponseWriter, _ *http.Request, _ []int64) bool {
			once.Do(func() { from = time.Now() })
			if at := time.Since(from); at > 100*time.Millisecond && at < d {
				how(w)
				return true
			}
			time.Sleep(10 * time.Millisecond)
			return false
		}
	}
	for _, c := range []struct {
		name   string
		answer func(*receiver, http.ResponseWriter, *http.Request, []int64) bool
		poison bool
	}{
		{"refuses with 422", status(422), true},
		{"fails with 500", status(500), true},
		{"dies", func(_ *receiver, _ http.ResponseWriter, _ *http.Request, ids []int64) bool {
			if hit(ids) {
				panic(http.ErrAbortHandler)
			}
			return false
		}, true},
		{"names them", func(v *receiver, w http.ResponseWriter, r *http.Request, ids []int64) bool {
			answerPerEvent(w, r, ids, func(id int64) bool { return slices.Contains(poison, id) }, v)
			return true
		}, true},
		{"down for a minute", downFor(time.Minute, func(w http.ResponseWriter) { w.WriteHeader(503) }), false},
		{"500 for a minute", downFor(time.Minute, func(w http.ResponseWriter) { w.WriteHeader(500) }), false},
		{"404 for an hour", downFor(50*time.Minute, func(w http.ResponseWriter) { w.WriteHeader(404) }), false},
		{"throttles", downFor(time.Minute, func(w http.ResponseWriter) { w.Header().Set("Retry-After", "20"); w.WriteHeader(429) }), false},
		{"redirects for a minute", downFor(time.Minute, func(w http.ResponseWriter) { w.Header().Set("Location", "/x"); w.WriteHeader(302) }), false},
		{"slow", func(_ *receiver, _ http.ResponseWriter, _ *http.Request, ids []int64) bool {
			time.Sleep(time.Duration(len(ids)) * 100 * time.Millisecond)
			return false
		}, false},
		{"loses every fifth answer", func(v *receiver, _ http.ResponseWriter, r *http.Request, ids []int64) bool {
			time.Sleep(time.Millisecond)
			if loses() {
				v.store(r.Header.Get("Sluice-Source"), ids...)
				panic(http.ErrAbortHandler)
			}
			return false
		}, false},
	} {
		for name, run := range map[string]func(d *delivery) []sluice.DeadLetter{
			"order key": func(d *delivery) []sluice.DeadLetter { return d.run(nil, nil) },
			"order none": func(d *delivery) []sluice.DeadLetter {
				return d.run(nil, &sluice.AtLeastOnceConfig{Order: sluice.OrderNone})
			},
			"batches": func(d *delivery) []sluice.DeadLetter { return d.runBatches(nil) },
		} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := deliver(t, 600)
					d.v.answer = func(w http.ResponseWriter, r *http.Request, ids []int64) bool { return c.answer(d.v, w, r, ids) }
					var got []int64
					for _, l := range run(d) {
						if got = append(got, l.Event.Sequence); l.Group != group {
							t.Errorf("dead letter %+v", l)
						}
					}
					slices.Sort(got)
					var want []int64
					if c.poison {
						want = []int64{17, 17, 400, 400, 401, 401} // of two partitions
					}
					if !slices.Equal(got, want) {
						t.Errorf("dead letters %v, want %v", got, want)
					}
				})
			})
		}
	}
}

// TestIdentity: an event has the same source and id each time, and the attempts count up. The
// source is another one after the hub is recreated.
func TestIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deliver(t, 10)
		failures := 0
		d.v.answer = func(w http.ResponseWriter, _ *http.Request, _ []int64) bool {
			if failures++; failures < 4 {
				w.WriteHeader(500)
				return true
			}
			return false
		}
		d.run(&Config{Concurrency: 1}, nil)
		topic, err := d.hub.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		attempts := map[string]int{}
		for _, r := range d.v.requests {
			source := r.header.Get("Sluice-Source")
			if want := "//test/flights/" + topic.Incarnation + "/" + r.header.Get("Sluice-Partition"); source != want || r.header.Get("Sluice-Epoch") != "1" {
				t.Errorf("source %s, want %s; epoch %s", source, want, r.header.Get("Sluice-Epoch"))
			}
			most := 0
			for _, e := range r.events {
				key := e.Source + " " + e.ID
				if attempts[key]++; e.Attempt != attempts[key] || e.Source != source {
					t.Errorf("%s: attempt %d, want %d", key, e.Attempt, attempts[key])
				}
				most = max(most, e.Attempt)
			}
			if r.header.Get("Sluice-Attempt") != strconv.Itoa(most) || r.header.Get("Sluice-First") != fmt.Sprint(r.ids[0]) ||
				r.header.Get("Sluice-Last") != fmt.Sprint(r.ids[len(r.ids)-1]) || r.header.Get("Sluice-Count") != fmt.Sprint(len(r.ids)) || !slices.IsSorted(r.ids) {
				t.Errorf("headers %v of %v", r.header, r.ids)
			}
		}
		if len(attempts) != 20 {
			t.Errorf("%d events", len(attempts))
		}
	})
}

// TestIncarnationOfRedrives: a dead letter of the hub before it was recreated keeps its identity.
func TestIncarnationOfRedrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deliver(t, 3)
		d.v.answer = func(w http.ResponseWriter, r *http.Request, ids []int64) bool {
			answerPerEvent(w, r, ids, func(id int64) bool { return id == 1 }, d.v)
			return true
		}
		letters := d.run(nil, nil)
		topic, _ := d.hub.Describe(t.Context())
		if len(letters) != 2 || letters[0].Incarnation != topic.Incarnation {
			t.Fatalf("dead letters %+v", letters)
		}
		time.Sleep(time.Second)
		d.hub.Recreate()
		now, _ := d.hub.Describe(t.Context())
		if now.Incarnation == topic.Incarnation {
			t.Fatal("the incarnation is the same")
		}
		for p := range 2 {
			d.hub.Append(strconv.Itoa(p), &sluice.Event{Body: []byte(`{}`)})
			if _, err := d.store.Reset(t.Context(), group, strconv.Itoa(p), now.Incarnation, sluice.Position{Sequence: -1}, "set"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.store.Redrive(t.Context(), group, sluice.DeadLetterFilter{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		d.v.set(nil)
		d.total = 8
		if letters := d.run(nil, nil); len(letters) != 0 {
			t.Errorf("dead letters %+v", letters)
		}
		for p := range 2 {
			for _, key := range []string{fmt.Sprintf("//test/flights/%s/%d 1", topic.Incarnation, p), fmt.Sprintf("//test/flights/%s/%d 0", now.Incarnation, p)} {
				if d.v.events[key] != 1 {
					t.Errorf("%s was stored %d times: %v", key, d.v.events[key], d.v.events)
				}
			}
		}
	})
}

// TestOrder: events of one key are posted one after the other, in order, and with order partition
// all events of a partition are.
func TestOrder(t *testing.T) {
	for name, run := range map[string]func(d *delivery) []sluice.DeadLetter{
		"key": func(d *delivery) []sluice.DeadLetter { return d.run(nil, nil) },
		"partition": func(d *delivery) []sluice.DeadLetter {
			return d.run(nil, &sluice.AtLeastOnceConfig{Order: sluice.OrderPartition})
		},
		"batches": func(d *delivery) []sluice.DeadLetter { return d.runBatches(&Config{MaxEvents: 7}) },
	} {
		synctest.Test(t, func(t *testing.T) {
			d := deliver(t, 0)
			for i := range 60 {
				d.hub.Append("0", &sluice.Event{Key: strconv.Itoa(i % 3), Body: []byte(`{}`)})
			}
			d.total = 60
			var mu sync.Mutex
			last, failures, rng := map[int64]int64{}, 0, need.Rand(t)
			d.v.answer = func(w http.ResponseWriter, _ *http.Request, ids []int64) bool {
				mu.Lock()
				takes := rng.Int64N(50)
				mu.Unlock()
				time.Sleep(time.Duration(takes) * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if failures++; failures%4 == 0 {
					w.WriteHeader(500)
					return true
				}
				for _, id := range ids {
					key := id % 3
					if name != "key" {
						key = 0
					}
					if before, ok := last[key]; ok && id <= before {
						t.Errorf("event %d after %d", id, before)
					}
					last[key] = id
				}
				return false
			}
			if letters := run(d); len(letters) != 0 {
				t.Errorf("dead letters %+v", letters)
			}
		})
	}
}
