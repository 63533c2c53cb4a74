package stamp_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// message is an event of the next hub, as an emitter has sent it.
func message(stamp stamp.Stamp) *sluice.Event {
	stamp.ID.Source, stamp.ID.Partition = "flights@12ab"+stamp.ID.Source, "0"+stamp.ID.Partition
	e := &sluice.Event{Properties: map[string]any{}, Body: []byte("good")}
	stamp.SetTo(e.Properties)
	return e
}

// stampOf is the stamp of an event's first message.
func stampOf(sequence, epoch, low int64) stamp.Stamp {
	return stamp.Stamp{ID: stamp.CausationID{Sequence: sequence}, Epoch: epoch, Low: low}
}

func retried(sequence int64) stamp.Stamp {
	return stamp.Stamp{ID: stamp.CausationID{Sequence: sequence}, Epoch: 1, Low: 1000, Redrive: true}
}

// dropped is an event whose stamp was taken off.
func dropped(e *sluice.Event) *sluice.Event {
	stamp.Drop(e.Properties)
	return e
}

// parked is a stamp that names dead letters.
func parked(s stamp.Stamp, which string) stamp.Stamp {
	s.Parked = which
	return s
}

// pass hands what is in the hub to consumers that come and go, and returns
// which events were handled.
func (s *scene) pass(maxBatch, consumers int) []int64 {
	for n := range consumers {
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(s.Store, sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
			if n < consumers-1 && e.Sequence > int64((n+1)*4) {
				return driver.Outage(errors.New("for the next consumer")) // tried again and again, until that one stops
			}
			return tx.Insert("rows", e.Sequence)
		})), &sluice.Config{Owner: fmt.Sprint("c", n), MaxBatch: maxBatch, Observer: s, Attempts: 1 << 30, StampsFrom: s.StampsFrom}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(s.T.Context()) }()
		time.Sleep(time.Minute)
		if err := errors.Join(c.Stop(s.T.Context()), <-ran); err != nil {
			s.T.Error(err)
		}
	}
	return s.Rows()
}

// What counts as a repeat depends on the log alone: not on how it is cut into
// batches, nor on how many owners share the work.
func TestRepeats(t *testing.T) {
	other := func(change func(id *stamp.CausationID)) stamp.Stamp {
		s := stampOf(5, 1, 4)
		change(&s.ID)
		return s
	}
	type log = []*sluice.Event
	for name, c := range map[string]struct {
		log  log
		want []int64
	}{
		"the first of an id is handled": {
			log{message(stampOf(5, 1, 4)), message(stampOf(6, 1, 4)), message(stampOf(5, 1, 4)), message(stampOf(5, 2, 4)), message(stampOf(6, 1, 5))}, []int64{0, 1},
		},
		"repeats alone, and at both ends": {
			log{message(stampOf(5, 1, 4)), message(stampOf(5, 1, 4)), message(stampOf(5, 1, 4)), message(stampOf(6, 1, 4)), message(stampOf(7, 1, 4)), message(stampOf(7, 1, 4)), message(stampOf(7, 1, 4))},
			[]int64{0, 3, 4},
		},
		"ids differ in each of their parts": {
			log{
				message(stampOf(5, 1, 4)), message(other(func(id *stamp.CausationID) { id.N = 1 })), message(other(func(id *stamp.CausationID) { id.Partition = "1" })),
				message(other(func(id *stamp.CausationID) { id.Source = "x" })), message(other(func(id *stamp.CausationID) { id.N = 1 })),
			},
			[]int64{0, 1, 2, 3},
		},
		"what lies below the watermark was there before": {
			log{message(stampOf(10, 1, 9)), message(stampOf(5, 1, 4)), message(stampOf(9, 1, 4)), message(stampOf(11, 1, 10)), message(stampOf(10, 1, 9)), message(stampOf(12, 1, 10))},
			[]int64{0, 3, 5},
		},
		"a lower epoch's late write is judged by its id, and its watermark does not count": {
			log{message(stampOf(10, 2, 5)), message(stampOf(11, 1, 9)), message(stampOf(8, 2, 5)), message(stampOf(11, 2, 5)), message(stampOf(5, 1, 4))},
			[]int64{0, 1, 2},
		},
		"epochs that begin anew lose nothing": {
			log{message(stampOf(10, 57, 9)), message(stampOf(11, 1, 10)), message(stampOf(12, 1, 11)), message(stampOf(12, 1, 11)), message(stampOf(13, 2, 11))},
			[]int64{0, 1, 2, 4},
		},
		"a checkpoint that was set back repeats on purpose": {
			log{
				message(stampOf(10, 1, 9)), message(stampOf(12, 1, 11)), message(stampOf(13, 1, 11)), message(stampOf(11, 2, 8)), message(stampOf(12, 2, 8)), message(stampOf(12, 2, 9)),
				message(stampOf(13, 3, 9)), message(stampOf(13, 2, 9)), message(stampOf(8, 3, 7)),
			},
			[]int64{0, 1, 2, 3, 4, 6},
		},
		"a checkpoint that was set back without a new epoch repeats only what fails then": {
			log{
				message(stampOf(1, 2, 0)), message(stampOf(6, 2, 0)), message(stampOf(100, 2, 99)), message(stampOf(6, 2, 0)), message(parked(stampOf(300, 2, 299), "-1/0:1")),
				message(retried(1)), message(retried(1)),
			},
			[]int64{0, 1, 2, 4, 5},
		},
		"a checkpoint that was set back and has passed the last one again repeats only what fails then": {
			log{message(stampOf(1, 2, 0)), message(stampOf(6, 2, 0)), message(stampOf(100, 2, 99)), message(parked(stampOf(103, 3, 102), "-1/0:1")), message(stampOf(6, 3, 0)), message(retried(1)), message(retried(1))},
			[]int64{0, 1, 2, 3, 5},
		},
		"retries of dead letters come below the watermark": {
			log{message(stampOf(20, 1, 19)), message(retried(3)), message(retried(3)), message(stampOf(3, 1, 2)), message(retried(20)), message(retried(40)), message(stampOf(40, 1, 19)), message(stampOf(41, 1, 40)), message(retried(40))},
			[]int64{0, 1, 5, 7},
		},
		"what got through of a dead letter is known at its retry": {
			log{
				message(stampOf(5, 1, 4)), message(stampOf(6, 1, 4)), message(stampOf(9, 1, 4)), message(parked(stampOf(21, 1, 20), "-1/0:5,4")), message(stampOf(22, 1, 21)),
				message(retried(5)), message(stampOf(23, 2, 22)), message(retried(5)), message(retried(9)), message(retried(10)),
			},
			[]int64{0, 1, 2, 3, 4, 6, 9},
		},
		"a retry that was known stays known": {
			log{message(stampOf(5, 1, 4)), message(retried(5)), message(stampOf(300, 1, 299)), message(stampOf(301, 1, 300)), message(retried(5)), message(retried(5))},
			[]int64{0, 2, 3},
		},
		"a repeat's watermark counts too": {
			log{message(stampOf(10, 1, 4)), message(stampOf(10, 2, 9)), {Body: []byte("good")}, {Body: []byte("good")}, {Body: []byte("good")}, {Body: []byte("good")}, message(stampOf(8, 1, 3)), message(stampOf(11, 2, 9))},
			[]int64{0, 2, 3, 4, 5, 7},
		},
		"where there are many dead letters some are told by number": {
			log{
				message(stampOf(5, 1, 4)), message(stampOf(7, 1, 4)), message(stampOf(12, 1, 4)), message(stampOf(15, 1, 4)), message(parked(stampOf(21, 1, 20), "7/0:15")),
				message(retried(5)), message(retried(7)), message(retried(15)), message(stampOf(22, 1, 21)), message(retried(5)),
			},
			[]int64{0, 1, 2, 3, 4, 8},
		},
		"a watermark that can't be read whole does not count": {
			log{message(stampOf(5, 1, 4)), message(parked(stampOf(11, 1, 10), "5")), message(stampOf(5, 1, 4)), message(stampOf(6, 1, 5)), message(parked(stampOf(12, 2, 10), "-1/0:6;")), message(stampOf(7, 1, 5))},
			[]int64{0, 1, 3, 4, 5},
		},
		"a watermark at or above its own event is no emitter's": {
			log{message(stampOf(5, 1, 1<<62)), message(stampOf(6, 1, 5)), message(stampOf(7, 2, 7)), message(stampOf(7, 2, 6)), message(stampOf(8, 1, 7)), message(stampOf(7, 2, 6))}, []int64{0, 1, 2, 3, 4},
		},
		"messages that inherit a stamp are one message, those without it are several": {
			log{message(stampOf(5, 1, 4)), message(stampOf(5, 1, 4)), dropped(message(stampOf(5, 1, 4))), dropped(message(stampOf(5, 1, 4)))}, []int64{0, 2, 3},
		},
		"events without a stamp, or with one that can't be read, are handled": {
			log{
				{Body: []byte("good")}, {Properties: map[string]any{"sluice-id": "one"}}, {Properties: map[string]any{"sluice-id": "one"}}, {Properties: map[string]any{"sluice-id": 7}},
				message(stampOf(5, 1, 4)), {Properties: map[string]any{"sluice-id": "flights@12ab/0/5/0", "sluice-low": "four"}}, {Properties: map[string]any{"city": "Lyon"}}, message(stampOf(5, 1, 4)),
				{Properties: map[string]any{"sluice-id": "%41/0/5/0"}}, {Properties: map[string]any{"sluice-id": "%41/0/5/0"}},
			},
			[]int64{0, 1, 2, 3, 4, 5, 6, 8, 9},
		},
	} {
		repeats := stamp.Deduplicator{StampsFrom: []stamp.Source{{Topic: "flights"}}}
		var firsts []int64
		for n, e := range c.log {
			e.Sequence = int64(n)
			if !repeats.IsDuplicate(e) {
				firsts = append(firsts, int64(n))
			}
		}
		if !slices.Equal(firsts, c.want) {
			t.Errorf("%s: by the log alone %v are to be handled, want %v", name, firsts, c.want)
		}
		for _, maxBatch := range []int{1, 2, 3, 1000} {
			for consumers := range 3 {
				t.Run(fmt.Sprintf("%s/%d a batch, %d consumers", name, maxBatch, consumers+1), func(t *testing.T) {
					stage(t, 1, func(s *scene) {
						s.Hub.Append("0", c.log...)
						if got := s.pass(maxBatch, consumers+1); !slices.Equal(got, c.want) {
							s.T.Errorf("handled %v, want %v", got, c.want)
						}
						if at := s.Position("0"); at != int64(len(c.log)-1) {
							s.T.Errorf("the checkpoint is at %d of %d", at, len(c.log)-1)
						}
						if n := s.repeats(); n != len(c.log)-len(c.want) {
							s.T.Errorf("%d repeats observed, want %d", n, len(c.log)-len(c.want))
						}
					})
				})
			}
		}
	}
}

// repeats is how many were observed.
func (s *scene) repeats() (n int) {
	for _, o := range s.Observations() {
		n += o.Duplicates
	}
	return n
}

// emit makes a log such as emitters leave: each event once or more, by owners
// that take over from each other, with late writes.
func emit(r *rand.Rand, events int64) (log []*sluice.Event, firsts []int64) {
	seen := map[int64]bool{}
	var stored, high int64 = -1, -1
	var late []stamp.Stamp
	put := func(s stamp.Stamp) {
		if !seen[s.ID.Sequence] {
			seen[s.ID.Sequence] = true
			firsts = append(firsts, int64(len(log)))
		}
		log = append(log, message(s))
	}
	for epoch := int64(1); stored < events-1; epoch++ {
		low := stored
		for n, end := low+1, low+1+r.Int64N(30); n < min(end, events); n++ {
			s := stampOf(n, epoch, low)
			switch r.IntN(10) {
			case 0:
				put(s) // its answer was lost
				put(s)
			case 1:
				late = append(late, s)
				put(s)
			default:
				put(s)
			}
			high = max(high, n)
			if r.IntN(8) == 0 {
				low = n - r.Int64N(n-stored)
				stored = max(stored, low)
				low = stored
			}
			if len(late) > 0 && r.IntN(4) == 0 {
				i := r.IntN(len(late))
				put(late[i])
				late = slices.Delete(late, i, i+1)
			}
		}
	}
	for _, s := range late {
		put(s)
	}
	return log, firsts
}

func TestRepeatsAtRandom(t *testing.T) {
	for seed := range uint64(60) {
		stage(t, 1, func(s *scene) {
			r := rand.New(rand.NewPCG(seed, 0))
			log, firsts := emit(r, 50+r.Int64N(200))
			for n, e := range log {
				e.Body = []byte([]string{"good", "good", "good", "good", "reject", "flaky"}[r.IntN(6)])
				s.Hub.Append("0", e)
				_ = n
			}
			var tries int
			_, end := s.Consume("a", func(_ context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
				for i, e := range b.Events {
					switch string(e.Body) {
					case "reject":
						return &driver.EventError{Index: i, Err: driver.Reject(errors.New("no"))}
					case "flaky":
						if tries++; tries%3 > 0 {
							return errors.New("flaky, and it does not say which")
						}
					}
					if err := tx.Insert("rows", e.Sequence); err != nil {
						return err
					}
				}
				return nil
			}, sluice.Config{MaxBatch: 1 + r.IntN(20), Attempts: 100})
			time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
			end()
			_, end = s.Consume("b", func(_ context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
				for i, e := range b.Events {
					if string(e.Body) == "reject" {
						return &driver.EventError{Index: i, Err: driver.Reject(errors.New("no"))}
					}
					if err := tx.Insert("rows", e.Sequence); err != nil {
						return err
					}
				}
				return nil
			}, sluice.Config{MaxBatch: 1 + r.IntN(20)})
			time.Sleep(10 * time.Minute)
			end()
			got := s.Rows()
			for _, l := range s.Letters() {
				got = append(got, l.Event.Sequence)
			}
			slices.Sort(got)
			if !slices.Equal(got, firsts) {
				s.T.Errorf("seed %d: handled or parked %v, want the first of each id: %v", seed, got, firsts)
			}
			if at := s.Position("0"); at != int64(len(log)-1) {
				s.T.Errorf("seed %d: the checkpoint is at %d of %d", seed, at, len(log)-1)
			}
			rows := enginetest.Must(s.Store.ReadDedup(s.T.Context(), enginetest.Group, "0"))
			for _, row := range rows[:len(rows)-1] {
				if row.Top <= rows[len(rows)-1].Low {
					s.T.Errorf("seed %d: at the watermark %d there is still %+v", seed, rows[len(rows)-1].Low, row)
				}
			}
		})
	}
}

// A dead letter counts as the first message of its id: repeats of it are dropped,
// and its redrive is not.
func TestRepeatsOfDeadLetters(t *testing.T) {
	stage(t, 1, func(s *scene) {
		for _, n := range []int64{5, 6, 5, 6, 7} {
			e := message(stampOf(n, 1, 4))
			if n == 6 {
				e.Body = []byte("reject")
			}
			s.Hub.Append("0", e)
		}
		_, end := s.Consume("a", enginetest.InsertRedriven, sluice.Config{})
		time.Sleep(time.Minute)
		if n := len(s.Letters(sluice.StatusDead)); n != 1 {
			s.T.Errorf("%d dead letters, want one for the two messages of event 6", n)
		}
		s.RedriveAll()
		time.Sleep(time.Minute)
		s.Hub.Append("0", message(stampOf(6, 2, 4)), message(stampOf(8, 2, 4)))
		time.Sleep(time.Minute)
		end()
		if rows := s.Rows(); !slices.Equal(rows, []int64{0, 4, 1, 6}) || len(s.Letters()) != 0 {
			s.T.Errorf("handled %v, want 0, 4, the retry of 1, and 6; %d dead letters", rows, len(s.Letters()))
		}
	})
}

// A stamp that can't be read is told, once for each tenure.
func TestRepeatsUnreadable(t *testing.T) {
	for want, e := range map[string]*sluice.Event{
		"":              message(stampOf(5, 1, 4)),
		"causation id":  {Properties: map[string]any{"sluice-id": "one"}},
		"sluice-low":    {Properties: map[string]any{"sluice-id": "flights@12ab/0/5/0", "sluice-low": "four"}},
		"sluice-epoch":  {Properties: map[string]any{"sluice-id": "flights@12ab/0/5/0", "sluice-epoch": true}},
		"sluice-id":     {Properties: map[string]any{"sluice-id": 7}},
		"not encoded":   {Properties: map[string]any{"sluice-id": "%41/0/5/0"}},
		"sluice-parked": message(parked(stampOf(5, 1, 4), "5")),
	} {
		stage(t, 1, func(s *scene) {
			for range 3 {
				s.Hub.Append("0", &sluice.Event{Properties: e.Properties})
			}
			s.pass(2, 1)
			var told []string
			for _, o := range s.Observations(driver.KindFailed) {
				told = append(told, o.Err.Error())
			}
			if want == "" && len(told) > 0 || want != "" && (len(told) != 1 || !strings.Contains(told[0], want) || !strings.HasPrefix(told[0], "stamp of event 0: ")) {
				s.T.Errorf("%v: told %q, want %q once", e.Properties, told, want)
			}
		})
	}
}

// crowd is a store that has seen more than a partition may remember.
type crowd struct{ *sluicetest.Store }

func (c crowd) ReadDedup(context.Context, sluice.Group, string) ([]driver.DedupState, error) {
	const each = 600_000
	text := "0:%d" + strings.Repeat(",64", each-1)
	return []driver.DedupState{
		{Origin: "flights@12ab/0", Epoch: 1, Low: -1, IDs: fmt.Sprintf(text, 0)},
		{Origin: "flights@12ab/0", Epoch: 1, Low: -1, IDs: fmt.Sprintf(text, each*64)},
	}, nil
}

// What is remembered is bounded. Where that means to forget too early, it is
// told.
func TestRepeatsBounded(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Hub.Append("0", message(stampOf(0, 1, -1)), message(stampOf(64*1_199_999, 1, -1)), message(stampOf(1, 1, -1)))
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(crowd{s.Store}, sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
			return tx.Insert("rows", e.Sequence)
		})), &sluice.Config{Observer: s, StampsFrom: s.StampsFrom}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(s.T.Context()) }()
		time.Sleep(time.Minute)
		if err := errors.Join(c.Stop(s.T.Context()), <-ran); err != nil {
			s.T.Error(err)
		}
		if rows := s.Rows(); !slices.Equal(rows, []int64{0, 2}) {
			s.T.Errorf("handled %v, want 0 and 2: the oldest are forgotten, the newest are not", rows)
		}
		told := slices.ContainsFunc(s.Observations(), func(o driver.Observation) bool {
			return o.Kind == driver.KindFailed && strings.Contains(o.Err.Error(), "flights@12ab/0")
		})
		if !told {
			s.T.Error("it was not told")
		}
	})
}

// What nobody has sent from for as long as a hub can retain is forgotten.
func TestRepeatsExpire(t *testing.T) {
	stage(t, 1, func(s *scene) {
		at := time.Now()
		send := func(after time.Duration, source string, n int64) {
			stamp := stampOf(n, 1, -1)
			stamp.ID.Source = source
			e := message(stamp)
			e.Enqueued = at.Add(after)
			s.Hub.Append("0", e)
		}
		const day = 24 * time.Hour
		send(0, "gone", 1)
		send(10*day, "there", 1)
		send(89*day, "there", 2)
		if rows := s.pass(1, 1); len(rows) != 3 {
			s.T.Errorf("handled %v", rows)
		}
		if rows := enginetest.Must(s.Store.ReadDedup(s.T.Context(), enginetest.Group, "0")); len(rows) != 3 {
			s.T.Errorf("remembered %+v, want all three", rows)
		}
		send(91*day, "there", 1)
		send(91*day, "there", 3)
		if rows := s.pass(1, 1); !slices.Equal(rows, []int64{0, 1, 2, 4}) {
			s.T.Errorf("handled %v, want 0, 1, 2, 4", rows)
		}
		rows := enginetest.Must(s.Store.ReadDedup(s.T.Context(), enginetest.Group, "0"))
		if len(rows) != 3 || slices.ContainsFunc(rows, func(r driver.DedupState) bool { return strings.Contains(r.Origin, "gone") }) {
			s.T.Errorf("remembered %+v, want only what is there", rows)
		}
	})
}

// A watermark that goes back lets messages take effect again. An operator learns that, once for
// each time.
func TestWatermarkThatGoesBackIsReported(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Hub.Append("0", message(stampOf(12, 1, 11)), message(stampOf(9, 2, 8)), message(stampOf(12, 2, 8)), message(stampOf(9, 2, 8)))
		if rows := s.pass(100, 1); !slices.Equal(rows, []int64{0, 1, 2}) {
			s.T.Errorf("handled %v, want 0, 1 and 2", rows)
		}
		var reports []string
		for _, o := range s.Observations(driver.KindFailed) {
			reports = append(reports, o.Err.Error())
		}
		if len(reports) != 1 || !strings.Contains(reports[0], "flights@12ab/0") || !strings.Contains(reports[0], "from event 9 on") {
			s.T.Errorf("reports: %q, want one that names the stage's partition and event 9", reports)
		}
	})
}
