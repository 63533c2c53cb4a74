package group_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// fleet is processes that come and go on one topic, whose events leave a row
// each.
type fleet struct {
	t      *testing.T
	hub    *sluicetest.Hub
	leases *enginetest.Ledger
	store  *sluicetest.Store
	topic  []string
	sent   int
	burst  int // of each process

	alive   []*worker
	started int
	moves   map[string]int // takings of each partition since mark
	marked  int
}

type worker struct {
	*sluice.Consumer
	name  string
	fixed bool
	end   func() // as a cancelled context does
}

func newFleet(t *testing.T, partitions int) *fleet {
	f := &fleet{t: t, hub: sluicetest.NewHub(enginetest.Group, partitions), leases: enginetest.NewLedger(), store: &sluicetest.Store{}}
	f.topic = enginetest.Must(f.hub.Describe(t.Context())).Partitions
	return f
}

// join starts a process.
func (f *fleet) join(n sluice.Partitions) *worker {
	f.t.Helper()
	f.started++
	w := &worker{name: fmt.Sprint("p", f.started), fixed: n != sluice.Balanced}
	h := sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
		return tx.Insert("rows", e.Partition+"/"+fmt.Sprint(e.Sequence))
	})
	w.Consumer, w.end = enginetest.RunTransactional(f.t, f.hub, f.leases, f.store, h, n, sluice.Config{Owner: w.name, AssignBurst: f.burst, RedriveEvery: time.Minute, Seed: uint64(f.started)})
	f.alive = append(f.alive, w)
	return w
}

func (f *fleet) gone(w *worker) {
	f.alive = slices.DeleteFunc(f.alive, func(o *worker) bool { return o == w })
}

// stop ends a process in good order.
func (f *fleet) stop(w *worker) {
	f.gone(w)
	if err := w.Stop(f.t.Context()); err != nil {
		f.t.Error(err)
	}
}

// kill ends a process that can't tell anybody.
func (f *fleet) kill(w *worker) {
	f.gone(w)
	f.leases.CutOff(w.name)
	w.end()
}

// send sends some events to each partition.
func (f *fleet) send(n int) {
	for _, p := range f.topic {
		f.hub.Append(p, sluicetest.Bodies(make([]string, n)...)...)
		f.sent += n
	}
}

// holds tells how many partitions somebody holds, leaving the seats out.
func (f *fleet) holds() (list []int, all int) {
	held := map[string]int{}
	for _, l := range enginetest.Must(f.leases.List(f.t.Context(), enginetest.Group)) {
		if l.Live() && !l.Member() {
			held[l.Owner]++
		}
	}
	for _, w := range f.alive {
		if !w.fixed {
			list = append(list, held[w.name])
		}
		all += held[w.name]
	}
	return list, all
}

// even tells whether shares differ by one at most, and whether all partitions
// are held.
func (f *fleet) even() (shares, all bool) {
	list, n := f.holds()
	return len(list) == 0 || slices.Max(list)-slices.Min(list) <= 1, n == len(f.topic)
}

// mark begins a count of moves anew.
func (f *fleet) mark() { f.marked, f.moves = len(f.leases.Takings()), map[string]int{} }

// moved counts the takings of partitions since the mark: all, and the most of one.
func (f *fleet) moved() (all, most int) {
	clear(f.moves)
	for _, take := range f.leases.Takings()[f.marked:] {
		if !strings.HasPrefix(take.Partition, "~") {
			all++
			f.moves[take.Partition]++
			most = max(most, f.moves[take.Partition])
		}
	}
	return all, most
}

// settle waits until all is even, and tells how long the shares took and all
// partitions.
func (f *fleet) settle(within time.Duration) (shares, all time.Duration) {
	f.t.Helper()
	began := time.Now()
	shares, all = -1, -1
	for time.Since(began) <= within {
		even, held := f.even()
		took := time.Since(began)
		if !even {
			shares, all = -1, -1
		} else {
			if shares < 0 {
				shares = took
			}
			if held {
				return shares, took
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	list, n := f.holds()
	f.t.Fatalf("not even after %v: %v, %d of %d partitions", within, list, n, len(f.topic))
	return shares, all
}

// onceEach sees that every event sent has left one row.
func (f *fleet) onceEach() {
	f.t.Helper()
	seen := map[any]int{}
	for _, row := range f.store.Rows("rows") {
		seen[row]++
		if seen[row] > 1 {
			f.t.Errorf("event %v has %d rows", row, seen[row])
		}
	}
	if len(seen) != f.sent {
		f.t.Errorf("%d of %d events have a row", len(seen), f.sent)
	}
}

// One change at a time: how long it takes until all is even, that no partition
// moves twice, that no more move than one share, and that then nothing moves.
func TestBalanced(t *testing.T) {
	for _, partitions := range []int{1, 7, 32} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, partitions)
				after := func(what string, within time.Duration, most int) {
					t.Helper()
					f.send(3)
					_, took := f.settle(within)
					time.Sleep(time.Minute - took) // some move who have one more than others
					all, one := f.moved()
					if one > 1 || all > most {
						t.Errorf("%s: %d moves, want %d at most, %d of one partition", what, all, most, one)
					}
					t.Logf("%s: even after %v, %d moves", what, took, all)
					time.Sleep(10 * time.Minute)
					if again, _ := f.moved(); again != all {
						t.Errorf("%s: %d partitions moved afterwards without a change", what, again-all)
					}
					f.mark()
				}
				ceil := func(n int) int { return (partitions + n - 1) / n }
				pace := time.Duration(partitions) * time.Second
				f.mark()
				a := f.join(sluice.Balanced)
				after("the first comes", pace+2*time.Second, partitions)
				b := f.join(sluice.Balanced)
				after("the second comes", pace/2+5*time.Second, partitions/2)
				f.join(sluice.Balanced)
				after("the third comes", pace/3+5*time.Second, ceil(3))
				f.join(sluice.Balanced)
				after("the fourth comes", pace/4+5*time.Second, ceil(4))
				f.stop(b)
				after("the second stops", 10*time.Second+pace/8+5*time.Second, ceil(4))
				f.kill(a)
				after("the first is killed", 30*time.Second+pace/6+5*time.Second, ceil(3))
				f.join(sluice.Balanced)
				after("another comes", pace/3+5*time.Second, ceil(3))
				for len(f.alive) > 1 {
					f.stop(f.alive[0])
					after("one stops", 10*time.Second+pace/2+5*time.Second, ceil(len(f.alive)+1))
				}
				f.stop(f.alive[0])
				f.onceEach()
			})
		})
	}
}

// With bursts, a process that joins has its share after a few attempts, and no partition
// moves twice.
func TestBalancedBursts(t *testing.T) {
	for _, burst := range []int{32, math.MaxInt} {
		synctest.Test(t, func(t *testing.T) { testBalancedBursts(t, burst) })
	}
}

func testBalancedBursts(t *testing.T, burst int) {
	f := newFleet(t, 32)
	f.burst = burst
	for range 4 {
		f.mark()
		f.send(3)
		f.join(sluice.Balanced)
		_, took := f.settle(5 * time.Second)
		time.Sleep(time.Minute)
		if all, most := f.moved(); most > 1 || all > 32/len(f.alive) {
			t.Errorf("%d processes: %d moves, %d of one partition", len(f.alive), all, most)
		}
		t.Logf("%d processes: even after %v", len(f.alive), took)
	}
	for len(f.alive) > 0 {
		f.stop(f.alive[0])
	}
	f.onceEach()
}

// In a topic of hundreds of partitions, where long listings are made less often, a process that
// joins still lists every AssignEvery: else what is handed over to it has no owner for several
// seconds.
func TestBalancedJoinsALongList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1024)
		f.burst = 64
		f.join(sluice.Balanced)
		f.settle(30 * time.Second)
		// The second process joins between two ticks of the first. At a tick, the scheduler would
		// decide which of the two acquires a partition first.
		time.Sleep(30*time.Second + 50*time.Millisecond)
		f.join(sluice.Balanced)
		free := map[string]time.Time{} // since when
		var longest time.Duration
		for range 80 {
			for _, l := range enginetest.Must(f.leases.List(t.Context(), enginetest.Group)) {
				if since, known := free[l.Partition]; l.Live() {
					delete(free, l.Partition)
				} else if !known {
					free[l.Partition] = time.Now()
				} else {
					longest = max(longest, time.Since(since))
				}
			}
			time.Sleep(250 * time.Millisecond)
		}
		if shares, all := f.even(); !shares || !all {
			t.Error("not even 20 s after a process has joined")
		}
		if longest > 2*time.Second {
			t.Errorf("a partition that was handed over had no owner for %v, want 2 s at most", longest)
		}
		for len(f.alive) > 0 {
			f.stop(f.alive[0])
		}
	})
}

// A process that stops and comes back at once finds its share untouched, also
// where all are restarted one after the other, or all at once.
func TestBalancedRestart(t *testing.T) {
	for name, together := range map[string]int{"one": 1, "two": 2, "all": 4} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const partitions = 18
				f := newFleet(t, partitions)
				for range 4 {
					f.join(sluice.Balanced)
				}
				f.settle(30 * time.Second)
				for n := 0; n < 4; n += together {
					f.mark()
					had, _ := f.holds()
					free := 0
					for _, n := range had[:together] {
						free += n
					}
					for range together {
						f.stop(f.alive[0])
					}
					for range together {
						time.Sleep(8 * time.Second / time.Duration(together))
						f.join(sluice.Balanced)
					}
					f.settle(30 * time.Second)
					time.Sleep(time.Minute)
					if all, most := f.moved(); all != free || most != 1 {
						t.Errorf("%d moves, %d of one partition: want only the %d that were let go, once", all, most, free)
					}
				}
			})
		})
	}
}

// A process with a long batch gives up its seat at once and its partitions
// when they are done; who has taken its seat meanwhile waits for them, and
// takes them from no one else.
func TestBalancedSlowStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 8)
		slow, free := make(chan struct{}), make(chan struct{})
		h := func(context.Context, *sluicetest.Tx, sluice.Batch) error { close(slow); <-free; return nil }
		c, _ := enginetest.RunTransactional(t, f.hub, f.leases, f.store, h, sluice.Balanced, sluice.Config{Owner: "slow"})
		time.Sleep(2 * time.Second)
		f.hub.Append(f.held("slow")[0], sluicetest.Bodies("x")...)
		<-slow
		f.join(sluice.Balanced)
		time.Sleep(20 * time.Second)
		if n := len(f.held("slow")); n != 4 {
			t.Fatalf("%d partitions are held, want 4", n)
		}
		f.mark()
		stopped := make(chan error, 1)
		go func() { stopped <- c.Stop(t.Context()) }()
		time.Sleep(time.Second)
		f.join(sluice.Balanced)
		time.Sleep(20 * time.Second)
		if all, _ := f.moved(); all != 3 {
			t.Errorf("%d moves, want the 3 partitions that were idle", all)
		}
		close(free)
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		f.settle(5 * time.Second)
		time.Sleep(10 * time.Minute)
		if all, most := f.moved(); all != 4 || most != 1 {
			t.Errorf("%d moves, %d of one partition, want the 4 that were let go, once", all, most)
		}
	})
}

// held are the partitions of an owner.
func (f *fleet) held(owner string) (list []string) {
	for _, l := range enginetest.Must(f.leases.List(f.t.Context(), enginetest.Group)) {
		if l.Live() && !l.Member() && l.Owner == owner {
			list = append(list, l.Partition)
		}
	}
	return list
}

// Those that state a number keep what they have, and the others share the
// rest; nobody makes room for one that comes late.
func TestBalancedBesideFixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 12)
		fixed := f.join(4)
		time.Sleep(10 * time.Second)
		for range 3 {
			f.join(sluice.Balanced)
		}
		f.settle(time.Minute)
		time.Sleep(time.Minute)
		f.mark()
		time.Sleep(10 * time.Minute)
		if all, _ := f.moved(); all > 0 || len(f.held(fixed.name)) != 4 {
			t.Errorf("%d moves; the one with a number holds %d, want 4", all, len(f.held(fixed.name)))
		}
		f.stop(fixed)
		f.settle(time.Minute)
		f.join(4) // nothing is free, and nobody makes room
		time.Sleep(10 * time.Minute)
		if all, most := f.moved(); all != 4 || most != 1 {
			t.Errorf("%d moves, want the 4 of the one that stopped", all)
		}
	})
}

// What somebody holds who states a number is not shared out, however long ago
// he took it.
func TestBalancedSharesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 8)
		f.join(4)
		time.Sleep(10 * time.Second)
		f.join(sluice.Balanced)
		time.Sleep(10 * time.Second)
		f.join(sluice.Balanced)
		time.Sleep(time.Minute)
		if list, _ := f.holds(); !slices.Equal(list, []int{2, 2}) {
			t.Errorf("the balanced ones hold %v of the 4 that are left", list)
		}
	})
}

// What was taken last is handed over.
func TestBalancedKeepsWhatIsOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 9)
		first := f.join(sluice.Balanced)
		f.settle(time.Minute)
		var oldest []string
		for _, take := range f.leases.Takings() {
			if !strings.HasPrefix(take.Partition, "~") {
				oldest = append(oldest, take.Partition)
			}
		}
		f.join(sluice.Balanced)
		f.settle(time.Minute)
		if kept := f.held(first.name); !slices.Equal(kept, slices.Sorted(slices.Values(oldest[:len(kept)]))) {
			t.Errorf("it kept %v of %v, in the order of their taking", kept, oldest)
		}
	})
}

// forgetful is a lease store whose first answer is lost.
type forgetful struct {
	*enginetest.Ledger
	once sync.Once
}

func (f *forgetful) Acquire(ctx context.Context, g sluice.Group, partition, owner string, ttl time.Duration, above int64) (lease sluice.Lease, err error) {
	lease, err = f.Ledger.Acquire(ctx, g, partition, owner, ttl, above)
	f.once.Do(func() { lease, err = sluice.Lease{}, enginetest.ErrCut })
	return lease, err
}

// Whoever took a seat without learning of it takes the same again.
func TestBalancedSitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		_, end := enginetest.RunTransactional(t, f.hub, &forgetful{Ledger: f.leases}, f.store, nil, sluice.Balanced, sluice.Config{Owner: "a"})
		time.Sleep(time.Minute)
		if list := enginetest.Must(f.leases.List(t.Context(), enginetest.Group)); len(list) != 3 || list[2].Partition != "~0" {
			t.Errorf("leases %+v, want two partitions and a seat", list)
		}
		end()
	})
}

// More processes than partitions: those without one wait, and take over.
func TestBalancedMoreProcessesThanPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		for range 5 {
			f.join(sluice.Balanced)
			time.Sleep(5 * time.Second)
		}
		f.settle(time.Minute)
		f.mark()
		f.kill(f.alive[0])
		f.settle(time.Minute)
		time.Sleep(10 * time.Minute)
		if all, _ := f.moved(); all != 1 {
			t.Errorf("%d moves, want that of the one that was killed", all)
		}
	})
}

// TestBalancedAtRandom has up to 20 processes come, stop and be killed on up to
// 64 partitions, at times before the last change has settled.
// SLUICE_BALANCED_WORLDS sets how many times over, SLUICE_BALANCED_FIRST the
// first seed.
func TestBalancedAtRandom(t *testing.T) {
	const changes = 12
	worlds := 6
	if text := os.Getenv("SLUICE_BALANCED_WORLDS"); text != "" {
		worlds = enginetest.Must(strconv.Atoi(text))
	}
	var first uint64
	if text := os.Getenv("SLUICE_BALANCED_FIRST"); text != "" {
		first = enginetest.Must(strconv.ParseUint(text, 10, 63))
	}
	var shares, alls []time.Duration
	for seed := first; seed < first+uint64(worlds); seed++ {
		if n := seed - first; n > 0 && n%50 == 0 {
			t.Logf("%d worlds", n)
		}
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			f := newFleet(t, 1+rng.IntN(64))
			f.burst = []int{1, 2, 64}[seed%3]
			f.mark()
			since := 0 // changes since all was even
			var last string
			for n := range changes {
				for range 1 + rng.IntN(3) {
					if len(f.alive) == 0 || len(f.alive) < 20 && rng.IntN(5) < 3 {
						f.join(sluice.Balanced)
						last = "join"
					} else if w := f.alive[rng.IntN(len(f.alive))]; rng.IntN(2) == 0 {
						f.stop(w)
						last = "stop"
					} else {
						f.kill(w)
						last = "kill"
					}
					since++
				}
				f.send(1)
				if len(f.alive) == 0 || rng.IntN(3) == 0 && n < changes-1 {
					time.Sleep(time.Duration(rng.IntN(int(40 * time.Second))))
					continue
				}
				// Without bursts, the pace of taking is one a second.
				list, _ := f.holds()
				pace := time.Duration(len(f.topic)/len(list)+1) * time.Second
				share, all := f.settle(max(time.Minute, 40*time.Second+pace))
				time.Sleep(max(0, time.Minute-all))
				if share > time.Minute {
					t.Errorf("seed %d: shares were even %v after the last change, a %s", seed, share, last)
				}
				if moves, most := f.moved(); most > since {
					t.Errorf("seed %d: a partition moved %d times for %d changes; %d moves in all", seed, most, since, moves)
				}
				shares, alls = append(shares, share), append(alls, all)
				f.mark()
				time.Sleep(2 * time.Minute)
				if moves, _ := f.moved(); moves > 0 {
					t.Errorf("seed %d: %d moves without a change", seed, moves)
				}
				f.mark()
				since = 0
			}
			f.join(sluice.Balanced)
			time.Sleep(3 * time.Minute)
			for len(f.alive) > 0 {
				f.stop(f.alive[0])
			}
			f.onceEach()
		})
	}
	for name, list := range map[string][]time.Duration{"shares even": shares, "all partitions held": alls} {
		slices.Sort(list)
		t.Logf("%s: %d times, median %v, 95%% %v, longest %v", name, len(list), list[len(list)/2], list[len(list)*95/100], list[len(list)-1])
	}
}

func TestBalancedIsRefused(t *testing.T) {
	hub, leases, store := sluicetest.NewHub(enginetest.Group, 1), enginetest.NewLedger(), &sluicetest.Store{}
	replay := sluice.Replay(sluice.Replayer{Apply: func(context.Context, sluice.Batch) error { return nil }})
	for name, c := range map[string]struct {
		delivery sluice.Delivery
		cfg      sluice.Config
	}{
		"Replay":            {replay, sluice.Config{}},
		"assigned every 1m": {sluice.Transactional(store, enginetest.Nothing), sluice.Config{AssignEvery: time.Minute}},
	} {
		c.cfg.Partitions = sluice.Balanced
		if _, err := sluice.New(hub, leases, c.delivery, &c.cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
