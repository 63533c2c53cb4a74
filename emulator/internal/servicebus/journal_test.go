package servicebus

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

func open(t *testing.T, dir string, spare int64) *Broker {
	t.Helper()
	b, err := Open(dir, &Options{OnError: func(err error) { t.Errorf("in the background: %v", err) }, slack: spare})
	must(t, err)
	t.Cleanup(func() { b.Close() }) // a test that fails half-way leaves nothing running
	return b
}

// snapshot returns what a queue holds, by sequence number, as text.
func snapshot(t *testing.T, q *Queue) map[int64]string {
	t.Helper()
	all := make(map[int64]string)
	for _, s := range []*Store{q.Messages(), q.DeadLetters()} {
		ms, err := s.Peek(0, 1<<30, 1<<40, nil)
		must(t, err)
		for _, m := range ms {
			m.Enqueued, m.Expires, m.Scheduled = timeOf(m.Enqueued.UnixMilli()), time.Time{}, m.Scheduled.UTC()
			all[m.Sequence] = fmt.Sprintf("%t %+v %s", s.dead, m, m.Payload)
		}
	}
	return all
}

// All changes to messages and entities survive a restart.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, 0)
	q, err := b.CreateQueue("a/Orders", &QueueConfig{Lock: maxLock, MaxDeliveries: 3, Metadata: "mine", DuplicateWindow: time.Minute})
	must(t, err)
	s := q.Messages()
	send(t, q, "completed", "abandoned", "released", "buried", "deferred", "locked", "poison")
	must(t, q.Send([]Message{{Payload: []byte("scheduled"), Scheduled: time.Now().Add(time.Hour), TTL: time.Minute}, {Payload: []byte("short"), TTL: 24 * time.Hour, Session: "s", InSession: true}}))
	got := receive(t, s, "completed", "abandoned", "released", "buried", "deferred", "locked", "poison", "short")
	must(t, s.Complete(got[0].Token))
	must(t, s.Abandon(got[1].Token, func(p []byte) ([]byte, error) { return append([]byte("edited "), p...), nil }))
	must(t, s.Release(got[2].Token))
	must(t, s.DeadLetter(got[3].Token, "odd", "very odd", nil))
	must(t, s.Settle(got[4].Token, Settlement{Outcome: Defer}).Wait())
	must(t, s.Abandon(got[6].Token, nil))
	for range 2 {
		all, err := s.Receive(100, 1<<20)
		must(t, err)
		for _, l := range all {
			if string(l.Payload) == "poison" {
				must(t, s.Abandon(l.Token, nil))
			} else {
				must(t, s.Release(l.Token))
			}
		}
	}
	topic, err := b.CreateTopic("news", &TopicConfig{Status: ReceiveDisabled})
	must(t, err)
	for _, name := range []string{"one", "two", "gone"} {
		_, err := topic.Subscribe(name, &QueueConfig{Sessions: name == "two"})
		must(t, err)
	}
	must(t, topic.Send([]Message{{Payload: []byte("to all"), Session: "s", InSession: true}, {Payload: []byte("no session")}, {Payload: []byte("later"), Scheduled: time.Now().Add(time.Hour)}}))
	must(t, topic.Configure(&TopicConfig{TTL: time.Hour}))
	must(t, topic.Unsubscribe("gone"))
	two, _ := topic.Subscription("two")
	held, err := two.Messages().AcceptSession("s")
	must(t, err)
	must(t, two.Messages().SetSessionState("s", []byte("state")).Wait())
	held.Release()
	_, err = b.CreateQueue("deleted", nil)
	must(t, err)
	must(t, b.Delete("deleted"))
	_, err = b.CreateQueue("deleted", nil) // a new one, empty
	must(t, err)

	want := []map[int64]string{snapshot(t, q), snapshot(t, two), snapshot(t, topic.scheduled)}
	for round := range 3 {
		must(t, b.Close())
		b = open(t, dir, 0)
		q, ok := b.Queue("A/orders")
		if !ok || q.Name() != "a/Orders" || q.Config() != (QueueConfig{Lock: maxLock, MaxDeliveries: 3, MaxBytes: defaultMaxBytes, Metadata: "mine", DuplicateWindow: time.Minute}) {
			t.Fatalf("round %d: the queue is %t, %+v", round, ok, q.Config())
		}
		topic, ok := b.Topic("news")
		if !ok || topic.Config().TTL != time.Hour || topic.Config().Status != Enabled || len(topic.Subscriptions()) != 2 {
			t.Fatalf("round %d: the topic is %t", round, ok)
		}
		two, _ := topic.Subscription("two")
		for i, of := range []*Queue{q, two, topic.scheduled} {
			if got := snapshot(t, of); !maps.Equal(got, want[i]) {
				t.Fatalf("round %d: %s holds\n%v, not\n%v", round, of.Name(), got, want[i])
			}
		}
		if c := q.Counts(); c.Active != 5 || c.DeadLetters != 2 || c.Scheduled != 1 {
			t.Fatalf("round %d: counts %+v", round, c)
		}
		held, err := two.Messages().AcceptSession("s")
		must(t, err)
		if state, err := two.Messages().SessionState("s"); err != nil || string(state) != "state" {
			t.Fatalf("round %d: state %q, %v", round, state, err)
		}
		held.Release()
		if empty, ok := b.Queue("deleted"); !ok || empty.Counts() != (Counts{}) {
			t.Fatalf("round %d: a queue that was created again holds %+v", round, empty.Counts())
		}
		if round == 0 {
			must(t, b.compact())
		}
	}
	q, _ = b.Queue("a/orders")
	send(t, q, "new")
	if ms, err := q.Messages().Peek(10, 1, 1, nil); err != nil || len(ms) != 1 || ms[0].Sequence != 10 {
		t.Fatalf("the next message is %+v: %v", ms, err)
	}
	must(t, b.Close())
	if err := q.Send([]Message{{Payload: []byte("too late")}}); !errors.Is(err, disklog.ErrClosed) {
		t.Fatalf("sent to a closed broker: %v", err)
	}
}

// TestJournalModel does random operations, compactions and restarts: everything
// confirmed is there afterwards, and nothing else. SLUICE_BUS_SEEDS sets the number of
// histories.
func TestJournalModel(t *testing.T) {
	seeds := uint64(4)
	if text := os.Getenv("SLUICE_BUS_SEEDS"); text != "" {
		var err error
		seeds, err = strconv.ParseUint(text, 10, 32)
		must(t, err)
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 7))
		dir := t.TempDir()
		b := open(t, dir, 4<<10)
		topic, err := b.CreateTopic("t", nil)
		must(t, err)
		for _, name := range []string{"x", "y"} {
			_, err := topic.Subscribe(name, &QueueConfig{MaxDeliveries: 3, Lock: maxLock})
			must(t, err)
		}
		for step := range 120 {
			topic, _ := b.Topic("t")
			q := topic.Subscriptions()[r.IntN(2)]
			switch r.IntN(12) {
			case 0, 1, 2, 3:
				ms := make([]Message, 1+r.IntN(4))
				for i := range ms {
					ms[i].Payload = fmt.Appendf(nil, "%d/%d %s", step, i, make([]byte, r.IntN(200)))
					if r.IntN(8) == 0 {
						ms[i].Scheduled = time.Now().Add(time.Duration(r.IntN(10)) * time.Millisecond)
					}
				}
				must(t, topic.Send(ms))
			case 4, 5, 6, 7, 8:
				got, err := q.Messages().Receive(1+r.IntN(4), 1<<20)
				must(t, err)
				for _, l := range got {
					must(t, q.Messages().Settle(l.Token, Settlement{Outcome: Outcome(r.IntN(5)), Reason: "r"}).Wait())
				}
			case 9:
				got, err := q.DeadLetters().Receive(2, 1<<20)
				must(t, err)
				for _, l := range got {
					must(t, q.DeadLetters().Complete(l.Token))
				}
			case 10:
				must(t, b.compact())
			case 11:
				for topic.Counts().Scheduled > 0 { // the due times differ between runs
				}
				before := []map[int64]string{snapshot(t, topic.Subscriptions()[0]), snapshot(t, topic.Subscriptions()[1])}
				must(t, b.Close())
				b = open(t, dir, 4<<10)
				topic, _ = b.Topic("t")
				for i, q := range topic.Subscriptions() {
					if after := snapshot(t, q); !maps.Equal(after, before[i]) {
						t.Fatalf("seed %d, step %d: %s holds %d messages, not %d:\n%v\n%v", seed, step, q.Name(), len(after), len(before[i]), after, before[i])
					}
					if q.bytes != sizeOf(t, q) {
						t.Fatalf("seed %d: %d bytes, not %d", seed, q.bytes, sizeOf(t, q))
					}
				}
			}
		}
		must(t, b.Close())
	}
}

// A message can't be received before it is on disk: otherwise a receiver could have a
// message that a crash removes.
func TestUnwritten(t *testing.T) {
	b := open(t, t.TempDir(), 0)
	defer b.Close()
	q, err := b.CreateQueue("q", nil)
	must(t, err)
	_, sent := q.Submit([]Message{{Payload: []byte("a")}})
	receive(t, q.Messages())
	if ms, err := q.Messages().Peek(0, 10, 10, nil); err != nil || len(ms) != 0 {
		t.Fatalf("peeked %d messages: %v", len(ms), err)
	}
	must(t, sent.Wait())
	got := receive(t, q.Messages(), "a")
	completed := q.Messages().Settle(got[0].Token, Settlement{Outcome: Complete})
	receive(t, q.Messages())
	must(t, completed.Wait())
	counts(t, q, 0, 0)
}

// A message whose write fails is removed again, and a message whose completion can't be
// written is added again.
func TestFailedWrite(t *testing.T) {
	b, err := Open(t.TempDir(), nil)
	must(t, err)
	q, err := b.CreateQueue("q", nil)
	must(t, err)
	send(t, q, "a")
	got := receive(t, q.Messages(), "a")
	_, sent := q.Submit([]Message{{Payload: []byte("b")}})
	completed := q.Messages().Settle(got[0].Token, Settlement{Outcome: Complete})
	must(t, b.journal.log.Close())
	for what, r := range map[string]Receipt{"sent": sent, "completed": completed} {
		if err := r.Wait(); !errors.Is(err, disklog.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ms, err := q.Messages().Peek(0, 10, 10, nil)
	if err != nil || len(ms) != 1 || string(ms[0].Payload) != "a" {
		t.Errorf("the queue has %d messages: %v", len(ms), err)
	}
	counts(t, q, 1, 0)
	_ = b.Close() // it can't write from now on
}

// A message that a topic can't write is in none of its subscriptions.
func TestFailedTopic(t *testing.T) {
	b, err := Open(t.TempDir(), nil)
	must(t, err)
	topic, err := b.CreateTopic("t", nil)
	must(t, err)
	for _, name := range []string{"one", "two"} {
		_, err := topic.Subscribe(name, nil)
		must(t, err)
	}
	must(t, b.Close())
	if err := topic.Send([]Message{{Payload: []byte("to all")}}); !errors.Is(err, disklog.ErrClosed) {
		t.Fatalf("sent to a closed broker: %v", err)
	}
	for _, q := range topic.Subscriptions() {
		if c := q.Counts(); c != (Counts{}) {
			t.Errorf("%s holds %+v", q.Name(), c)
		}
	}
}

func sizeOf(t *testing.T, q *Queue) (size int64) {
	for _, s := range []*Store{q.Messages(), q.DeadLetters()} {
		ms, err := s.Peek(0, 1<<30, 1<<40, nil)
		must(t, err)
		for _, m := range ms {
			size += int64(len(m.Payload) + len(m.Reason) + len(m.Description))
		}
	}
	return size
}

// The journal stays small, however many messages pass through it.
func TestCompaction(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, 256<<10)
	q, err := b.CreateQueue("q", nil)
	must(t, err)
	send(t, q, "stays")
	stay := receive(t, q.Messages(), "stays")[0]
	const senders, each = 4, 200
	payload := make([]byte, 10_000)
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for range each {
				if err := q.Send([]Message{{Payload: payload}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for done := 0; done < senders*each; {
		must(t, q.Messages().Wait(t.Context()))
		got, err := q.Messages().Receive(50, 1<<20)
		must(t, err)
		for _, l := range got {
			must(t, q.Messages().Complete(l.Token))
			done++
		}
	}
	wg.Wait()
	must(t, q.Messages().Release(stay.Token))
	// The limit follows from the former size: the journal is compacted at twice that.
	written := func() int64 {
		b.journal.mu.Lock()
		defer b.journal.mu.Unlock()
		return b.journal.written
	}
	for compacted := time.Now().Add(time.Minute); written() > 256<<10; {
		if time.Now().After(compacted) {
			t.Fatalf("the journal has %d bytes", written())
		}
		must(t, q.Send([]Message{{Payload: payload}, {Payload: payload}, {Payload: payload}}))
		got, err := q.Messages().Receive(4, 1<<20)
		must(t, err)
		for _, l := range got {
			if string(l.Payload) == "stays" {
				must(t, q.Messages().Release(l.Token))
			} else {
				must(t, q.Messages().Complete(l.Token))
			}
		}
	}
	must(t, b.Close())
	b = open(t, dir, 0)
	q, _ = b.Queue("q")
	receive(t, q.Messages(), "stays")
	must(t, b.Close())
}

// A journal that is cut off anywhere holds what was confirmed up to there: no half
// message, none twice.
func TestTornEnd(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, 0)
	q, err := b.CreateQueue("q", nil)
	must(t, err)
	var sizes []int64 // of the journal's file, by messages confirmed
	file := func(dir string) string {
		files, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil || len(files) == 0 {
			all, _ := filepath.Glob(filepath.Join(dir, "*"))
			t.Fatalf("segments %q of %q: %v", files, all, err)
		}
		return files[0]
	}
	end := func() int64 { return b.journal.log.Info().End }
	sizes = append(sizes, end())
	for i := range 10 {
		send(t, q, fmt.Sprint("message ", i))
		sizes = append(sizes, end())
	}
	whole, err := os.ReadFile(file(dir))
	must(t, err)
	header := int64(64)
	for cut := sizes[0]; cut < sizes[10]; cut += 13 {
		torn := t.TempDir()
		must(t, os.WriteFile(filepath.Join(torn, filepath.Base(file(dir))), whole[:header+cut], 0o666))
		b := open(t, torn, 0)
		q, ok := b.Queue("q")
		if !ok {
			t.Fatalf("cut at %d: no queue", cut)
		}
		want, _ := slices.BinarySearch(sizes, cut+1)
		if c := q.Counts(); c.Active != int64(want-1) {
			t.Fatalf("cut at %d: %d messages, not %d", cut, c.Active, want-1)
		}
		must(t, b.Close())
	}
	must(t, b.Close())
}

func FuzzRecord(f *testing.F) {
	q := newQueue(7, "q", QueueConfig{}, nil, nil)
	e := &entry{Message: Message{Sequence: 3, TTL: time.Second, Session: "s", InSession: true, State: Scheduled, Scheduled: time.UnixMilli(9), Reason: "r"}, store: q.DeadLetters()}
	var n changes
	n.message(7, e)
	n.update(7, e, true)
	n.remove(7, 3)
	n.enqueue(7, 3, 4, 5)
	n.sessionState(7, "s", nil)
	n.deleteEntity(7)
	n.define(q.definition())
	for _, r := range n.records {
		f.Add(r.Key, r.Payload)
	}
	f.Fuzz(func(t *testing.T, key string, payload []byte) {
		if r, err := parseRecord(key); err == nil && len(r.targets) > len(key) {
			t.Fatalf("%d targets of %d bytes", len(r.targets), len(key))
		}
		b := &Broker{queues: make(map[string]*Queue), topics: make(map[string]*Topic)}
		all := make(map[uint64]*recovery)
		_ = b.replay(all, &disklog.Stored{Key: key, Payload: payload}) // must not panic
		_, _ = b.build(all)
	})
}
