package azure_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/azure"
)

var errOut = errors.New("out of order")

// dice is a random generator that is safe for concurrent use.
type dice struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func (d *dice) draw(n int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rand.Int64N(n)
}

func (d *dice) roll(percent int64) error {
	if d.draw(100) < percent {
		return errOut
	}
	return nil
}

// lossy is a queue whose calls fail before or after they have had their effect, and that
// delivers messages several times and late.
type lossy struct {
	*autoscale.MemoryQueue
	dice *dice
}

func (q *lossy) Send(ctx context.Context, bodies ...[]byte) error {
	if err := q.dice.roll(5); err != nil {
		return err
	}
	for _, b := range bodies {
		for range 1 + q.dice.draw(3) {
			if err := q.MemoryQueue.Send(ctx, b); err != nil {
				return err
			}
		}
	}
	return q.dice.roll(5)
}

func (q *lossy) Receive(ctx context.Context, most int) ([]autoscale.Message, error) {
	if err := q.dice.roll(5); err != nil {
		return nil, err
	}
	list, err := q.MemoryQueue.Receive(ctx, 1+int(q.dice.draw(int64(most))))
	if err == nil && q.dice.roll(5) != nil {
		return nil, errOut // they are delivered again when their locks have expired
	}
	return list, err
}

func (q *lossy) Delete(ctx context.Context, m *autoscale.Message) error {
	return errors.Join(q.dice.roll(10), q.MemoryQueue.Delete(ctx, m))
}

// lossyStore is a store whose writes fail before or after they have had their effect, and
// which is always down for the resource broken.
type lossyStore struct {
	*autoscale.MemoryStore
	dice *dice
}

const broken = "broken"

func (s *lossyStore) write(resource string, fn func() error) error {
	if resource == broken {
		return errOut
	}
	if err := s.dice.roll(5); err != nil {
		return err
	}
	return errors.Join(fn(), s.dice.roll(5))
}

func (s *lossyStore) Save(ctx context.Context, m *autoscale.ResourceState, records ...autoscale.Record) error {
	return s.write(m.Resource, func() error { return s.MemoryStore.Save(ctx, m, records...) })
}

func (s *lossyStore) SetOutcome(ctx context.Context, resource string, o autoscale.Outcome) error {
	return s.write(resource, func() error { return s.MemoryStore.SetOutcome(ctx, resource, o) })
}

// fleet is a target that loses answers, and fails no three times in a row.
type fleet struct {
	dice *dice

	mu        sync.Mutex
	instances int
	failures  int
	done      []string
}

func (f *fleet) Instances(context.Context) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.instances, nil
}

func (f *fleet) Scale(ctx context.Context, to int) error {
	a, _ := autoscale.ActionFrom(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failures < 2 && f.dice.roll(30) != nil {
		f.failures++
		return errOut
	}
	f.failures, f.instances = 0, to
	f.done = append(f.done, fmt.Sprintf("action %d carried out: %d for %s", a.Number, to, a.Resource))
	return f.dice.roll(30)
}

// panics is a target that is worse than down.
type panics struct{}

func (panics) Instances(context.Context) (int, error) { panic("out of order") }
func (panics) Scale(context.Context, int) error       { panic("out of order") }

// shared is what the resources of a process, or of an account, share.
type shared struct {
	t      *testing.T
	dice   *dice
	prefix func(resource string) string
	store  *lossyStore
	queues map[string]*lossy
}

func (s *shared) queue(name string) autoscale.Queue {
	if s.queues[name] == nil {
		s.queues[name] = &lossy{autoscale.NewMemoryQueue(0), s.dice}
	}
	return s.queues[name]
}

// phase is how long a resource's metric keeps a value.
const phase = 20 * time.Minute

// levels are the values of a resource's metric, one a phase: the wanted instances.
func levels(resource string) []int {
	return map[string][]int{"orders": {3, 1, 6, 2, 5}, "Orders": {2, 7, 4, 9, 8}, "mail": {9, 8, 1, 2, 3}, broken: {2, 3, 4, 5, 6}}[resource]
}

// run runs the parts of a resource, each of which is killed again and again.
func (s *shared) run(ctx context.Context, name string, target autoscale.Target) {
	began := time.Now()
	limits, err := autoscale.Limits{CooldownUp: 3 * time.Minute, MinPoints: 1, Window: 5 * time.Minute, Interval: 20 * time.Second}.WithDefaults()
	if err != nil {
		s.t.Error(err)
	}
	r := &autoscale.Resource{Name: name, Metrics: []string{"wanted"}, Limits: limits, Rule: autoscale.RuleFunc(func(s autoscale.Situation) autoscale.Proposal {
		if w := s.Windows["wanted"]; w != nil {
			return autoscale.Proposal{Instances: int(w.All().Newest()), Reason: "as wanted"}
		}
		return autoscale.Proposal{Instances: s.Instances, Reason: "nothing is known"}
	})}
	source := autoscale.SourceFunc(func(context.Context) (autoscale.Reading, error) {
		list := levels(name)
		return autoscale.Reading{Value: float64(list[min(int(time.Since(began)/phase), len(list)-1)])}, s.dice.roll(10)
	})
	prefix := s.prefix(name)
	queues := autoscale.Queues{Metrics: s.queue(prefix + autoscale.MetricsQueue), Actions: s.queue(prefix + autoscale.ActionsQueue), Reports: s.queue(prefix + autoscale.ReportsQueue)}
	parts := []func() (autoscale.Part, error){
		func() (autoscale.Part, error) {
			return autoscale.NewCollector(name, map[string]autoscale.Source{"wanted": source}, queues.Metrics, &autoscale.CollectorConfig{Interval: limits.Interval}), nil
		},
		func() (autoscale.Part, error) { return autoscale.NewLogic(r, s.store, queues, nil) },
		func() (autoscale.Part, error) {
			return autoscale.NewScaler(r, target, s.store, queues, &autoscale.ScalerConfig{Interval: limits.Interval})
		},
	}
	var living sync.WaitGroup
	for _, part := range parts {
		living.Go(func() {
			for ctx.Err() == nil {
				life, kill := context.WithTimeout(ctx, time.Duration(1+s.dice.draw(int64(10*time.Minute))))
				p, err := part()
				if err == nil {
					err = p.Run(life)
				}
				if err != nil {
					s.t.Error(err)
				}
				kill()
			}
		})
	}
	living.Wait()
}

// observe runs resources together, and returns for each what was decided, what became of
// it, and what was carried out.
func observe(t *testing.T, seed uint64, prefix func(string) string, resources ...string) map[string]string {
	seen := map[string]string{}
	synctest.Test(t, func(t *testing.T) {
		d := &dice{rand: rand.New(rand.NewPCG(seed, 16))}
		s := &shared{t, d, prefix, &lossyStore{autoscale.NewMemoryStore(), d}, map[string]*lossy{}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(levels("mail")))*phase)
		defer cancel()
		fleets := map[string]*fleet{}
		var running sync.WaitGroup
		for _, name := range resources {
			for _, kind := range []string{autoscale.MetricsQueue, autoscale.ActionsQueue, autoscale.ReportsQueue} {
				s.queue(prefix(name) + kind)
			}
		}
		for _, name := range resources {
			fleets[name] = &fleet{dice: d, instances: 1}
			running.Go(func() {
				if name == broken {
					s.run(ctx, name, panics{})
				} else {
					s.run(ctx, name, fleets[name])
				}
			})
		}
		running.Wait()
		for _, name := range resources {
			records, err := s.store.Records(t.Context(), name, time.Time{}, 0)
			if err != nil {
				t.Error(err)
			}
			var lines []string
			for _, r := range records {
				if r.Kind != autoscale.Hold {
					lines = append(lines, fmt.Sprintf("action %d %s: %d to %d", r.Action, r.Kind, r.Instances, r.Wanted))
				}
			}
			lines = append(lines, fleets[name].done...)
			for queue, q := range s.queues {
				if strings.HasPrefix(queue, prefix(name)) {
					for _, letter := range q.DeadLetters() {
						lines = append(lines, fmt.Sprintf("set aside in %s: %s", queue, letter.Reason))
					}
				}
			}
			seen[name] = strings.Join(lines, "\n")
		}
	})
	return seen
}

// TestResourcesApart: three resources in one process and one account, with messages
// duplicated, lost and late, parts killed, answers lost, and beside a fourth whose target
// panics and whose state is down, decide and do exactly what each does alone.
func TestResourcesApart(t *testing.T) {
	resources := []string{"orders", "Orders", "mail"} // two differ only by case
	for seed := range uint64(3) {
		together := observe(t, seed, azure.QueuePrefix, append(resources, broken)...)
		for _, name := range resources {
			alone := observe(t, seed, azure.QueuePrefix, name)[name]
			if together[name] != alone {
				t.Errorf("seed %d: %s beside others:\n%s\nalone:\n%s", seed, name, together[name], alone)
			}
			last := levels(name)[len(levels(name))-1]
			if end := fmt.Sprintf("action %d carried out: %d for %s", len(levels(name)), last, name); !strings.HasSuffix(alone, end) {
				t.Errorf("seed %d: %s alone:\n%s\nwant it to end with %s", seed, name, alone, end)
			}
		}
	}
}

// TestSharedQueuesAreNoticed: with the same queues for all, the comparison of
// TestResourcesApart fails.
func TestSharedQueuesAreNoticed(t *testing.T) {
	same := func(string) string { return "" }
	together := observe(t, 1, same, "orders", "mail")
	for _, name := range []string{"orders", "mail"} {
		if alone := observe(t, 1, same, name)[name]; together[name] == alone {
			t.Errorf("%s is the same alone and beside others", name)
		}
	}
}
