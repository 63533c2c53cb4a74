package wire

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// answers is a source whose answers about the topic are late, out of date, empty or errors. Bounds
// are advice, so they may lie. A description may be missing, and no more: it decides what a
// checkpoint is worth.
type answers struct {
	source
	perMille func() int

	mu    sync.Mutex
	rand  *rand.Rand
	known map[string]driver.Bounds // an earlier answer
}

var errForged = errors.New("the broker is busy")

// lie returns which lie to tell; 0: none.
func (a *answers) lie() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rand.IntN(1000) >= a.perMille() {
		return 0
	}
	return 1 + a.rand.IntN(4)
}

// Bounds implements [driver.Source].
func (a *answers) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	lie := a.lie()
	switch lie {
	case 1:
		return driver.Bounds{}, errForged
	case 2:
		return driver.Bounds{Last: driver.Origin}, nil // an empty partition
	case 3:
		<-ctx.Done()
		return driver.Bounds{}, ctx.Err()
	}
	b, err := a.source.Bounds(ctx, partition)
	a.mu.Lock()
	defer a.mu.Unlock()
	earlier, known := a.known[partition]
	switch {
	case lie == 4 && known:
		return earlier, nil
	case err == nil && (!known || a.rand.IntN(20) == 0):
		a.known[partition] = b
	}
	return b, err
}

// Describe implements [driver.Source].
func (a *answers) Describe(ctx context.Context) (sluice.Topic, error) {
	switch a.lie() {
	case 1:
		return sluice.Topic{}, errForged
	case 2:
		<-ctx.Done()
		return sluice.Topic{}, ctx.Err()
	case 3:
		select {
		case <-time.After(8 * time.Second):
		case <-ctx.Done():
		}
	}
	return a.source.Describe(ctx)
}
