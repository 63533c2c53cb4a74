package move_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/move"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/sluicetest"
)

const partitions = 3

var group = sluice.Group{Namespace: "n", Topic: "t", Name: "g"}

// oldConsumer is the consumer that is moved from: what its store says.
type oldConsumer struct {
	positions map[string]int64 // by partition: the last event that is done
	offsets   bool             // it stores offsets alone
	shifted   int64            // what its offsets have more than those of the log
	letters   []azurecheckpoints.DeadLetter
	owner     string
	owners    bool
	reads     int
	onRead    func(n int) // before the nth look
}

func (o *oldConsumer) String() string    { return "old" }
func (o *oldConsumer) ShowsOwners() bool { return o.owners }
func (o *oldConsumer) Close()            {}
func (o *oldConsumer) None(sluice.Group, []string) error {
	return errors.New("the old consumer has no checkpoints")
}

func (o *oldConsumer) DeadLetters(context.Context, string) ([]azurecheckpoints.DeadLetter, error) {
	return o.letters, nil
}

func (o *oldConsumer) Read(context.Context, *checkpoint.Table) (azurecheckpoints.Found, error) {
	o.reads++
	if o.onRead != nil {
		o.onRead(o.reads)
	}
	found := azurecheckpoints.Found{Owners: map[string]string{}}
	for p := range partitions {
		id := strconv.Itoa(p)
		at, ok := o.positions[id]
		if !ok {
			continue
		}
		c := azurecheckpoints.Checkpoint{Partition: id, Sequence: at, Offset: fmt.Sprint(at*100 + o.shifted), Owner: o.owner}
		if o.offsets {
			c.Sequence = -1
		}
		if found.Checkpoints = append(found.Checkpoints, c); o.owner != "" {
			found.Owners[id] = o.owner
		}
	}
	return found, nil
}

// world is a log with an old consumer and a pipeline's stores.
type world struct {
	t      *testing.T
	hub    *sluicetest.Hub
	store  *sluicetest.Store
	leases *sluicetest.Leases
	old    *oldConsumer
}

func newWorld(t *testing.T, events int) *world {
	w := &world{t, sluicetest.NewHub(group, partitions), &sluicetest.Store{}, &sluicetest.Leases{}, &oldConsumer{positions: map[string]int64{}, owners: true}}
	for p := range partitions {
		for range events {
			w.hub.Append(strconv.Itoa(p), sluicetest.Bodies("x")...)
		}
	}
	return w
}

func (w *world) mover(apply bool) *move.Mover {
	return &move.Mover{
		Table:  &checkpoint.Table{Group: group, Source: w.hub, Leases: w.leases, Checkpoints: w.store, DeadLetters: w.store, DryRun: !apply},
		Source: w.old, Parker: w.store, Every: 5 * time.Second, Apply: apply,
	}
}

// deaths counts the operations of a store, before or after one of which the process is killed:
// nothing that it asks for happens any more.
type deaths struct {
	left    int
	applies bool // the last operation still happens
	dead    bool
}

var errKilled = errors.New("killed")

func (d *deaths) do(op func() error) error {
	if d.dead {
		return errKilled
	}
	if d.left--; d.left >= 0 {
		return op()
	}
	if d.dead = true; d.applies {
		_ = op()
	}
	return errKilled
}

type mortalStore struct {
	*sluicetest.Store
	*deaths
}

func (m mortalStore) Park(ctx context.Context, list []sluice.DeadLetter) error {
	return m.do(func() error { return m.Store.Park(ctx, list) })
}

func (m mortalStore) Reset(ctx context.Context, g sluice.Group, p, incarnation string, to sluice.Position, how driver.How) (epoch int64, err error) {
	err = m.do(func() (err error) { epoch, err = m.Store.Reset(ctx, g, p, incarnation, to, how); return err })
	return epoch, err
}

func (m mortalStore) Read(ctx context.Context, g sluice.Group) (list []sluice.Checkpoint, err error) {
	err = m.do(func() (err error) { list, err = m.Store.Read(ctx, g); return err })
	return list, err
}

func (m mortalStore) List(ctx context.Context, g sluice.Group, f sluice.DeadLetterFilter) (list []sluice.DeadLetter, err error) {
	err = m.do(func() (err error) { list, err = m.Store.List(ctx, g, f); return err })
	return list, err
}

type mortalLeases struct {
	*sluicetest.Leases
	*deaths
}

func (m mortalLeases) Acquire(ctx context.Context, g sluice.Group, p, owner string, d time.Duration, epoch int64) (l sluice.Lease, err error) {
	err = m.do(func() (err error) { l, err = m.Leases.Acquire(ctx, g, p, owner, d, epoch); return err })
	return l, err
}

func (m mortalLeases) Release(ctx context.Context, l sluice.Lease) error {
	return m.do(func() error { return m.Leases.Release(ctx, l) })
}

// run runs the pipeline until all is done, with what an operator redrives.
func (w *world) run() {
	w.t.Helper()
	c, err := sluice.New(w.hub, w.leases, sluice.Transactional(w.store, sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
		return tx.Insert("effects", fmt.Sprintf("%s/%d", e.Partition, e.Sequence))
	})), &sluice.Config{Observer: driver.ObserverFunc(func(driver.Observation) {})})
	if err != nil {
		w.t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- c.Run(w.t.Context()) }()
	time.Sleep(time.Minute)
	if _, err := w.store.Redrive(w.t.Context(), group, sluice.DeadLetterFilter{Status: []sluice.DeadLetterStatus{sluice.StatusDead}}, time.Time{}); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(time.Minute)
	if err := errors.Join(c.Stop(w.t.Context()), <-ran); err != nil {
		w.t.Fatal(err)
	}
}

// TestMoveKilledAtRandom: whenever the command is killed and run again, each event takes effect
// once, by the old consumer or by the pipeline, dead letters included, also if the command is run
// once more after the pipeline has started.
func TestMoveKilledAtRandom(t *testing.T) {
	const events = 12
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			w := newWorld(t, events)
			w.old.offsets, w.old.owners = random.IntN(2) == 0, random.IntN(2) == 0
			effects := map[string]int{}
			for p := range partitions {
				id, at := strconv.Itoa(p), random.Int64N(events)
				w.old.positions[id] = at
				letter := random.Int64N(at + 1)
				for n := range at + 1 {
					if n != letter {
						effects[fmt.Sprintf("%s/%d", id, n)]++
					}
				}
				w.old.letters = append(w.old.letters, azurecheckpoints.DeadLetter{PartitionOrKey: id, Sequence: letter, Offset: fmt.Sprint(letter * 100), Error: "bad"})
			}
			kills := 0
			for range 1 + random.IntN(4) {
				m, d := w.mover(true), &deaths{left: random.IntN(40), applies: random.IntN(2) == 0}
				store := mortalStore{w.store, d}
				m.Table.Checkpoints, m.Table.DeadLetters, m.Table.Leases, m.Parker = store, store, mortalLeases{w.leases, d}, store
				if _, err := m.Run(t.Context()); err == nil {
					break
				}
				kills++
			}
			report, err := w.mover(true).Run(t.Context())
			if err != nil {
				t.Fatalf("seed %d, after %d kills: %v", seed, kills, err)
			}
			for _, s := range report.Seams {
				if l := s.Letters; l.Read != 1 || l.Imported+l.There != 1 || s.Start != w.old.positions[s.Partition]+1 {
					t.Errorf("seed %d, after %d kills: %+v", seed, kills, s)
				}
				if want := map[bool]string{true: "proved", false: "unknown"}[w.old.owners]; s.Verdict != want {
					t.Errorf("seed %d: the seam is %s, want %s: %v", seed, s.Verdict, want, s.Why)
				}
			}
			w.run()
			again, err := w.mover(true).Run(t.Context())
			if err != nil {
				t.Fatalf("seed %d, after the start: %v", seed, err)
			}
			for _, s := range again.Seams {
				if !s.Already || s.Letters.Settled != 1 || s.Verdict != "unknown" || w.old.positions[s.Partition] < events-1 && (s.Now == nil || *s.Now != events-1) {
					t.Errorf("seed %d, after the start: %+v", seed, s)
				}
			}
			w.run()
			for _, row := range w.store.Rows("effects") {
				effects[row.(string)]++
			}
			for p := range partitions {
				for n := range events {
					if got := effects[fmt.Sprintf("%d/%d", p, n)]; got != 1 {
						t.Errorf("seed %d, after %d kills: event %d of partition %d took effect %d times", seed, kills, n, p, got)
					}
				}
			}
		})
	}
}

// While the old consumer runs, nothing is changed, and the refusal says how it was seen.
func TestMoveRefusesWhileTheOldConsumerRuns(t *testing.T) {
	for name, c := range map[string]struct {
		owner string
		moves int // it commits before each look up to this one
		limit time.Duration
		says  string // "": it is moved
	}{
		"an owner":              {"worker-7", 0, 0, "the other consumer still runs: 3 partitions are read by worker-7: stop it and wait a minute, or wait for it with --within 10m"},
		"no owner, but commits": {"", 99, 0, "the checkpoint of partition 0 moved from "},
		"stops in time":         {"", 4, time.Minute, ""},
		"does not stop":         {"", 99, 20 * time.Second, "the other consumer still runs after 20s: the checkpoint of partition 0 moved"},
		"drained and there":     {"worker-7", 6, time.Minute, "the other consumer has drained the log and still runs: 3 partitions are read by worker-7: stop it now"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 8)
				w.old.positions = map[string]int64{"0": 1, "1": 7, "2": 7}
				w.old.owner = c.owner
				w.old.onRead = func(n int) {
					if n <= c.moves {
						w.old.positions["0"]++
					}
					if n > 8 && c.moves == 99 { // the log grows
						w.hub.Append("0", sluicetest.Bodies("x")...)
					}
				}
				m := w.mover(true)
				m.Limit = c.limit
				report, err := m.Run(t.Context())
				if c.says == "" {
					if err != nil || report.Seams[0].Start != w.old.positions["0"]+1 || report.Consumer.State != move.Stopped {
						t.Errorf("%+v, %v", report, err)
					}
					return
				}
				var alive *move.AliveError
				if !errors.As(err, &alive) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v", err)
				}
				if all, err := w.store.Read(t.Context(), group); err != nil || len(all) > 0 {
					t.Errorf("the refusal has set %+v, %v", all, err)
				}
			})
		})
	}
}

// A checkpoint of a hub that was recreated and has grown past it is refused: events before it would
// be left out. Without an event to compare, and with force, it is taken.
func TestMoveNoticesAnotherLog(t *testing.T) {
	for name, c := range map[string]struct {
		trimmed int64
		force   bool
		refused bool
	}{"another log": {0, false, true}, "removed by retention": {4, false, false}, "force": {0, true, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 8)
				w.old.positions, w.old.shifted = map[string]int64{"1": 3}, 1
				w.old.letters = []azurecheckpoints.DeadLetter{{PartitionOrKey: "1", Sequence: 99}}
				w.hub.Trim("1", c.trimmed)
				if !c.refused {
					w.old.letters = nil
				}
				m := w.mover(true)
				m.Force = c.force
				_, err := m.Run(t.Context())
				all, lerr := w.store.Read(t.Context(), group)
				if lerr != nil {
					t.Fatal(lerr)
				}
				if !c.refused {
					if err != nil || len(all) != 1 {
						t.Errorf("%v, %+v", err, all)
					}
					return
				}
				// Both refusals are named at once.
				for _, says := range []string{"partition 1: the checkpoint has the offset 301 at event 3, and that event has 300", "dead letter of event 99"} {
					if err == nil || !strings.Contains(err.Error(), says) || len(all) > 0 {
						t.Errorf("got %v, and set %+v", err, all)
					}
				}
			})
		})
	}
}

// A consumer whose store shows no owners, and which commits while its partitions are moved, is
// reported: what it did then would be done twice.
func TestMoveSeesAConsumerThatWasIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.old.owners, w.old.positions = false, map[string]int64{"0": 1, "1": 7}
		w.old.onRead = func(n int) {
			if n == 3 {
				w.old.positions["0"] = 5
			}
		}
		report, err := w.mover(true).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "the other consumer ran while its partitions were moved (partition 0 from 1 to 5)") {
			t.Fatal(err)
		}
		if report.Consumer.State != move.Unknown || !slices.Equal(report.Missing, []string{"2"}) {
			t.Errorf("%+v", report)
		}
		report, err = w.mover(true).Run(t.Context()) // as the error says
		if err != nil || report.Seams[0].Start != 6 {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// So is one that starts meanwhile and has not committed yet, or in another partition.
func TestMoveSeesAConsumerThatStarts(t *testing.T) {
	for says, start := range map[string]func(*oldConsumer){
		"(partition 0 is read by worker-7, partition 1 is read by worker-7)": func(o *oldConsumer) { o.owner = "worker-7" },
		"(partition 2 got its first checkpoint)":                             func(o *oldConsumer) { o.positions["2"] = 0 },
	} {
		t.Run(says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 8)
				w.old.positions = map[string]int64{"0": 1, "1": 7}
				w.old.onRead = func(n int) {
					if n == 3 {
						start(w.old)
					}
				}
				if _, err := w.mover(true).Run(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// A checkpoint that the pipeline has moved itself, and one that it began otherwise, stay.
func TestMoveLeavesThePipelinesCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.old.positions = map[string]int64{"0": 3}
		topic, err := w.hub.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.store.Reset(t.Context(), group, "0", topic.Incarnation, sluice.Position{Sequence: 2}, driver.HowSet); err != nil {
			t.Fatal(err)
		}
		for _, apply := range []bool{false, true} {
			if _, err := w.mover(apply).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "partition 0 has a checkpoint already, at 2: to replace it use --force") {
				t.Errorf("apply %v: %v", apply, err)
			}
		}
		forced := w.mover(true)
		forced.Force = true
		if report, err := forced.Run(t.Context()); err != nil || report.Seams[0].Start != 4 || *report.Seams[0].Replaced != 2 {
			t.Fatalf("by force: %+v, %v", report, err)
		}
		// Moved back, and now again: the old consumer is at the same place, further, and, restored
		// from a backup, behind.
		for _, c := range []struct {
			old   int64
			start int64 // 0: refused
		}{{3, 4}, {6, 7}, {5, 0}} {
			w.old.positions["0"] = c.old
			report, err := w.mover(true).Run(t.Context())
			if c.start == 0 && (err == nil || !strings.Contains(err.Error(), "has a checkpoint already, at 6")) || c.start > 0 && (err != nil || report.Seams[0].Start != c.start) {
				t.Errorf("old at %d: %+v, %v", c.old, report, err)
			}
		}
	})
}
