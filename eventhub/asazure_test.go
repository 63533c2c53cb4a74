package eventhub

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// asAzure is a broker with some of Azure's behaviours.
func asAzure(t *testing.T, behaviours emulator.EventHubsAsAzure) *broker {
	t.Helper()
	return newBroker(t, &emulator.Config{AsAzure: &emulator.AsAzure{Seed: 1, EventHubs: behaviours}})
}

// Runtime information that is out of date, or never there, stops nothing: what the broker says
// about a position counts.
func TestRuntimeInformationIsAdvice(t *testing.T) {
	receivers(t, func(t *testing.T) {
		for name, behaviours := range map[string]emulator.EventHubsAsAzure{
			"stale": {StaleRuntime: time.Hour},
			"none":  {NoRuntime: true},
		} {
			t.Run(name, func(t *testing.T) {
				b := asAzure(t, behaviours)
				s := b.source(nil)
				b.send("0", 0, 10, 100)
				if bounds, err := s.Bounds(b.now, "0"); err != nil || bounds.Last.Sequence != -1 {
					t.Fatalf("the broker's bounds are %+v, %v: nothing is tested", bounds, err)
				}
				events := b.read(b.open(s, "0", driver.Origin, 1), 10, 10)
				if e := b.read(b.open(s, "0", driver.Position{Sequence: 5}, 1), 1, 1)[0]; e.Sequence != 6 {
					t.Errorf("after 5 came %d", e.Sequence)
				}
				r := b.open(s, "0", events[9].Position(), 1)
				b.send("0", 10, 1, 100)
				if e := b.read(r, 1, 1)[0]; e.Sequence != 10 {
					t.Errorf("after 9 came %d", e.Sequence)
				}
				for _, after := range []driver.Position{{Sequence: 11}, {Sequence: 11, Offset: "99999999"}} {
					_, err := s.Open(b.now, "0", after, 1)
					if !errors.Is(err, driver.ErrPastEnd) {
						t.Errorf("open at %+v: %v, want past the end", after, err)
					}
				}
				b.ok("trim", b.Trim(hubName, "0", 4))
				for _, c := range []struct {
					start driver.Start
					want  int64
				}{
					{sluice.Earliest(), 3}, {sluice.Latest(), 10}, {sluice.FromSequence(8), 7}, {sluice.FromSequence(99), 10},
					{sluice.Ago(time.Hour), 3}, {sluice.At(time.Now().Add(time.Hour)), 10}, {sluice.FromOffset(events[6].Offset), 5}, {sluice.FromOffset("99999999"), 10},
				} {
					if at, err := s.Seek(b.now, "0", c.start, 2); err != nil || at.Sequence != c.want {
						t.Errorf("seek %v: %v, %v; want %d", c.start, at, err, c.want)
					}
				}
				_, err := b.open(s, "0", driver.Position{Sequence: 1}, 2).Read(b.now, 10)
				if gone, ok := errors.AsType[*driver.RetentionError](err); !ok || *gone != (driver.RetentionError{Partition: "0", After: 1, First: 4}) {
					t.Errorf("open before what is gone: %v", err)
				}
			})
		}
	})
}

// A link at the last event can begin with earlier events: the reader drops them. An event that
// comes again later is an error.
func TestEarlierEventsAreDropped(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := asAzure(t, emulator.EventHubsAsAzure{EarlierEvents: 5})
		s := b.source(nil)
		b.send("0", 0, 10, 100)
		at := b.read(b.open(s, "0", driver.Origin, 1), 10, 10)[9].Position()
		dropped := 0
		for i := range 10 {
			r := b.open(s, "0", at, 1).(*reader)
			b.send("0", 10+i, 1, 100)
			e := b.read(r, 1, 1)[0]
			if e.Sequence != at.Sequence+1 {
				t.Fatalf("after %v came %d", at, e.Sequence)
			}
			dropped += r.earlier
			at = e.Position()
		}
		if dropped == 0 {
			t.Error("no earlier event came: nothing is tested")
		}
	})
}

// An event that comes again after the beginning of a link is an error.
func TestLaterRepeatIsAnError(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		b.send("0", 0, 10, 100)
		r := b.open(b.source(nil), "0", driver.Position{Sequence: 4}, 1).(*reader)
		b.read(r, 2, 2)
		r.buffered, r.next = nil, 7
		r.buffer([]*driver.Event{{Sequence: 3}})
		_, err := r.Read(b.now, 1)
		checkMessage(t, fmt.Sprint(err), "hub flights, partition 0: event 3 came again where 7 was next, after 0 earlier events at the beginning of the link")
	})
}

// The beginning is where the broker begins, not where runtime information says.
func TestBeginningIsTheBrokers(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := asAzure(t, emulator.EventHubsAsAzure{InexactBeginning: 5})
		s := b.source(nil)
		b.send("0", 0, 30, 100)
		b.ok("trim", b.Trim(hubName, "0", 20))
		for range 5 {
			at, err := s.Seek(b.now, "0", sluice.Earliest(), 1)
			if err != nil || at.Sequence != 19 {
				t.Fatalf("earliest is %v, %v; want 19", at, err)
			}
		}
		b.read(b.open(s, "0", driver.Position{Sequence: 19}, 1), 10, 10)
	})
}

// A geo-replicated namespace is read at the stored offset. When another region was promoted
// and does not know the offset, the position belongs to another incarnation.
func TestGeoReplication(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := asAzure(t, emulator.EventHubsAsAzure{Geo: true})
		s := b.source(nil)
		b.send("0", 0, 10, 100)
		events := b.read(b.open(s, "0", driver.Origin, 1), 10, 10)
		again := func(at driver.Position) {
			t.Helper()
			if e := b.read(b.open(s, "0", at, 1), 1, 1)[0]; e.Sequence != at.Sequence+1 {
				t.Errorf("after %v came %d", at, e.Sequence)
			}
		}
		again(events[4].Position())
		b.ok("promote", second(b.Promote(false)))
		again(events[4].Position())
		b.ok("promote", second(b.Promote(true)))
		_, err := s.Open(b.now, "0", events[4].Position(), 1)
		promoted, ok := errors.AsType[*driver.PromotedError](err)
		if !ok || !errors.Is(err, driver.ErrRecreated) || promoted.Position != events[4].Position() {
			t.Fatalf("open at an offset of another epoch: %v", err)
		}
		checkMessage(t, err.Error(), "partition 0: hub flights refuses the offset "+events[4].Offset+" of event 4")
		checkMessage(t, err.Error(), "`sluice checkpoints set` at sequence 5")
		again(driver.Position{Sequence: 4})
		if at, err := s.Seek(b.now, "0", sluice.FromSequence(5), 2); err != nil || at.Sequence != 4 {
			t.Errorf("seek: %v, %v", at, err)
		}
		if _, err := s.Seek(b.now, "0", sluice.FromOffset(events[4].Offset), 2); !errors.Is(err, driver.ErrRefused) {
			t.Errorf("seek of an offset of another epoch: %v", err)
		}
	})
}

// A refusal that comes a moment after the link was attached says the same as an early one.
func TestLateRefusal(t *testing.T) {
	receivers(t, func(t *testing.T) {
		for _, late := range []time.Duration{0, 100 * time.Millisecond} {
			t.Run(late.String(), func(t *testing.T) {
				b := asAzure(t, emulator.EventHubsAsAzure{LateRefusal: late, StaleRuntime: time.Hour, Geo: true})
				s := b.source(nil)
				b.send("0", 0, 10, 100)
				at := b.read(b.open(s, "0", driver.Origin, 1), 10, 10)[4].Position()

				if end, err := s.Seek(b.now, "0", sluice.Latest(), 1); err != nil || end.Sequence != 9 {
					t.Errorf("latest is %v, %v; want 9", end, err)
				}
				err := b.refusal(s, "0", driver.Position{Sequence: 20}, 1)
				if !errors.Is(err, driver.ErrPastEnd) {
					t.Errorf("after the end: %v", err)
				}
				checkMessage(t, fmt.Sprint(err), "position 20, but the newest event is 9: check that it is the right hub, then set the checkpoint with `sluice checkpoints set`")

				b.ok("promote", second(b.Promote(true)))
				err = b.refusal(s, "0", at, 1)
				if promoted, ok := errors.AsType[*driver.PromotedError](err); !ok || promoted.Position != at {
					t.Errorf("at an offset of another epoch: %v", err)
				}
				b.open(s, "0", driver.Origin, 5)
				if err := b.refusal(s, "0", driver.Origin, 4); !errors.Is(err, driver.ErrStolen) {
					t.Errorf("in a lower epoch: %v", err)
				}
			})
		}
	})
}

// Seek asks a busy broker again: a command that needs one answer would fail otherwise.
func TestSeekRepeatsBusy(t *testing.T) {
	need.RealTime(t)
	receivers(t, func(t *testing.T) {
		b := asAzure(t, emulator.EventHubsAsAzure{RandomBusy: 0.2})
		s := b.source(nil)
		b.send("0", 0, 10, 100)
		for _, c := range []struct { // in this order the seed refuses requests and a link, none for long
			start driver.Start
			want  int64
		}{{sluice.Earliest(), -1}, {sluice.FromSequence(5), 4}, {sluice.Latest(), 9}} {
			if at, err := s.Seek(b.now, "0", c.start, 1); err != nil || at.Sequence != c.want {
				t.Errorf("seek %v: %v, %v; want %d", c.start, at, err, c.want)
			}
		}
	})
}
