package autoscale_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// dice is the random generator of a trial. It is safe for concurrent use.
type dice struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func (d *dice) roll(chance float64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rand.Float64() < chance
}

func (d *dice) draw(n int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rand.Int64N(n)
}

func (d *dice) fault(chance float64) func() error {
	return func() error {
		if d.roll(chance) {
			return errOut
		}
		return nil
	}
}

// troubledQueue delivers messages once or several times, fails before or after an
// operation, and sometimes does not delete.
type troubledQueue struct {
	*autoscale.MemoryQueue
	dice *dice
}

func (q *troubledQueue) Send(ctx context.Context, bodies ...[]byte) error {
	if q.dice.roll(0.05) {
		return errOut
	}
	for _, b := range bodies {
		for range 1 + q.dice.draw(3) {
			if err := q.MemoryQueue.Send(ctx, b); err != nil {
				return err
			}
		}
	}
	if q.dice.roll(0.05) {
		return errOut // sent all the same
	}
	return nil
}

func (q *troubledQueue) Receive(ctx context.Context, most int) ([]autoscale.Message, error) {
	if q.dice.roll(0.05) {
		return nil, errOut
	}
	return q.MemoryQueue.Receive(ctx, 1+int(q.dice.draw(int64(most))))
}

func (q *troubledQueue) Delete(ctx context.Context, m *autoscale.Message) error {
	if q.dice.roll(0.1) {
		return errOut
	}
	return q.MemoryQueue.Delete(ctx, m)
}

// troubledStore fails before or after an operation.
type troubledStore struct {
	*autoscale.MemoryStore
	dice *dice
}

func (s *troubledStore) Save(ctx context.Context, m *autoscale.ResourceState, records ...autoscale.Record) error {
	if s.dice.roll(0.05) {
		return errOut
	}
	err := s.MemoryStore.Save(ctx, m, records...)
	if s.dice.roll(0.05) {
		return errOut
	}
	return err
}

func (s *troubledStore) SetOutcome(ctx context.Context, resource string, o autoscale.Outcome) error {
	if s.dice.roll(0.05) {
		return errOut
	}
	err := s.MemoryStore.SetOutcome(ctx, resource, o)
	if s.dice.roll(0.05) {
		return errOut
	}
	return err
}

// erratic is a rule that proposes random numbers.
type erratic struct{ dice *dice }

func (r erratic) Propose(s autoscale.Situation) autoscale.Proposal {
	if r.dice.roll(0.02) {
		panic("out of order")
	}
	return autoscale.Proposal{Instances: s.Instances + int(r.dice.draw(9)) - 4, Reason: "by lot"}
}

// trial runs an autoscaler in three parts with random faults.
type trial struct {
	t      *testing.T
	seed   uint64
	dice   *dice
	clock  *skewed
	target *fleet
	store  *troubledStore
	limits autoscale.Limits
	run    func() (stop func())
	gauges [2]*gauge
	slow   time.Duration // by how much the clock has been set back
}

const trialRest = 3 * time.Minute

func newTrial(t *testing.T, seed uint64) *trial {
	d := &dice{rand: rand.New(rand.NewPCG(seed, 6))}
	w := &trial{t: t, seed: seed, dice: d, clock: newSkewed()}
	w.target = &fleet{instances: 4, takes: 2 * time.Second, fail: d.fault(0.2), lose: d.fault(0.2)}
	w.store = &troubledStore{autoscale.NewMemoryStore(), d}
	w.gauges = [2]*gauge{{}, {}}
	limits, err := autoscale.Limits{Min: 2, Max: 7, CooldownUp: trialRest, MinPoints: 3, Window: 5 * time.Minute, Interval: 20 * time.Second}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	w.limits = limits
	queue := func() autoscale.Queue { return &troubledQueue{autoscale.NewMemoryQueue(0), d} }
	queues := autoscale.Queues{Metrics: queue(), Actions: queue(), Reports: queue()}
	r := &autoscale.Resource{Name: "r", Metrics: []string{"a", "b"}, Rule: erratic{d}, Limits: limits}
	parts := []func() autoscale.Part{
		func() autoscale.Part {
			sources := map[string]autoscale.Source{"a": w.gauges[0], "b": w.gauges[1]}
			return autoscale.NewCollector("r", sources, queues.Metrics, &autoscale.CollectorConfig{Interval: limits.Interval, Clock: w.clock})
		},
		func() autoscale.Part {
			l, err := autoscale.NewLogic(r, w.store, queues, &autoscale.LogicConfig{Clock: w.clock})
			if err != nil {
				t.Error(err)
			}
			return l
		},
		func() autoscale.Part {
			s, err := autoscale.NewScaler(r, w.target, w.store, queues, &autoscale.ScalerConfig{Interval: limits.Interval, Clock: w.clock})
			if err != nil {
				t.Error(err)
			}
			return s
		},
	}
	w.run = func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		var living sync.WaitGroup
		for _, part := range parts {
			living.Go(func() { // each lives, is killed, and lives again
				for ctx.Err() == nil {
					life, kill := context.WithTimeout(ctx, time.Duration(1+d.draw(int64(10*time.Minute))))
					if err := part().Run(life); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
					kill()
				}
			})
		}
		return func() { cancel(); living.Wait() }
	}
	return w
}

// weather changes the metrics, and sometimes sets the clock back. (A clock that is set
// forward ends a cooldown early if the logic restarts at that time.)
func (w *trial) weather() {
	for _, g := range w.gauges {
		switch {
		case w.dice.roll(0.1):
			g.put(autoscale.Reading{State: autoscale.Disabled}, nil)
		case w.dice.roll(0.1):
			g.put(autoscale.Reading{}, errOut)
		default:
			g.set(float64(w.dice.draw(1000)))
		}
	}
	if w.dice.roll(0.02) {
		w.slow += time.Duration(w.dice.draw(int64(time.Hour)))
		w.clock.set(-w.slow)
	}
}

// judge checks the actions that were carried out and the decision log.
func (w *trial) judge() error {
	var errs []error
	complain := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	done := w.target.scalings()
	for i, s := range done {
		if s.instances < w.limits.Min || s.instances > w.limits.Max {
			complain("scaled to %d, beyond %d to %d", s.instances, w.limits.Min, w.limits.Max)
		}
		if i > 0 && s.number <= done[i-1].number {
			complain("action %d was carried out after action %d", s.number, done[i-1].number)
		}
		if i > 0 && s.time.Sub(done[i-1].time) <= trialRest {
			complain("actions %d and %d within %v", done[i-1].number, s.number, s.time.Sub(done[i-1].time))
		}
	}
	records, err := w.store.Records(context.Background(), "r", time.Time{}, 0)
	errs = append(errs, err)
	decided, ended := map[int64]int{}, map[int64]int{}
	for i, r := range records {
		if r.Sequence != int64(i+1) {
			complain("record %d has the number %d", i+1, r.Sequence)
		}
		switch r.Kind {
		case autoscale.Up, autoscale.Down:
			decided[r.Action]++
			for _, f := range r.Stats {
				if r.Kind == autoscale.Down && f.Missing != "" {
					complain("down although %s is missing: %s", f.Metric, f.Missing)
				}
			}
		case autoscale.ActionSucceeded, autoscale.ActionFailed:
			ended[r.Action]++
		}
	}
	for n := int64(1); n <= int64(len(decided)); n++ {
		if decided[n] != 1 || ended[n] > 1 || ended[n] == 0 && n < int64(len(decided)) {
			complain("action %d was decided %d times and ended %d times", n, decided[n], ended[n])
		}
	}
	for _, s := range done {
		if decided[s.number] == 0 {
			complain("action %d was carried out, but never decided", s.number)
		}
	}
	if len(done) < 5 {
		complain("only %d actions: the trial shows nothing", len(done))
	}
	return errors.Join(errs...)
}

// TestChaos: with messages duplicated, lost, late or out of order, and parts killed, the
// number of instances stays within the limits, there are no two actions within a
// cooldown and no scale-down on missing data, and each action is carried out once and
// is in the log. SLUICE_AUTOSCALE_SEEDS runs more seeds, from SLUICE_AUTOSCALE_FIRST.
func TestChaos(t *testing.T) {
	number := func(variable string, number uint64) uint64 {
		if text := os.Getenv(variable); text != "" {
			var err error
			if number, err = strconv.ParseUint(text, 10, 63); err != nil {
				t.Fatalf("%s: %v", variable, err)
			}
		}
		return number
	}
	seeds, first := number("SLUICE_AUTOSCALE_SEEDS", 12), number("SLUICE_AUTOSCALE_FIRST", 0)
	for seed := first; seed < first+seeds; seed++ {
		if n := seed - first; n > 0 && n%50 == 0 {
			t.Logf("%d trials", n)
		}
		synctest.Test(t, func(t *testing.T) {
			w := newTrial(t, seed)
			stop := w.run()
			for range 3 * 60 * 3 { // three hours
				time.Sleep(20 * time.Second)
				w.weather()
			}
			stop()
			if err := w.judge(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}
