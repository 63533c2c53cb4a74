package checkpoint_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

var group = sluice.Group{Namespace: "n", Topic: "t", Name: "g"}

// world is a topic of two partitions with ten events in the first, of which
// events 2 to 9 are still held, and a checkpoint at 5.
type world struct {
	hub    *sluicetest.Hub
	store  *sluicetest.Store
	leases *sluicetest.Leases
	table  *checkpoint.Table
}

func newWorld(t *testing.T) *world {
	w := &world{hub: sluicetest.NewHub(group, 2), store: &sluicetest.Store{}, leases: &sluicetest.Leases{}}
	for range 10 {
		w.hub.Append("0", sluicetest.Bodies("x")...)
		time.Sleep(time.Second)
	}
	w.hub.Trim("0", 2)
	w.table = &checkpoint.Table{Group: group, Source: w.hub, Leases: w.leases, Checkpoints: w.store, DeadLetters: w.store}
	topic, err := w.hub.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Reset(t.Context(), group, "0", topic.Incarnation, sluice.Position{Sequence: 5}, "set"); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) own(t *testing.T, partition string) sluice.Lease {
	t.Helper()
	l, err := w.leases.Acquire(t.Context(), group, partition, "rival", time.Minute, 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (w *world) checkpoint(t *testing.T, partition string) sluice.Checkpoint {
	t.Helper()
	all, err := w.store.Read(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Partition == partition {
			return p
		}
	}
	return sluice.Checkpoint{Position: driver.Unset}
}

func TestSetCountsWhatIsRepeatedAndSkipped(t *testing.T) {
	for _, c := range []struct {
		start             sluice.Start
		sequence          int64
		repeated, skipped int64
	}{
		{sluice.Earliest(), 1, 4, 0},
		{sluice.Latest(), 9, 0, 4},
		{sluice.FromSequence(6), 5, 0, 0},
		{sluice.FromSequence(4), 3, 2, 0},
		{sluice.FromSequence(8), 7, 0, 2},
		{sluice.FromSequence(100), 9, 0, 4},
	} {
		t.Run(c.start.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				before := w.checkpoint(t, "0")
				planned, err := w.table.Plan(t.Context(), "0", c.start, false)
				if err != nil {
					t.Fatal(err)
				}
				if p := w.checkpoint(t, "0"); p.Epoch != before.Epoch || p.Position != before.Position {
					t.Errorf("a plan has moved the checkpoint: %+v", p)
				}
				m, err := w.table.Set(t.Context(), "0", c.start, false)
				if err != nil {
					t.Fatal(err)
				}
				if !m.Begun || m.From.Sequence != 5 || m.To.Sequence != c.sequence || m.Repeated != c.repeated || m.Skipped != c.skipped || m.Recreated {
					t.Errorf("got %+v", m)
				}
				p := w.checkpoint(t, "0")
				if p.Position.Sequence != c.sequence || p.Epoch != m.Epoch || m.Epoch <= before.Epoch {
					t.Errorf("checkpoint is %+v", p)
				}
				planned.Epoch = m.Epoch
				if planned != m {
					t.Errorf("planned %+v, did %+v", planned, m)
				}
				w.own(t, "0") // fails unless the lease was given back
			})
		})
	}
}

// What becomes of the dead letters among the events depends on the delivery. At least once they are
// retried, because their events are not read again. Nobody retries what was discarded.
func TestSetCountsDeadLetters(t *testing.T) {
	for _, c := range []struct {
		atLeastOnce, inBatches bool
		repeated               int64
		retried                []int64 // the events
	}{
		{false, false, 2, nil},
		{true, false, 0, []int64{4}},
		{false, true, 2, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.table.AtLeastOnce, w.table.InBatches = c.atLeastOnce, c.inBatches
			of := func(partition, incarnation string, sequence int64, status sluice.DeadLetterStatus) sluice.DeadLetter {
				return sluice.DeadLetter{Group: group, Incarnation: incarnation, Status: status, Event: sluice.Event{Partition: partition, Sequence: sequence}}
			}
			here := w.checkpoint(t, "0").Incarnation
			if err := w.store.Park(t.Context(), []sluice.DeadLetter{
				of("0", here, 4, sluice.StatusDead), of("0", here, 5, sluice.StatusDiscarded), // these
				of("0", here, 3, sluice.StatusDead), of("0", here, 6, sluice.StatusDead),
				of("1", here, 5, sluice.StatusDead), of("0", "another", 5, sluice.StatusDead),
			}); err != nil {
				t.Fatal(err)
			}
			expect := func(m checkpoint.Move, err error, retried []int64) {
				t.Helper()
				if err != nil || m.DeadLetters != 1 || m.Discarded != 1 || m.Repeated != c.repeated || m.AtLeastOnce != c.atLeastOnce || m.InBatches != c.inBatches {
					t.Errorf("%+v: %+v, %v; want 1 dead letter, 1 discarded and %d events repeated", c, m, err, c.repeated)
				}
				letters, err := w.store.List(t.Context(), group, sluice.DeadLetterFilter{Status: []sluice.DeadLetterStatus{sluice.StatusRetry}})
				var got []int64
				for i := range letters {
					got = append(got, letters[i].Event.Sequence)
				}
				if err != nil || !slices.Equal(got, retried) {
					t.Errorf("%+v: the dead letters of events %v are retried, want %v", c, got, retried)
				}
			}
			m, err := w.table.Plan(t.Context(), "0", sluice.FromSequence(4), false)
			expect(m, err, nil)
			m, err = w.table.Set(t.Context(), "0", sluice.FromSequence(4), false)
			expect(m, err, c.retried)
		})
	}
}

// A checkpoint is set back over an event that is parked: after it the event is written, though the
// consumer passes over it in the log.
func TestSetBackWritesParkedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.table.AtLeastOnce = true
		var mu sync.Mutex
		var written []int64
		mended := false
		write := func(_ context.Context, e *sluice.Event) error {
			mu.Lock()
			defer mu.Unlock()
			if e.Sequence == 7 && !mended {
				return driver.Reject(errors.New("no"))
			}
			written = append(written, e.Sequence)
			return nil
		}
		run := func() []int64 {
			t.Helper()
			sink, err := sluice.Workers(4, write)
			if err != nil {
				t.Fatal(err)
			}
			c, err := sluice.New(w.hub, w.leases, sluice.AtLeastOnce(w.store, sluice.EventAsRecord, sink, nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			written = nil
			ran := make(chan error, 1)
			go func() { ran <- c.Run(t.Context()) }()
			time.Sleep(time.Minute)
			if err := errors.Join(c.Stop(t.Context()), <-ran); err != nil {
				t.Fatal(err)
			}
			slices.Sort(written)
			return written
		}
		if got := run(); !slices.Equal(got, []int64{6, 8, 9}) {
			t.Fatalf("events %v were written, want 6, 8 and 9", got)
		}
		m, err := w.table.Set(t.Context(), "0", sluice.FromSequence(7), false)
		if err != nil || m.Repeated != 2 || m.DeadLetters != 1 {
			t.Fatalf("set: %+v, %v; want 2 events repeated and 1 dead letter", m, err)
		}
		mended = true
		if got := run(); !slices.Equal(got, []int64{7, 8, 9}) {
			t.Errorf("events %v were written after the checkpoint was set back, want 7 to 9", got)
		}
		if letters, err := w.store.List(t.Context(), group, sluice.DeadLetterFilter{}); err != nil || len(letters) > 0 {
			t.Errorf("%d dead letters are left, %v", len(letters), err)
		}
	})
}

// unmarked are dead letters that cannot be marked.
type unmarked struct{ driver.DeadLetterStore }

func (unmarked) Redrive(context.Context, sluice.Group, sluice.DeadLetterFilter, time.Time) (int64, error) {
	return 0, errors.New("no answer")
}

func TestSetCannotMarkDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		letter := sluice.DeadLetter{Group: group, Incarnation: w.checkpoint(t, "0").Incarnation, Status: sluice.StatusDead, Event: sluice.Event{Partition: "0", Sequence: 4}}
		if err := w.store.Park(t.Context(), []sluice.DeadLetter{letter}); err != nil {
			t.Fatal(err)
		}
		w.table.AtLeastOnce, w.table.DeadLetters = true, unmarked{w.store}
		want := "the checkpoint of partition 0 is set, but not all of its 1 dead letters are marked for a retry: no answer: mark them with `sluice deadletters retry`"
		if _, err := w.table.Set(t.Context(), "0", sluice.Earliest(), false); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

func TestSetWhereNothingWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hub.Append("1", sluicetest.Bodies("a", "b", "c")...)
		m, err := w.table.Set(t.Context(), "1", sluice.FromSequence(2), false)
		if err != nil || m.Begun || m.Repeated != 0 || m.Skipped != 2 || w.checkpoint(t, "1").Position.Sequence != 1 {
			t.Errorf("got %+v, %v", m, err)
		}
	})
}

func TestSetRefusesWhileThereIsALiveOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		lease := w.own(t, "0")
		claimed, err := w.store.Claim(t.Context(), sluice.Lease{Group: group, Partition: "0", Owner: "rival", Epoch: lease.Epoch + 5}, w.checkpoint(t, "0").Incarnation)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range []func(context.Context, string, sluice.Start, bool) (checkpoint.Move, error){w.table.Set, w.table.Plan} {
			_, err := set(t.Context(), "0", sluice.Earliest(), false)
			var held *checkpoint.HeldError
			if !errors.As(err, &held) || !errors.Is(err, driver.ErrHeld) || held.Owner != "rival" || held.Left != time.Minute {
				t.Errorf("got %v", err)
			}
		}
		if p := w.checkpoint(t, "0"); p.Position.Sequence != 5 || p.Epoch != claimed.Epoch {
			t.Errorf("refused, but the checkpoint is %+v", p)
		}
		m, err := w.table.Set(t.Context(), "0", sluice.Earliest(), true)
		if err != nil || m.Fenced != "rival" || m.Epoch <= claimed.Epoch {
			t.Fatalf("by force: %+v, %v", m, err)
		}
		step := driver.Step{Lease: sluice.Lease{Group: group, Partition: "0", Owner: "rival", Epoch: claimed.Epoch}, From: sluice.Position{Sequence: 1}, To: sluice.Position{Sequence: 6}}
		if err := w.store.Commit(t.Context(), step, nil); !errors.Is(err, sluice.ErrFenced) {
			t.Errorf("the owner that was overridden commits: %v", err)
		}
		time.Sleep(time.Minute)
		if _, err := w.table.Set(t.Context(), "0", sluice.Earliest(), false); err != nil {
			t.Errorf("after the lease expired: %v", err)
		}
	})
}

// seekless is a source on which a seek ends the link of a partition's owner.
type seekless struct {
	driver.Source
	t *testing.T
}

func (s seekless) Seek(context.Context, string, sluice.Start, int64) (sluice.Position, error) {
	s.t.Error("the owner's link was ended")
	return sluice.Position{}, errors.New("seek")
}

// A dry run by force does not disturb the owner, and plans the same.
func TestDryRunLeavesTheOwnerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.own(t, "0")
		plan := func(start sluice.Start) (checkpoint.Move, error) {
			return w.table.Plan(t.Context(), "0", start, true)
		}
		dry := *w.table
		dry.DryRun, dry.Source = true, seekless{w.hub, t}
		for _, start := range []sluice.Start{sluice.Earliest(), sluice.Latest(), sluice.FromSequence(4), sluice.FromSequence(100)} {
			want, err := plan(start)
			if err != nil {
				t.Fatal(err)
			}
			got, err := dry.Plan(t.Context(), "0", start, true)
			// Runtime information has no offset of the oldest event.
			got.To.Offset, want.To.Offset = "", ""
			if err != nil || got != want {
				t.Errorf("%v: %+v, %v; want %+v", start, got, err, want)
			}
		}
		if _, err := dry.Plan(t.Context(), "0", sluice.Ago(time.Hour), true); err == nil || !strings.Contains(err.Error(), "while rival owns the partition") {
			t.Errorf("a time: %v", err)
		}
		if _, err := dry.Plan(t.Context(), "0", sluice.FromSequence(1), true); err == nil || !strings.Contains(err.Error(), "the oldest event is 2") {
			t.Errorf("an event that is gone: %v", err)
		}
	})
}

// A reader is left alone that has no lease: one whose lease has expired, or of another event
// processor.
func TestDryRunLeavesAReaderWithoutALeaseAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.table.DryRun = true
		hourAgo := sluice.Ago(time.Hour)
		if m, err := w.table.Plan(t.Context(), "0", hourAgo, false); err != nil || m.To.Sequence != 1 {
			t.Errorf("without a reader: %+v, %v; want 1", m, err)
		}
		r, err := w.hub.Open(t.Context(), "0", sluice.Position{Sequence: 5}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := w.table.Plan(t.Context(), "0", sluice.Earliest(), false); err != nil || m.To.Sequence != 1 || m.Repeated != 4 {
			t.Errorf("earliest: %+v, %v; want 1 and 4 events repeated", m, err)
		}
		if _, err := w.table.Plan(t.Context(), "0", hourAgo, false); err == nil || !strings.Contains(err.Error(), "while another process owns the partition") {
			t.Errorf("a time: %v", err)
		}
		offset := checkpoint.Foreign{Partition: "0", Sequence: -1, Offset: "100"}
		if _, err := w.table.PlanImport(t.Context(), offset, true); err == nil || !strings.Contains(err.Error(), "while another process owns the partition") {
			t.Errorf("an import of an offset: %v", err)
		}
		if events, err := r.Read(t.Context(), 10); err != nil || len(events) != 4 {
			t.Errorf("the reader has %d events, %v; want 4", len(events), err)
		}
	})
}

func TestSetOnARecreatedHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hub.Recreate()
		w.hub.Append("0", sluicetest.Bodies("a", "b", "c")...)
		rows, _, err := w.table.List(t.Context())
		if err != nil || !rows[0].Recreated || rows[0].Lag != 3 {
			t.Errorf("list: %+v, %v", rows, err)
		}
		m, err := w.table.Set(t.Context(), "0", sluice.FromSequence(1), false)
		if err != nil || !m.Recreated || m.Repeated != 0 || m.Skipped != 1 {
			t.Errorf("set: %+v, %v", m, err)
		}
		rows, _, err = w.table.List(t.Context())
		if err != nil || rows[0].Recreated || rows[0].Position.Sequence != 0 || rows[0].Lag != 2 {
			t.Errorf("list after it: %+v, %v", rows, err)
		}
	})
}

func TestSetRefusesWhatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for text, c := range map[string]struct {
			partition string
			start     sluice.Start
		}{
			"t has no partition 7: its partitions are 0, 1":                                                {"7", sluice.Earliest()},
			"partition 0: event 1 has passed retention: the oldest event is 2: use sequence 2 or earliest": {"0", sluice.FromSequence(1)},
		} {
			if _, err := w.table.Set(t.Context(), c.partition, c.start, false); err == nil || err.Error() != text {
				t.Errorf("got %v, want %s", err, text)
			}
		}
		w.own(t, "0") // fails unless the lease was given back
	})
}

// countOnly is dead letters that are too many to be listed.
type countOnly struct{ driver.DeadLetterStore }

func (countOnly) List(context.Context, sluice.Group, sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
	return nil, errors.New("a million dead letters")
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hub.Append("1", sluicetest.Bodies("a", "b", "c")...)
		lease := w.own(t, "0")
		w.own(t, "~0") // a member, which is no partition
		lease.Epoch += 10
		if _, err := w.store.Claim(t.Context(), lease, w.checkpoint(t, "0").Incarnation); err != nil {
			t.Fatal(err)
		}
		letter := sluice.DeadLetter{Group: group, Incarnation: w.checkpoint(t, "0").Incarnation, Status: sluice.StatusDead, Event: sluice.Event{Partition: "0", Sequence: 6}}
		at := sluice.Position{Sequence: 6}
		if err := w.store.Commit(t.Context(), driver.Step{Lease: lease, From: sluice.Position{Sequence: 5}, To: at, DeadLetters: []sluice.DeadLetter{letter}}, nil); err != nil {
			t.Fatal(err)
		}
		w.table.DeadLetters = countOnly{w.store}
		rows, hub, err := w.table.List(t.Context())
		if err != nil || hub != nil || len(rows) != 2 {
			t.Fatalf("%+v, %v, %v", rows, hub, err)
		}
		r := rows[0]
		if r.Partition != "0" || !r.Begun || r.Position != at || r.Lag != 3 || r.End != 9 || r.Owner != "rival" || r.LeaseLeft != time.Minute || r.Epoch != lease.Epoch || r.DeadLetters != 1 {
			t.Errorf("partition 0: %+v", r)
		}
		if r := rows[1]; r.Partition != "1" || r.Begun || r.Lag != 3 || r.Owner != "" {
			t.Errorf("partition 1: %+v", r)
		}

		w.table.Source = &absent{}
		rows, hub, err = w.table.List(t.Context())
		if err != nil || hub == nil || !strings.Contains(hub.Error(), "no route") || len(rows) != 1 || rows[0].Lag != -1 || rows[0].Position != at || rows[0].Recreated {
			t.Errorf("without the hub: %+v, %v, %v", rows, hub, err)
		}
	})
}

// absent is a hub that can't be reached.
type absent struct{ driver.Source }

func (*absent) Describe(context.Context) (sluice.Topic, error) {
	return sluice.Topic{}, errors.New("no route")
}
