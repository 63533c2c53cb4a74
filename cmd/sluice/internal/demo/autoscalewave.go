package demo

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
)

// phase is a time of constant load.
type phase struct {
	lasts time.Duration
	rate  int64 // events a second
}

// wave is the load: it rises to more than three workers can handle, and falls again.
var wave = []phase{
	{1500 * time.Millisecond, workerRate / 3},
	{5 * time.Second, workerRate * 10 / 3},
	{2500 * time.Millisecond, workerRate * 3 / 2},
	{time.Second, workerRate / 3},
}

// pauseBetweenWaves is the time without load between two waves.
const pauseBetweenWaves = 20 * time.Second

// due returns how many events the load has after some time, its present rate, and whether it is
// over.
func due(after time.Duration, once bool) (events, rate int64, over bool) {
	for {
		for _, p := range wave {
			if after < p.lasts {
				return events + int64(float64(p.rate)*after.Seconds()), p.rate, false
			}
			after -= p.lasts
			events += int64(float64(p.rate) * p.lasts.Seconds())
		}
		switch {
		case once:
			return events, 0, true
		case after < pauseBetweenWaves:
			return events, 0, false
		}
		after -= pauseBetweenWaves
	}
}

// eventsPerOrder is how many events there are to a message for the subscription.
const eventsPerOrder = 20

// load sends what is due, until the load is over or ctx ends.
func (d *Autoscale) load(ctx context.Context, once bool) error {
	defer d.now.Store(0)
	began := time.Now()
	parts := make(chan error, 1)
	go func() { parts <- d.sideLoad.supply(ctx, &d.sent, &d.finished) }()
	err := d.Produce(ctx, func(p *flights.Producer) error {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			events, rate, over := due(time.Since(began), once)
			sent, err := p.SendShare(ctx, events)
			d.sent.Add(sent)
			if err != nil {
				return err
			}
			d.now.Store(rate)
			if over {
				return nil
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	if err == nil {
		d.finished.Store(true)
	}
	if failed := <-parts; err == nil {
		err = failed
	}
	return err
}
