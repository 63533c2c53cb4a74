package autoscale_test

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// pool is a target: in a program, something that starts and stops workers.
type pool struct{ workers atomic.Int64 }

func (p *pool) Instances(context.Context) (int, error) { return int(p.workers.Load()), nil }

func (p *pool) Scale(_ context.Context, to int) error {
	p.workers.Store(int64(to))
	return nil
}

// One worker for every 500 messages of backlog, but at most four.
func Example() {
	backlog := autoscale.SourceFunc(func(context.Context) (autoscale.Reading, error) {
		return autoscale.Reading{Value: 2600}, nil // in a program, of a queue
	})
	rule := autoscale.RuleFunc(func(s autoscale.Situation) autoscale.Proposal {
		w := s.Windows["backlog"]
		if w == nil {
			return autoscale.Proposal{Instances: s.Instances, Reason: "metric backlog is missing: " + s.Missing["backlog"]}
		}
		n := math.Ceil(w.All().Newest() / 500)
		return autoscale.Proposal{Instances: int(n), Reason: fmt.Sprintf("backlog %v needs %v workers", w.All().Newest(), n)}
	})
	orders := &autoscale.Resource{
		Name:    "orders",
		Metrics: []string{"backlog"},
		Rule:    rule,
		Limits:  autoscale.Limits{Max: 4, MinPoints: 1, Interval: 10 * time.Millisecond, Window: time.Minute, StaleAfter: time.Minute},
	}
	workers := &pool{}
	workers.workers.Store(1)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a, err := autoscale.New(orders, map[string]autoscale.Source{"backlog": backlog}, workers, &autoscale.Config{
		OnRecord: func(r autoscale.Record) {
			switch r.Kind {
			case autoscale.Up, autoscale.Down:
				fmt.Printf("%s: %d to %d workers: %s\n", r.Kind, r.Instances, r.Wanted, r.Reason)
			case autoscale.ActionSucceeded:
				fmt.Printf("%s: %d workers\n", r.Kind, r.Instances)
				cancel() // in a program, on an interrupt
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := a.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// up: 1 to 4 workers: backlog 2600 needs 6 workers; proposed 6 instances, limited to 4 (min 1, max 4)
	// succeeded: 4 workers
}
